"""The minimum against a model that scans, and every way a virtual cursor can move."""

from __future__ import annotations

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.topics.broadcast.virtual_cursors import CHUNK_SLOTS, VirtualCursors

NAMES = [f"c{number}" for number in range(6)]
TAIL = 12


class Model(RuleBasedStateMachine):
    """The acks of each name, as plain sets."""

    def __init__(self):
        super().__init__()
        self.cursors = VirtualCursors()
        self.acked = {}
        self.left = {}
        self.deadlines = {}
        self.now = 0.0

    def position(self, name):
        at = 0
        while at + 1 in self.acked[name]:
            at += 1
        return at

    def settle(self, name):
        at = self.position(name)
        self.left[name] = {
            ordinal: bits
            for ordinal, bits in self.left[name].items()
            if ordinal > at and ordinal not in self.acked[name]
        }

    @rule(name=st.sampled_from(NAMES), start=st.integers(0, TAIL))
    def join(self, name, start):
        if name in self.acked:
            assert self.cursors.slot_of(name) is not None
            return
        self.cursors.join(name, start)
        self.acked[name] = set(range(1, start + 1))
        self.left[name] = {}

    @precondition(lambda self: self.acked)
    @rule(data=st.data(), ordinal=st.integers(0, TAIL), how=st.sampled_from("icbs"))
    def move(self, data, ordinal, how):
        name = data.draw(st.sampled_from(sorted(self.acked)))
        slot = self.cursors.slot_of(name)
        if how == "i" and ordinal:
            self.cursors.ack(slot, ordinal)
            self.acked[name].add(ordinal)
        elif how == "c":
            self.cursors.ack_cumulative(slot, ordinal)
            self.acked[name] |= set(range(1, ordinal + 1))
        elif how == "b" and ordinal:
            remaining = data.draw(st.integers(0, 7))
            whole = self.cursors.ack_batch(slot, ordinal, remaining)
            if ordinal not in self.acked[name]:
                bits = self.left[name].get(ordinal, 7) & remaining
                self.left[name][ordinal] = bits
                if not bits:
                    self.acked[name].add(ordinal)
            assert whole == (ordinal in self.acked[name])
        elif how == "s":
            self.cursors.seek(slot, ordinal)
            self.acked[name] = set(range(1, ordinal + 1))
            self.left[name] = {}
        self.settle(name)

    @rule(ordinal=st.integers(1, TAIL))
    def ack_by_many(self, ordinal):
        slots = array("i", [self.cursors.slot_of(name) for name in self.acked])
        for slot in self.cursors.ack_next_of(slots, ordinal, array("q", [TAIL] * 9)):
            self.cursors.ack(slot, ordinal)
        for name in self.acked:
            self.acked[name].add(ordinal)
            self.settle(name)

    @precondition(lambda self: self.acked)
    @rule(data=st.data(), seconds=st.integers(1, 5))
    def leave(self, data, seconds):
        name = data.draw(st.sampled_from(sorted(self.acked)))
        self.deadlines[name] = self.now + seconds
        self.cursors.detach(self.cursors.slot_of(name), self.deadlines[name])

    @precondition(lambda self: self.deadlines)
    @rule(data=st.data())
    def come_back(self, data):
        name = data.draw(st.sampled_from(sorted(self.deadlines)))
        del self.deadlines[name]
        self.cursors.attach(self.cursors.slot_of(name))

    @rule(seconds=st.integers(0, 4))
    def time_passes(self, seconds):
        self.now += seconds
        gone = {name for name, deadline in self.deadlines.items() if deadline <= self.now}
        slots = {self.cursors.slot_of(name) for name in gone}
        assert set(self.cursors.expire(self.now)) == slots
        for name in gone:
            del self.acked[name], self.left[name], self.deadlines[name]

    @precondition(lambda self: self.acked)
    @rule(data=st.data())
    def unsubscribe(self, data):
        name = data.draw(st.sampled_from(sorted(self.acked)))
        self.cursors.drop(self.cursors.slot_of(name))
        del self.acked[name], self.left[name]
        self.deadlines.pop(name, None)

    @invariant()
    def same_as_scanning(self):
        cursors = self.cursors
        positions = [self.position(name) for name in self.acked]
        assert cursors.minimum == min(positions, default=None)
        assert cursors.maximum == max(positions, default=None)
        assert len(cursors) == len(self.acked)
        assert cursors.detached == len(self.deadlines)
        assert cursors.behind(5) == sum(position < 5 for position in positions)
        for name in self.acked:
            slot = cursors.slot_of(name)
            assert cursors.acked[slot] == self.position(name)
            for ordinal in range(1, TAIL + 1):
                assert cursors.is_acked(slot, ordinal) == (ordinal in self.acked[name])
                assert cursors.remaining(slot, ordinal) == self.left[name].get(ordinal)
            ahead = [*self.acked[name], *self.left[name], 0]
            assert cursors.ragged_up_to(slot) == max(ahead)


Model.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestModel = Model.TestCase


def test_a_lasting_laggard_costs_no_memory_per_entry():
    cursors = VirtualCursors()
    cursors.join("stuck", 0)
    busy = cursors.join("busy", 0)
    for ordinal in range(1, 5_000):
        cursors.ack(busy, ordinal)
    assert cursors.minimum == 0
    assert len(cursors._heap) < 200


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_slots_are_reused_lowest_first(drops):
    cursors = VirtualCursors()
    slots = [cursors.join(f"n{number}", 0) for number in range(4)]
    for round_number, which in enumerate(drops):
        cursors.drop(slots[which])
        slots[which] = cursors.join(f"again{round_number}", 0)
    assert sorted(slots) == [0, 1, 2, 3]
    assert len(cursors.names) == 4


def test_only_chunks_that_changed_are_marked():
    cursors = VirtualCursors()
    for number in range(2 * CHUNK_SLOTS + 1):
        cursors.join(f"n{number}", 0)
    cursors.changed_names.clear()
    cursors.changed_positions.clear()
    cursors.ack(CHUNK_SLOTS, 1)
    assert (cursors.changed_names, cursors.changed_positions) == (set(), {1})
    cursors.ack(CHUNK_SLOTS, 1)
    cursors.drop(0)
    assert (cursors.changed_names, cursors.changed_positions) == ({0}, {0, 1})
