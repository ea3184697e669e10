"""The gate of a topic whose backlog is near its quota."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.limits.backlog_rules import (
    BacklogGate,
    bytes_until_gate,
    is_over_age,
    is_over_size,
    refused,
)
from broker.tenancy.policies.backlog_quotas import EVICT, EXCEPTION, HOLD, BacklogQuota
from protocol.errors import ServerError

sizes = st.lists(st.integers(1, 1000), max_size=50)


@given(st.integers(0, 20_000), sizes, st.data())
def test_the_quota_is_exceeded_by_one_message_at_most(limit, messages, data):
    """Whatever is acknowledged between messages, and whether the room was known before or not."""
    backlog = 0
    gate = BacklogGate(lambda: limit - backlog)
    for size in messages:
        backlog -= data.draw(st.integers(0, backlog))
        before = backlog
        if gate.takes(size):
            assert before < limit, "all that came before fitted in"
            backlog += size
        else:
            assert before >= limit


@given(st.integers(0, 2**40), st.integers(1, 2**23))
def test_far_from_the_quota_a_turn_has_room(room, message_size_max):
    far = bytes_until_gate(room, message_size_max)
    assert far <= room - message_size_max


def test_a_negative_limit_is_none():
    assert not is_over_size(BacklogQuota(-1, 0, HOLD), 10**12)
    assert is_over_size(BacklogQuota(0, 0, HOLD), 0)
    assert is_over_size(BacklogQuota(5, 0, HOLD), 5)
    assert not is_over_size(BacklogQuota(5, 0, HOLD), 4)


def test_an_age_that_is_not_known_is_not_over_the_quota():
    assert not is_over_age(BacklogQuota(0, 1, HOLD), None, 10**12)
    assert not is_over_age(BacklogQuota(0, 0, HOLD), 0, 10**12)
    assert is_over_age(BacklogQuota(0, 1, HOLD), 1_000, 2_001)
    assert not is_over_age(BacklogQuota(0, 1, HOLD), 1_000, 2_000)


def test_what_producers_are_told():
    assert refused(BacklogQuota(5, 0, EVICT)) is None
    for action, code in (
        (HOLD, ServerError.ProducerBlockedQuotaExceededError),
        (EXCEPTION, ServerError.ProducerBlockedQuotaExceededException),
    ):
        error = refused(BacklogQuota(5, 0, action))
        assert error is not None
        assert error.server_error == code
