"""The end of a turn: append, hand to storage, flush; each whatever happens to the others."""

from __future__ import annotations

import pytest
import trio
from structlog.testing import capture_logs

from broker.ground.turn import Turns
from protocol.topic_name import TopicName
from runtime.watchdog import callback_name


class Steps:
    """Everything that takes part in turns, and what was done in which order."""

    def __init__(self):
        self.turns = Turns()
        self.turns.kick_storage = lambda: self.note("kick")
        self.done = []

    def note(self, what):
        self.done.append((what, self.turns.in_turn))

    def topic(self, name, fails=False, fails_to_refuse=False):
        return Topic(self, name, fails, fails_to_refuse)

    def output(self, name, fails=False):
        return Output(self, name, fails)


class Topic:
    def __init__(self, steps, name, fails, fails_to_refuse):
        self.name = TopicName.parse(name)
        self._steps = steps
        self._fails = fails
        self._fails_to_refuse = fails_to_refuse

    def append_published(self):
        self._steps.note(f"append {self.name.local_name}")
        if self._fails:
            raise ValueError("no ledger")

    def storage_failed(self, error):
        self._steps.note(f"{self.name.local_name}: {error}")
        if self._fails_to_refuse:
            raise ValueError("no refusal")


class Output:
    def __init__(self, steps, name, fails):
        self.peer = name
        self.failed = ""
        self.then = lambda: None
        self._steps = steps
        self._fails = fails

    def flush(self):
        self._steps.note(f"flush {self.peer}")
        self.then()
        if self._fails:
            raise ValueError("no socket")

    def fail(self, reason):
        self.failed = reason


def test_a_turn_ends_in_one_order_however_things_came():
    steps = Steps()
    steps.turns.begin_turn()
    steps.turns.has_output(steps.output("x"))
    steps.turns.published_to(steps.topic("a"))
    steps.turns.has_output(steps.output("y"))
    steps.turns.published_to(steps.topic("b"))
    assert steps.done == []
    steps.turns.end_turn()
    # While topics append, storage is told that the turn goes on: it is kicked once, after all.
    assert steps.done == [
        ("append a", True),
        ("append b", True),
        ("kick", False),
        ("flush x", False),
        ("flush y", False),
    ]
    steps.turns.begin_turn()
    steps.turns.end_turn()
    assert steps.done[5:] == [("kick", False)]


def test_output_of_a_flush_leaves_in_the_same_turn():
    steps = Steps()
    first, second = steps.output("x"), steps.output("y")
    first.then = lambda: steps.turns.has_output(second)
    steps.turns.begin_turn()
    steps.turns.has_output(first)
    steps.turns.end_turn()
    assert [what for what, _ in steps.done] == ["kick", "flush x", "flush y"]


def test_a_topic_that_fails_is_told_of_when_all_others_are_served():
    steps = Steps()
    steps.turns.begin_turn()
    steps.turns.published_to(steps.topic("bad", fails=True))
    steps.turns.published_to(steps.topic("good"))
    steps.turns.has_output(steps.output("x"))
    with pytest.raises(ExceptionGroup) as caught:
        steps.turns.end_turn()
    [error] = caught.value.exceptions
    assert error.__notes__ == ["of persistent://public/default/bad"]
    assert [what for what, _ in steps.done] == [
        "append bad",
        "append good",
        "kick",
        "flush x",
    ]
    assert not steps.turns.in_turn


def test_an_output_that_fails_ends_alone_and_storage_that_fails_keeps_none_back():
    steps = Steps()
    bad, good = steps.output("bad", fails=True), steps.output("good")

    def fail():
        raise ValueError("no disk")

    steps.turns.kick_storage = fail
    steps.turns.begin_turn()
    steps.turns.has_output(bad)
    steps.turns.has_output(good)
    with capture_logs() as logs, pytest.raises(ValueError, match="no disk"):
        steps.turns.end_turn()
    assert [what for what, _ in steps.done] == ["flush bad", "flush good"]
    assert "no socket" in bad.failed
    assert not good.failed
    assert [line["peer"] for line in logs] == ["bad"]


def test_storage_that_fails_is_a_fault_of_each_topic_of_the_turn_and_of_no_later_turn():
    steps = Steps()

    def fail():
        raise ValueError("no disk")

    steps.turns.kick_storage = fail
    steps.turns.begin_turn()
    steps.turns.has_output(steps.output("x"))
    steps.turns.published_to(steps.topic("a", fails_to_refuse=True))
    steps.turns.published_to(steps.topic("b"))
    with capture_logs() as logs:
        steps.turns.end_turn()
    assert [str(line["exc_info"]) for line in logs] == ["no disk", "no refusal"]
    assert [what for what, _ in steps.done] == [
        "append a",
        "append b",
        "a: no disk",
        "b: no disk",
        "flush x",
    ]
    steps.turns.begin_turn()
    with pytest.raises(ValueError, match="no disk"):
        steps.turns.end_turn()
    assert len(steps.done) == 5


async def test_output_outside_of_turns_leaves_without_one():
    steps = Steps()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(steps.turns.run)
        for name in ("x", "y"):
            steps.turns.has_output(steps.output(name))
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert [what for what, _ in steps.done] == ["flush x", "flush y"]


def test_only_a_turn_with_messages_tells_that_some_were_published():
    steps = Steps()
    told = []
    steps.turns.on_published = lambda: told.append(True)
    steps.turns.begin_turn()
    steps.turns.has_output(steps.output("x"))
    steps.turns.end_turn()
    assert told == []
    steps.turns.begin_turn()
    steps.turns.published_to(steps.topic("a"))
    steps.turns.published_to(steps.topic("b"))
    steps.turns.end_turn()
    assert told == [True]


@pytest.mark.parametrize("in_loop", [True, False])
async def test_each_step_of_long_work_is_a_turn_and_others_run_in_between(in_loop):
    steps = Steps()
    outputs = iter([steps.output(each) for each in "xyz"])

    def step():
        output = next(outputs, None)
        if output is None:
            return False
        steps.note("step")
        steps.turns.has_output(output)
        return True

    called = []
    if in_loop:
        steps.turns.call_in_turns = called.append
    async with trio.open_nursery() as nursery:
        steps.turns.run_steps(step, nursery)
        assert steps.done == []
        if in_loop:
            assert callback_name(called[0]) == "step"
            while called[0]():
                pass
        else:
            for _ in range(2):
                await trio.lowlevel.checkpoint()
            assert 3 <= len(steps.done) < 9  # not all at once
    flushed = [("flush x", False), ("flush y", False), ("flush z", False)]
    expected = [turn for each in flushed for turn in (("step", True), ("kick", False), each)]
    assert steps.done == [*expected, ("kick", False)]


async def test_a_step_that_fails_ends_the_work_and_its_turn():
    steps = Steps()
    called = []
    steps.turns.call_in_turns = called.append

    def fail():
        steps.turns.has_output(steps.output("x"))
        raise ValueError("no such entry")

    async with trio.open_nursery() as nursery:
        steps.turns.run_steps(fail, nursery)
        with pytest.raises(ValueError, match="no such entry"):
            called[0]()
    assert not steps.turns.in_turn
    assert [what for what, _ in steps.done] == ["kick", "flush x"]
