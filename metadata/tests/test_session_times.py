"""A client never takes its session for live after the server gave its nodes away."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.session_times import HeldSessions, Lease
from metadata.store import SessionState

TIMEOUT = 12.0


def test_a_lease_is_live_then_in_doubt_then_lost():
    lease = Lease(TIMEOUT, 0.0)
    states = [lease.state(now, is_connected=True) for now in (0.0, 7.9, 8.0, 10.9, 11.0)]
    live, doubt, lost = SessionState.LIVE, SessionState.IN_DOUBT, SessionState.LOST
    assert states == [live, live, doubt, doubt, lost]
    assert lease.state(1.0, is_connected=False) is doubt
    assert lease.state(11.0, is_connected=False) is lost
    assert (lease.ping_at, lease.doubtful_at, lease.ends_at) == (4.0, 8.0, 11.0)


def test_an_answer_counts_from_its_request_and_never_backwards():
    lease = Lease(TIMEOUT, 0.0)
    lease.answered(4.0)
    lease.answered(2.0)
    assert lease.ends_at == 15.0


@given(
    gaps=st.lists(st.tuples(st.floats(0.01, 12.0), st.floats(0.0, 5.0), st.booleans()), max_size=30)
)
def test_the_client_knows_first(gaps):
    """Requests with any pauses between them; each arrives after any delay, and its answer may be
    lost. When the server ends the session, the client's has been over for a twelfth of it."""
    sessions = HeldSessions(1)
    now = 0.0
    lease = Lease(TIMEOUT, now)
    session = sessions.begin(b"token", TIMEOUT, now, 1)
    for pause, delay, is_answered in gaps:
        now += pause
        sent_at = now
        if lease.state(now, is_connected=True) is SessionState.LOST:
            break
        now += delay
        if sessions.expired(now):
            break
        assert sessions.resume(b"token", now) is session
        if is_answered and lease.state(now, is_connected=True) is not SessionState.LOST:
            lease.answered(sent_at)
    over_at = session.heard_at + TIMEOUT
    assert sessions.expired(over_at) == [session]
    # Both sums of times are rounded.
    rounding = 1e-9
    assert lease.state(over_at - TIMEOUT / 12 + rounding, is_connected=True) is SessionState.LOST


@pytest.mark.parametrize("seconds", [0.0, 3.0, 100.0])
def test_the_time_in_which_the_server_could_not_listen_is_granted(seconds):
    sessions = HeldSessions(2)
    session = sessions.begin(b"a", TIMEOUT, 0.0, 1)
    sessions.grant(seconds)
    assert sessions.expired(seconds + TIMEOUT - 0.01) == []
    assert sessions.expired(seconds + TIMEOUT) == [session]
    assert sessions.resume(b"a", 1.0) is session
    assert session.heard_at == max(1.0, seconds)


def test_a_session_that_is_over_is_not_resumed_even_if_nobody_noticed():
    sessions = HeldSessions(2)
    session = sessions.begin(b"a", TIMEOUT, 0.0, 1)
    assert sessions.resume(b"a", TIMEOUT) is None
    assert sessions.resume(b"b", 0.0) is None
    sessions.end(session)
    assert session.is_over
    assert sessions.all() == []


def test_a_session_is_given_up_by_its_token_only():
    sessions = HeldSessions(2)
    session = sessions.begin(b"\x0a", TIMEOUT, 0.0, 1)
    assert sessions.given_up("0a") is session
    for other in ("", "0b", "not a token", "0"):
        assert sessions.given_up(other) is None


def test_there_may_be_so_many_sessions_and_each_has_its_process():
    sessions = HeldSessions(2)
    one = sessions.begin(b"a", TIMEOUT, 0.0, 1)
    two = sessions.begin(b"b", TIMEOUT, 0.0, 2)
    assert sessions.begin(b"c", TIMEOUT, 0.0, 2) is None
    assert sessions.of_process(2) == [two]
    sessions.end(one)
    assert sessions.begin(b"c", TIMEOUT, 0.0, 2) in sessions.of_process(2)
    assert len(sessions) == 2
