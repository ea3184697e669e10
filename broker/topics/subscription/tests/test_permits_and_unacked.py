"""The two ledgers of flow control: what was granted and spent, what is out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.ground.entry import Entry
from broker.limits.delayed_budget import DelayedBudget
from broker.topics.subscription.delayed import DelayedIndex, deliver_at_ms
from broker.topics.subscription.permits import PERMITS_MAX, Permits
from broker.topics.subscription.redelivery import ReplayQueue
from broker.topics.subscription.tests.fakes import make_data
from broker.topics.subscription.unacked import (
    PendingAcks,
    UnackedTally,
    is_below_half,
    is_within_half,
)
from protocol import pulsar_api_pb2 as pb
from protocol.metadata import encode_message


@settings(deadline=None)
@given(st.lists(st.integers(-50, 50).filter(bool)))
def test_permits_are_conserved(steps):
    permits = Permits()
    balance = 0
    for step in steps:
        if step > 0:
            ended_shortage = permits.grant(step)
            assert ended_shortage == (balance <= 0 < balance + step)
        else:
            permits.spend(-step)
        balance += step
        assert permits.available == balance == permits.granted - permits.spent


def test_endless_grants_are_held_at_the_bound():
    permits = Permits()
    for _ in range(3):
        permits.grant(PERMITS_MAX)
    assert permits.available == PERMITS_MAX
    permits.spend(5)
    permits.grant(1)
    assert permits.available == PERMITS_MAX - 4


@pytest.mark.parametrize("wrong", [0, -1])
def test_a_flow_of_nothing_is_refused(wrong):
    with pytest.raises(ValueError, match="at least one permit"):
        Permits().grant(wrong)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("arkt"), st.integers(0, 5), st.integers(1, 9))))
def test_unacked_counters_equal_what_is_pending(steps):
    tally = UnackedTally()
    holders = [PendingAcks(), PendingAcks()]
    for holder in holders:
        holder.join(tally)
    for kind, entry_id, messages in steps:
        holder = holders[entry_id % 2]
        position = (1, entry_id)
        if kind == "a" and position not in holder:
            holder.add(position, messages)
        elif kind == "r":
            holder.remove(position)
        elif kind == "k":
            before = holder.messages
            assert before - holder.keep(position, messages) == holder.messages
        elif kind == "t":
            taken = [position for position, _ in holder.take_all()]
            assert taken == sorted(taken)
        for each in holders:
            assert each.messages == sum(pending.messages for pending in each.values())
        assert tally.messages == sum(each.messages for each in holders)


@settings(deadline=None)
@given(st.integers(0, 10))
def test_a_limit_never_holds_who_has_nothing_out(limit):
    for goes_on in (is_within_half, is_below_half):
        assert goes_on(0, limit)
        assert goes_on(max(limit, 1), limit) == (limit == 0)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("adp"), st.integers(0, 8))))
def test_the_replay_queue_is_a_sorted_set(steps):
    queue, model = ReplayQueue(), set()
    for kind, number in steps:
        if kind == "a":
            queue.add((1, number))
            model.add((1, number))
        elif kind == "d":
            queue.discard((1, number))
            model.discard((1, number))
        else:
            popped = queue.pop_batch(number)
            assert popped == sorted(model)[:number]
            model -= set(popped)
        assert len(queue) == len(model)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9)), unique_by=lambda s: s[1]))
def test_the_delayed_index_gives_what_is_due_in_position_order(entries):
    index = DelayedIndex(DelayedBudget(10, 10), "t")
    for due, number in entries:
        index.add(due, (1, number), number)
    due = index.take_due(10)
    assert due == sorted(((1, number), number) for when, number in entries if when <= 10)
    later = [when for when, _ in entries if when > 10]
    assert index.next_due_ms() == (min(later) if later else None)


def test_deliver_at_is_found_behind_any_header_and_never_imagined():
    plain = make_data(deliver_at=77, key="k")
    assert deliver_at_ms(Entry(plain)) == 77
    assert deliver_at_ms(Entry(plain[6:])) == 77
    assert deliver_at_ms(Entry(b"\x0e\x02\0\0\0\x02ab" + plain)) == 77
    looks_like_it = make_data(key="\x18", payload=b"\x98\x01\x05", ordering_key=b"\x98\x01\x05")
    assert deliver_at_ms(Entry(looks_like_it)) == 0


@settings(deadline=None)
@given(
    st.none() | st.integers(1, 2**62),
    st.text(max_size=30) | st.text("ab", min_size=200, max_size=300),
    st.binary(max_size=6),
    st.booleans(),
)
def test_the_time_of_delivery_is_that_of_the_metadata(deliver_at, key, payload, checksum):
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2)
    metadata.partition_key = key
    if deliver_at is not None:
        metadata.deliver_at_time = deliver_at
    data = encode_message(metadata, payload, checksum=checksum)
    assert deliver_at_ms(Entry(data)) == (deliver_at or 0)


@given(st.binary(max_size=80))
def test_any_bytes_are_asked_for_their_time_of_delivery(data):
    assert deliver_at_ms(Entry(b"\x0e\x01" + data)) >= 0
    assert deliver_at_ms(Entry(data)) >= 0
