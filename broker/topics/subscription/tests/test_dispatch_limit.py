"""Rates of dispatch: how much passes, who waits, and in which order. The clock is trio's."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.limits.dispatch_budget import DispatchBudget
from broker.limits.dispatch_limit import DispatchLimit
from broker.tenancy.policies.delivery_rates import DispatchRate
from broker.topics.subscription.dispatch_gate import Allowance, DispatchGate
from broker.topics.subscription.tests.fakes import Bench, TrioClock

SMALL = 1e-6
MOST = Allowance(100, 5_000_000)


@given(
    messages=st.sampled_from([0, 1, 10, 1_000]),
    size_bytes=st.sampled_from([0, 100, 10_000]),
    period=st.sampled_from([0, 1, 5]),
    steps=st.lists(
        st.tuples(st.floats(0, 3), st.integers(1, 50), st.integers(1, 2_000)), max_size=60
    ),
)
def test_over_any_window_no_more_is_sent_than_the_rate_a_period_and_one_steps_excess(
    messages, size_bytes, period, steps
):
    rate = DispatchRate(messages, size_bytes, max(1, period))
    budget, now = DispatchBudget(rate, 0.0), 0.0
    sent = []
    for pause, wanted, size in steps:
        now += pause
        if budget.seconds_until_any(now) == 0:
            budget.take(wanted, size, now)
            sent.append((now, wanted, size))
    for first, (start, _, _) in enumerate(sent):
        total = total_bytes = 0
        for end, count, size in sent[first:]:
            total += count
            total_bytes += size
            periods = (end - start) / rate.period_seconds + 1
            assert not messages or total <= messages * periods + 50 + SMALL
            assert not size_bytes or total_bytes <= size_bytes * periods + 2_000 + SMALL


@given(
    rate=st.sampled_from([1, 7, 1_000]),
    period=st.sampled_from([1, 10]),
    counts=st.lists(st.integers(1, 3_000), min_size=1, max_size=30),
)
def test_who_waits_as_long_as_told_may_send_and_gets_the_whole_rate(rate, period, counts):
    budget, now = DispatchBudget(DispatchRate(rate, 0, period), 0.0), 0.0
    for count in counts:
        now += budget.seconds_until_any(now)
        assert budget.seconds_until_any(now) == pytest.approx(0, abs=1e-6)
        budget.take(count, 0, now)
    # The first period's worth and the last step's excess are not waited for.
    assert now <= max(0, sum(counts[:-1]) - rate + 1) * period / rate + SMALL


class Publishing:
    messages_per_second = 0.0
    bytes_per_second = 0.0


def test_a_relative_rate_adds_what_is_published_in_a_second():
    published = Publishing()
    budget = DispatchBudget(DispatchRate(10, 100, is_relative=True), 0.0, published)
    budget.take(10, 100, 0.0)
    published.messages_per_second, published.bytes_per_second = 90.0, 900.0
    assert budget.tokens(0.0) == (0, 0)
    assert budget.tokens(1.0) == (pytest.approx(100), pytest.approx(1_000))
    assert DispatchBudget(DispatchRate(10), 0.0, published).tokens(9.0)[0] == 10


class Sender:
    """Always has something to send, `at_once` messages at most in a step."""

    def __init__(self, limits, at_once=100, left=10**9):
        self.limits = limits
        self.at_once = at_once
        self.left = left
        self.sent = 0
        self.in_turn = False

    def step(self):
        while self.left:
            for each in self.limits:
                if not each.admits(self, in_turn=self.in_turn):
                    return
            messages = min(each.tokens()[0] for each in self.limits)
            count = max(1, min(self.at_once, self.left, int(messages)))
            for each in self.limits:
                each.take(count, 100 * count)
            self.sent += count
            self.left -= count

    def take_turn(self):
        self.in_turn = True
        try:
            self.step()
        finally:
            self.in_turn = False


def limit(nursery, messages, level="topic", period=1):
    return DispatchLimit(DispatchRate(messages, 0, period), level, TrioClock(), lambda: nursery)


async def test_a_rate_is_held_over_a_minute_within_a_thousandth(nursery, autojump_clock):
    sender = Sender([limit(nursery, 1_000)])
    sender.step()
    assert sender.sent == 1_000
    await trio.sleep(60)
    assert sender.sent == pytest.approx(61_000, rel=0.001)


@pytest.mark.parametrize("rate", [3, 1_000])
async def test_those_that_share_a_rate_get_equal_shares(nursery, autojump_clock, rate):
    shared = limit(nursery, rate)
    senders = [Sender([shared]) for _ in range(5)]
    for each in senders:
        each.step()
    await trio.sleep(20)
    first = senders[0].sent - rate  # the burst
    counts = [first, *(each.sent for each in senders[1:])]
    assert sum(counts) == pytest.approx(20 * rate, rel=0.02)
    assert min(counts) > 0.6 * rate * 20 / 5
    assert max(counts) < 1.5 * rate * 20 / 5


async def test_one_that_asks_all_the_time_takes_no_turn_of_those_that_wait(nursery, autojump_clock):
    shared = limit(nursery, 100)
    busy, other = Sender([shared]), Sender([shared])
    busy.step()
    other.step()
    for _ in range(1_000):
        busy.step()
        await trio.sleep(0.01)
    assert other.sent == pytest.approx(500, rel=0.1)


@settings(max_examples=settings.default.max_examples // 4)
@given(
    topic=st.sampled_from([1, 10, 100]),
    broker=st.sampled_from([1, 10, 100]),
    own=st.lists(st.sampled_from([0, 1, 50]), min_size=2, max_size=5),
    at_once=st.sampled_from([1, 20]),
)
def test_whatever_limits_are_used_up_everybody_gets_something(topic, broker, own, at_once):
    async def run():
        async with trio.open_nursery() as nursery:
            shared = [limit(nursery, broker, "broker"), limit(nursery, topic)]
            senders = [
                Sender([*shared, *([limit(nursery, rate)] if rate else [])], at_once)
                for rate in own
            ]
            for each in senders:
                each.step()
            await trio.sleep(60)
            total = sum(each.sent for each in senders)
            lowest = min(topic, broker)
            assert total <= 61 * lowest + 1
            if not all(own):
                assert total >= 0.9 * 60 * lowest
            assert min(each.sent for each in senders) >= min(
                0.2 * total / len(senders), 0.9 * 60 * min(each or 100 for each in own)
            )
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_a_limit_at_rest_has_no_task(nursery, autojump_clock):
    shared = limit(nursery, 10)
    sender = Sender([shared], left=15)
    sender.step()
    assert len(nursery.child_tasks) == 1
    await trio.sleep(2)
    assert (sender.sent, len(nursery.child_tasks)) == (15, 0)


async def test_one_that_left_is_not_called(nursery, autojump_clock):
    shared = limit(nursery, 10)
    gone, other = Sender([shared]), Sender([shared])
    gone.step()
    other.step()
    assert shared.holds(gone)
    shared.forget(gone)
    await trio.sleep(5)
    assert (gone.sent, other.sent) == (10, pytest.approx(50, abs=2))


def gate_of(nursery, *, messages=0, size_bytes=0, **rates):
    bench = Bench(nursery, clock=TrioClock())
    limits = bench.context.limits
    limits.rates = replace(limits.rates, subscription=DispatchRate(messages, size_bytes), **rates)
    return DispatchGate("s", bench.context, lambda: None)


async def test_batches_count_as_their_messages(nursery, autojump_clock):
    gate = gate_of(nursery, messages=100)
    assert gate.allowed(5, MOST) == MOST
    gate.sent(entries=5, messages=50, size_bytes=500)
    assert gate.allowed(5, MOST) == (5, MOST.size_bytes)
    gate.sent(entries=6, messages=60, size_bytes=600)
    assert gate.allowed(5, MOST) is None
    assert gate.why() == "the dispatch rate of the subscription is used up"
    await trio.sleep(1)
    assert gate.why() == ""
    assert gate.allowed(5, MOST) == (9, MOST.size_bytes)
    assert gate.throttled["subscription"] == (3, 0)


async def test_batches_may_count_as_one(nursery, autojump_clock):
    gate = gate_of(nursery, messages=100, counts_entries=True)
    gate.allowed(5, MOST)
    gate.sent(entries=30, messages=3_000, size_bytes=500)
    assert gate.allowed(5, MOST) == (70, MOST.size_bytes)


async def test_a_rate_in_bytes_leaves_room_for_entries_of_the_size_of_the_last_ones(
    nursery, autojump_clock
):
    gate = gate_of(nursery, size_bytes=10_000)
    assert gate.allowed(5, MOST) == (100, 10_000)
    gate.sent(entries=4, messages=4, size_bytes=4_000)
    assert gate.allowed(5, MOST) == (6, 6_000)
    assert gate.throttled["subscription"] == (0, 2)


async def test_rates_may_be_for_those_with_a_backlog_alone(nursery, autojump_clock):
    gate = gate_of(nursery, messages=1, limits_caught_up=False, backlog_entries_min=1_000)
    for _ in range(3):
        assert gate.allowed(999, MOST) == MOST
        gate.sent(100, 100, 100)
    assert gate.allowed(1_000, MOST) == (1, MOST.size_bytes)
    gate.sent(1, 1, 1)
    assert gate.allowed(1_000, MOST) is None
