"""When a credential has to be renewed, and when its connection ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from security.authentication.identity import Identity
from security.authentication.lease import UNREAD_SECONDS_MAX, Lease, LeaseAction


class SteadyLease:
    """A lease of which both clocks show the same time."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.identity = lease.identity
        self.answered = lease.answered
        self.renewed = lease.renewed

    def check(self, now: float, *, was_unread: bool = False) -> LeaseAction:
        return self.lease.check(now, now, was_unread=was_unread)


def lease(expires_at: float | None = 10.0, can_renew: bool = True) -> SteadyLease:
    return SteadyLease(Lease(Identity("alice", "token", expires_at), can_renew=can_renew))


def test_a_credential_without_an_end_is_never_renewed():
    assert lease(None).check(1e12) is LeaseAction.NOTHING


def test_an_expired_credential_is_asked_for_once_and_then_the_connection_ends():
    tested = lease()
    assert tested.check(10.0) is LeaseAction.NOTHING
    assert tested.check(10.1) is LeaseAction.CHALLENGE
    assert tested.check(11.0) is LeaseAction.CLOSE_NO_ANSWER


def test_a_look_does_not_count_if_the_client_was_not_read_but_not_for_ever():
    tested = lease()
    assert tested.check(11.0) is LeaseAction.CHALLENGE
    for now in (12.0, 13.0, 11.0 + UNREAD_SECONDS_MAX):
        assert tested.check(now, was_unread=True) is LeaseAction.NOTHING
    assert tested.check(12.0 + UNREAD_SECONDS_MAX, was_unread=True) is LeaseAction.CLOSE_NO_ANSWER
    assert tested.check(13.0) is LeaseAction.CLOSE_NO_ANSWER


def test_the_time_for_an_answer_is_the_same_whatever_the_wall_clock_is_set_to():
    for set_by in (-3600.0, 3600.0):
        tested = lease().lease
        assert tested.check(10_000.0, 1.0) is LeaseAction.CHALLENGE
        late = 1.0 + UNREAD_SECONDS_MAX
        assert tested.check(10_000.0 + set_by, late, was_unread=True) is LeaseAction.NOTHING
        action = tested.check(10_000.0 + set_by, late + 1, was_unread=True)
        assert action is LeaseAction.CLOSE_NO_ANSWER


def test_a_client_that_cannot_renew_is_disconnected():
    assert lease(can_renew=False).check(11.0) is LeaseAction.CLOSE_CANNOT_RENEW


def test_renewals_go_on_and_on():
    tested = lease()
    for round_ in range(1, 100):
        now = 10.0 * round_ + 1
        assert tested.check(now) is LeaseAction.CHALLENGE
        tested.answered()
        assert tested.renewed(Identity("alice", "token", now + 9))
        assert tested.check(now) is LeaseAction.NOTHING


def test_another_role_does_not_renew():
    tested = lease()
    assert not tested.renewed(Identity("bob", "token", 100.0))
    assert tested.identity.expires_at == 10.0


@given(st.lists(st.floats(0, 100), min_size=2))
def test_without_an_answer_no_check_after_a_challenge_lets_the_connection_go_on(moments):
    tested = lease()
    challenged = False
    for now in sorted(moments):
        action = tested.check(now)
        if challenged:
            assert action is LeaseAction.CLOSE_NO_ANSWER
        challenged = challenged or action is LeaseAction.CHALLENGE
        assert challenged == (now > 10.0)
