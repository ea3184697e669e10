"""No consumer of a share ever resumes after its last acknowledgement, whoever dies, and what it has
not acknowledged is still there."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.topics.follow.share_report import ShareReport

NAMES = ["a", "b", "c"]
names = st.sampled_from(NAMES)


def test_nothing_is_told_before_the_owner_has_admitted_the_share():
    report = ShareReport()
    assert report.next((1, 5)) is None
    report.attached((1, 2))
    assert report.next((1, 5)) == (1, 5)
    assert report.next((1, 5)) is None
    report.detached()
    assert report.next((1, 9)) is None
    report.attached((1, 5))
    assert report.next((1, 9)) == (1, 9)


def test_a_new_connection_tells_again_what_the_owner_has_forgotten():
    report = ShareReport()
    report.attached((1, 2))
    assert report.next((1, 7)) == (1, 7)
    report.detached()
    report.attached((1, 4))
    assert report.next((1, 7)) == (1, 7)


def test_nothing_overtakes_a_move_back():
    report = ShareReport()
    report.attached((1, 7))
    assert report.begin_move((1, 3))
    assert report.next((1, 8)) is None
    report.attached((1, 3))
    assert report.next((1, 8)) is None
    report.end_move()
    assert report.next((1, 3)) is None
    assert report.next((1, 4)) == (1, 4)


def test_a_move_that_the_owner_need_not_follow_is_known():
    report = ShareReport()
    report.attached((1, 3))
    assert not report.begin_move((1, 5))
    report.end_move()
    report.detached()
    assert report.begin_move((1, 5))


class Failovers(RuleBasedStateMachine):
    """A share of three consumers, its follower and the owner of the source; each may die at any
    time. Positions are those of one ledger. `acked` is what each consumer was last promised."""

    def __init__(self):
        super().__init__()
        self.tail = 0
        self.owner = self.owner_stored = 0
        self.first_held = 1
        self.acked = dict.fromkeys(NAMES, 0)
        self.stored = dict.fromkeys(NAMES, 0)
        self.main_stored = 0
        self.report = ShareReport()
        self.report.attached((1, 0))

    @property
    def slowest(self):
        return min(self.acked.values())

    @rule(count=st.integers(1, 5))
    def publish(self, count):
        self.tail += count

    @rule(name=names, share=st.floats(0, 1))
    def acknowledge(self, name, share):
        at = self.acked[name]
        self.acked[name] = at + round(share * (self.tail - at))

    @rule()
    def tell(self):
        told = self.report.next((1, self.slowest))
        if told is not None:
            self.owner = max(self.owner, told[1])

    @rule(name=names)
    def store_a_position(self, name):
        self.stored[name] = self.acked[name]

    @rule()
    def store_the_main_cursor(self):
        self.main_stored = self.slowest

    @rule()
    def owner_stores(self):
        self.owner_stored = self.owner

    @rule()
    def owner_frees_storage(self):
        # It is never ahead of what it has stored by more than its acks: see `owner_dies`.
        self.first_held = max(self.first_held, self.owner + 1)

    @rule(name=names, share=st.floats(0, 1), dies=st.sampled_from(["", "before", "between"]))
    def seek_back(self, name, share, dies):
        """Answered when owner, main cursor and position are stored. Who dies before that has
        promised nothing."""
        target = max(self.first_held - 1, round(share * self.acked[name]))
        lowers = target < self.slowest
        if lowers:
            first = self.report.begin_move((1, target))
            if not self.report.is_attached:
                self.report.end_move()
                return  # refused
            if dies == "before":
                self.follower_dies()
                return
            if first:
                self.owner = self.owner_stored = min(self.owner, target)
                self.report.attached((1, self.owner))
            assert self.report.next((1, self.tail)) is None
            if dies == "between":
                self.follower_dies()
                return
            self.main_stored = target
        self.stored[name] = self.acked[name] = target
        if lowers:
            self.report.end_move()

    @rule()
    def owner_dies(self):
        self.owner = max(self.owner_stored, self.first_held - 1)
        self.report.detached()

    @precondition(lambda self: not self.report.is_attached)
    @rule()
    def follower_finds_the_owner(self):
        self.report.attached((1, self.owner))

    @rule()
    def follower_dies(self):
        raised = max(self.main_stored, self.first_held - 1, self.owner)
        resumed = {name: max(self.stored[name], raised) for name in NAMES}
        for name in NAMES:
            assert resumed[name] <= self.acked[name]
        self.acked = resumed
        self.report = ShareReport()
        self.report.attached((1, self.owner))

    @invariant()
    def what_is_not_acknowledged_is_held(self):
        assert self.first_held <= self.slowest + 1

    @invariant()
    def the_owner_is_never_ahead_of_a_consumer(self):
        assert self.owner <= self.slowest


Failovers.TestCase.settings = settings(max_examples=200, stateful_step_count=40)
TestFailovers = Failovers.TestCase
