"""After any sequence of events, each consumer is in the one place that its state names."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.topics.broadcast.fanout_groups import (
    ABSENT,
    ALONE,
    BLOCKED,
    DRY,
    IN_STEP,
    FanoutGroups,
)
from broker.topics.broadcast.lane import Lane
from broker.topics.broadcast.virtual_cursors import VirtualCursors
from broker.topics.subscription.tests.fakes import FakeSession

UNACKED_MAX = 4
SLOTS = st.integers(0, 5)


class Consumers(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.cursors = VirtualCursors()
        self.groups = FanoutGroups(self.cursors, UNACKED_MAX)
        self.lanes = [Lane(FakeSession()), Lane(FakeSession())]
        self.tail = 0
        self.granted = {}
        for number in range(6):
            self.cursors.join(f"c{number}", 0, durable=True)

    def attached(self):
        return [slot for slot, lane in enumerate(self.groups.lanes) if lane is not None]

    @rule(slot=SLOTS, bounded=st.booleans())
    def attach(self, slot, bounded):
        if slot not in self.attached():
            lane = self.lanes[slot % 2]
            self.groups.attach(slot, lane, slot, -1, bounded=bounded)
            self.granted[slot] = 0

    @rule(slot=SLOTS)
    def detach(self, slot):
        attached = slot in self.attached()
        assert (self.groups.detach(slot) is not None) == attached

    @rule(count=st.integers(1, 4))
    def publish(self, count):
        self.tail += count

    @precondition(attached)
    @rule(data=st.data(), permits=st.sampled_from([1, 2, 5, 100]))
    def grant(self, data, permits):
        slot = data.draw(st.sampled_from(self.attached()))
        self.groups.grant(slot, permits)
        self.granted[slot] += permits

    @precondition(attached)
    @rule(data=st.data(), ahead=st.integers(1, 6), cumulative=st.booleans())
    def ack(self, data, ahead, cumulative):
        slot = data.draw(st.sampled_from(self.attached()))
        ordinal = min(self.cursors.acked[slot] + ahead, self.tail)
        if cumulative:
            self.cursors.ack_cumulative(slot, ordinal)
        else:
            self.cursors.ack(slot, ordinal)
        if ordinal > self.groups.sent[slot]:
            self.groups.overtaken(slot)
        self.groups.acked(slot)

    @precondition(attached)
    @rule(data=st.data(), count=st.booleans())
    def rewind(self, data, count):
        self.groups.rewind(data.draw(st.sampled_from(self.attached())), count=count)

    @precondition(attached)
    @rule(data=st.data(), ordinals=st.lists(st.integers(1, 12), max_size=4))
    def replay(self, data, ordinals):
        self.groups.replay(data.draw(st.sampled_from(self.attached())), ordinals)

    @precondition(attached)
    @rule(data=st.data(), epoch=st.sampled_from([-1, 3]))
    def change_epoch(self, data, epoch):
        self.groups.set_epoch(data.draw(st.sampled_from(self.attached())), epoch)

    @rule(number=st.integers(0, 1), count_max=st.integers(1, 3), messages=st.integers(1, 3))
    def serve_a_group(self, number, count_max, messages):
        lane = self.lanes[number]
        key = lane.front(self.tail)
        if key is not None:
            slots = self.groups.take(lane, key, count_max)
            self.groups.advance(lane, slots, key[1], key[0] + 1, messages, 10)

    @rule(number=st.integers(0, 1))
    def serve_one_alone(self, number):
        slot = next(iter(self.lanes[number].solos), None)
        if slot is not None:
            ordinal = self.groups.wanted_alone(slot, self.tail)
            if ordinal is not None:
                self.groups.sent_alone(slot, ordinal, 1, 10)

    @invariant()
    def each_is_where_its_state_says(self):
        groups = self.groups
        in_groups = {}
        for lane in self.lanes:
            for key, members in lane.groups.items():
                assert members
                for slot in members:
                    assert slot not in in_groups
                    in_groups[slot] = (lane, key)
        alone = {slot: lane for lane in self.lanes for slot in lane.solos}
        for slot, state in enumerate(groups._states):
            lane = groups.lanes[slot]
            assert (state == ABSENT) == (lane is None)
            assert (state == IN_STEP) == (slot in in_groups)
            assert (state == ALONE) == (slot in alone)
            if state == IN_STEP:
                assert in_groups[slot] == (lane, (groups.sent[slot], groups.epochs[slot]))
            elif state == ALONE:
                assert alone[slot] is lane
            elif state == DRY:
                assert groups.permits[slot] <= 0
            elif state == BLOCKED:
                assert groups.unacked(slot) > UNACKED_MAX // 2
            if state in (IN_STEP, ALONE):
                assert groups.permits[slot] > 0

    @invariant()
    def what_is_counted_is_there(self):
        groups = self.groups
        assert groups.blocked == groups._states.count(BLOCKED)
        parked = [slot for slot, state in enumerate(groups._states) if state in (DRY, BLOCKED)]
        assert sorted(groups.parked_slots()) == parked
        for slot in self.attached():
            assert groups.messages_out(slot) == self.granted[slot] - groups.permits[slot]
        for lane in self.lanes:
            assert lane.members == sum(groups.lanes[slot] is lane for slot in self.attached())


TestConsumers = Consumers.TestCase
TestConsumers.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
