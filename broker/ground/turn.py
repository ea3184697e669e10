"""The end of a turn of the event loop: append, hand to storage, flush.

A turn is the work for one chunk of a connection, or for one finished group of a journal. Its
effects are collected and carried out together when the turn ends, in this order:

1. Topics append the messages published in the turn, each as one run.
2. All appended records, and others added meanwhile, are handed to the journals: one group. Only
   this step kicks storage, once, however many topics have appended. A bookie arranges the kick by
   itself for what is added outside of turns (`bookie.api.Turn`).
3. All output is sent, with one system call for each connection.

So the disk works while answers are sent, and one publish costs as many calls as a thousand. Each
step is done even if an earlier one failed, and a failure of one topic or connection does not
affect the others. If storage fails in step 2, all topics of the turn get to know.

Work that has too much output for one turn is done in steps, each of which is a turn
(`run_steps`). Other output that is put outside of turns (by tasks and timers) is sent by the task
`run`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import structlog
import trio

from runtime.watchdog import callback_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.topic_name import TopicName

log = structlog.get_logger()


class PublishedTo(Protocol):
    """A topic that took messages in this turn."""

    @property
    def name(self) -> TopicName:
        """Its name, for error reports."""

    def append_published(self) -> None:
        """Append the messages it took or, without storage, deliver them."""

    def storage_failed(self, error: Exception) -> None:
        """What it has appended could not be handed to storage, or not all of it."""


class Output(Protocol):
    """A connection that has something to send."""

    @property
    def peer(self) -> str:
        """`host:port` of the other side."""

    def flush(self) -> None:
        """Send what can be sent now."""

    def fail(self, reason: str) -> None:
        """Give up, and close this connection."""


def _nothing() -> None:
    """A broker without storage of its own, in tests."""


def _never() -> bool:
    return False


@final
class Turns:
    """The turns of one broker. A `bookie.api.Turn`, because a finished journal group is one."""

    __slots__ = (
        "_appended",
        "_outputs",
        "_published",
        "_wake",
        "_woken",
        "call_in_turns",
        "has_steps",
        "in_turn",
        "kick_storage",
        "on_published",
    )

    def __init__(self) -> None:
        self.in_turn = False
        """Within a turn adds need not arrange that they are written, because its end does."""
        self.kick_storage: Callable[[], None] = _nothing
        """Hands all added records to the journals. Set by the owner of the storage."""
        self.on_published: Callable[[], None] = _nothing
        """Called when a turn has brought messages. Set by the owner of the rounds of heavy work."""
        self.call_in_turns: Callable[[Callable[[], bool]], None] | None = None
        """Calls in each turn of the loop until the call returns False. Set by the owner of the
        loop's readers. None: tasks do such work."""
        self.has_steps: Callable[[], bool] = _never
        """Whether long work waits for its next step, so that a turn should be short. Set by the
        owner of the loop's readers."""
        self._published: list[PublishedTo] = []
        self._appended: list[PublishedTo] = []
        """The topics that have appended, until that is handed to storage."""
        self._outputs: list[Output] = []
        self._woken = False
        self._wake = trio.Event()

    def run_steps(self, step: Callable[[], bool], nursery: trio.Nursery) -> None:
        """Call the step until it returns False, each time as a turn of its own, and let everything
        else run in between. `nursery`: for a task, where the loop's readers cannot call."""
        steps = _Steps(self, step)
        if self.call_in_turns is None:
            nursery.start_soon(steps.run)
        else:
            self.call_in_turns(steps.call)

    def published_to(self, topic: PublishedTo) -> None:
        """The topic took its first message of this turn."""
        self._published.append(topic)

    def has_output(self, output: Output) -> None:
        """The connection has something to send, and had nothing before."""
        self._outputs.append(output)
        if not self.in_turn and not self._woken:
            self._woken = True
            self._wake.set()

    def begin_turn(self) -> None:
        """Work begins that ends with `end_turn`, without an await in between."""
        self.in_turn = True

    def end_turn(self) -> None:
        """Append, hand to storage, flush.

        Raises: ExceptionGroup: of the topics that failed, when everything else is done. Their lost
        messages were never acknowledged: the connection whose turn it is ends with this error, and
        its client publishes again.
        """
        try:
            if self._published:
                self._append()
        finally:
            self.in_turn = False
            try:
                self.kick_storage()
            except Exception as error:
                if not self._appended:
                    raise
                self._storage_failed(error)
            finally:
                self._appended = []
                self.flush()

    def _append(self) -> None:
        self.on_published()
        failures: list[Exception] = []
        while self._published:
            published, self._published = self._published, []
            self._appended += published
            for topic in published:
                try:
                    topic.append_published()
                except Exception as error:
                    error.add_note(f"of {topic.name.full}")
                    failures.append(error)
        if failures:
            raise ExceptionGroup("topics could not take what was published", failures)

    def _storage_failed(self, error: Exception) -> None:
        """Logged here because a topic without storage has no fault to report."""
        log.error("cannot hand to storage what a turn has added", exc_info=error)
        for topic in self._appended:
            try:
                topic.storage_failed(error)
            except Exception as failure:
                log.error("cannot refuse publishes", topic=topic.name.full, exc_info=failure)

    def flush(self) -> None:
        """Send pending output everywhere, repeatedly while flushing produces new output. A
        connection that fails is closed, and the output of others is still sent."""
        while self._outputs:
            outputs, self._outputs = self._outputs, []
            for output in outputs:
                try:
                    output.flush()
                except Exception as error:
                    self.cannot_send(output, error)

    def cannot_send(self, output: Output, error: Exception) -> None:
        """An output has failed in an unforeseen way: close its connection."""
        log.error("cannot send, closing", peer=output.peer, exc_info=error)
        output.fail(f"sending failed: {type(error).__name__}: {error}")

    async def run(self) -> None:
        """Flush output put outside of turns, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            self._woken = False
            self.flush()


@final
class _Steps:
    """Work of which each step is a turn."""

    __slots__ = ("_step", "_turns")

    def __init__(self, turns: Turns, step: Callable[[], bool]) -> None:
        self._turns = turns
        self._step = step

    def call(self) -> bool:
        """The next step. Returns whether there are more."""
        self._turns.begin_turn()
        try:
            return self._step()
        finally:
            self._turns.end_turn()

    async def run(self) -> None:
        """All steps, with other tasks in between."""
        while self.call():
            await trio.lowlevel.checkpoint()

    def what_ran(self) -> str:
        """For the watchdog of the loop."""
        return callback_name(self._step)
