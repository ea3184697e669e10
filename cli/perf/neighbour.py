"""Measures the effect of a fan-out on other clients: end-to-end latency with it and without it.

A separate process publishes to its own topic and reads it back, and reads the topic of the fan-out
through an ordinary subscription, in addition to that of the many consumers. It gets orders through
a pipe and answers each order when it has been carried out:

    "alone"    a few messages on the topic of the fan-out, before it has other consumers
    "begin"    messages on its own topic at the requested rate, until
    "end"      the latencies since the order before

Latency is from the publish call to the receive that brought the whole message.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Final, final

from cli.perf.blocking_connection import BlockingConnection, ConnectionFailed
from cli.perf.payload import read
from cli.perf.publisher import Publisher
from cli.perf.samples import summary
from protocol import client
from protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

    from cli.perf.target import Target

RATIO_MAX: Final = 2.0
"""The latency with a fan-out may be at most double that without."""
SIZE_BYTES: Final = 1024
ALONE_MESSAGES: Final = 30
ALONE_INTERVAL_SECONDS: Final = 0.1
SUBSCRIPTION: Final = "neighbour"
ANSWER_SECONDS_MAX: Final = 60.0
_DRAIN_SECONDS: Final = 5.0
_PERMITS: Final = 1000
_CONSUMER_ID: Final = 1
_Type = pb.BaseCommand


@dataclass(frozen=True, slots=True)
class NeighbourPlan:
    """The settings of the process."""

    target: Target
    topic: str
    """Its own."""
    rate: float
    run_id: bytes
    """The run of its own messages."""
    beside: tuple[str, bytes] | None
    """Topic and run id of the fan-out at the same broker; None: nothing is read of it."""
    beside_size_bytes: int


@dataclass(slots=True)
class Latencies:
    """The latencies of the messages since the order before."""

    own_ns: list[int] = field(default_factory=list)
    beside_ns: list[int] = field(default_factory=list)
    unread: int = 0
    """Messages published on the own topic that have not arrived."""


@final
class OrdinaryConsumer:
    """One consumer in a subscription of its own; acknowledges each message."""

    def __init__(
        self, target: Target, topic: str, run_ids: tuple[bytes, ...], latencies: list[int]
    ) -> None:
        """Raises: ConnectionFailed, OSError."""
        self.latencies_ns = latencies
        self._run_ids = run_ids
        self._taken = 0
        self._connection = connection = BlockingConnection(target)
        connection.find_topic(topic)
        request = connection.next_request_id()
        connection.send(client.subscribe(topic, SUBSCRIPTION, _CONSUMER_ID, request))
        connection.wait_for(_Type.SUCCESS)
        connection.send(client.flow(_CONSUMER_ID, _PERMITS))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def fileno(self) -> int:
        """For the wait."""
        return self._connection.fileno()

    def take(self) -> None:
        """Handle the content of one receive.

        Raises: ConnectionFailed, OSError.
        """
        frames = self._connection.receive(0)
        now_ns = time.monotonic_ns()
        for command, body in frames:
            if command.type == _Type.CLOSE_CONSUMER:
                raise ConnectionFailed("the broker closed a consumer")
            if command.type != _Type.MESSAGE or body is None:
                continue
            for run_id in self._run_ids:
                published = read(body, run_id)
                if published is not None:
                    self.latencies_ns.append(now_ns - published.published_ns)
            self._connection.send(client.ack(_CONSUMER_ID, [command.message.message_id]))
            self._taken += 1
            if self._taken == _PERMITS // 2:
                self._taken = 0
                self._connection.send(client.flow(_CONSUMER_ID, _PERMITS // 2))


@final
class Neighbour:
    """The process; see the module docstring."""

    def __init__(self, plan: NeighbourPlan, pipe: Connection, stack: ExitStack) -> None:
        """Raises: ConnectionFailed, OSError."""
        self._plan = plan
        self._pipe = pipe
        self._stack = stack
        self._found = Latencies()
        self._publisher = stack.enter_context(
            Publisher(plan.target, plan.topic, plan.run_id, SIZE_BYTES)
        )
        self._own = OrdinaryConsumer(plan.target, plan.topic, (plan.run_id,), self._found.own_ns)
        stack.callback(self._own.close)
        self._beside: OrdinaryConsumer | None = None
        self._began = 0
        self._due = 0.0
        self._going = False

    def run(self) -> None:
        """Run until "stop"."""
        gc.collect()
        gc.freeze()
        gc.disable()
        self._pipe.send("ready")
        while True:
            self._turn(self._wait_seconds())
            if not self._pipe.poll():
                continue
            order = self._pipe.recv()
            if order == "stop":
                return
            if order == "alone":
                self._alone()
            elif order == "begin":
                self._going = True
                self._due = time.monotonic()
            else:
                self._going = False
                self._drain(self._publisher.published - self._began)
            self._answer()

    def _wait_seconds(self) -> float:
        return max(0.0, self._due - time.monotonic()) if self._going else 0.05

    def _turn(self, seconds_max: float) -> None:
        """Publish if it is due, and handle arrived messages, after a bounded wait."""
        if self._going and time.monotonic() >= self._due:
            self._publisher.publish()
            self._due += 1 / self._plan.rate
            seconds_max = self._wait_seconds()
        watched: list[Any] = [self._publisher, self._own, self._pipe]
        if self._beside is not None:
            watched.append(self._beside)
        readable: Sequence[object] = wait(watched, seconds_max)
        for each in (self._own, self._beside):
            if each is not None and each in readable:
                each.take()
        if self._publisher in readable:
            self._publisher.take(0)

    def _alone(self) -> None:
        """A few messages of the size of the fan-out's, on its topic."""
        if self._plan.beside is None:
            return
        target = self._plan.target
        topic, run_id = self._plan.beside
        run_ids = (run_id, self._plan.run_id)
        beside = OrdinaryConsumer(target, topic, run_ids, self._found.beside_ns)
        self._beside = beside
        self._stack.callback(beside.close)
        size = self._plan.beside_size_bytes
        with Publisher(target, topic, self._plan.run_id, size) as publisher:
            for _ in range(ALONE_MESSAGES):
                publisher.publish()
                end = time.monotonic() + ALONE_INTERVAL_SECONDS
                while (left := end - time.monotonic()) > 0:
                    self._turn(left)
            publisher.listen(0)

    def _drain(self, wanted: int) -> None:
        end = time.monotonic() + _DRAIN_SECONDS
        while len(self._found.own_ns) < wanted and time.monotonic() < end:
            self._turn(0.05)
        self._found.unread = wanted - len(self._found.own_ns)

    def _answer(self) -> None:
        """Return the results, and begin again."""
        found = self._found
        self._pipe.send(found)
        self._began = self._publisher.published
        self._found = Latencies()
        self._own.latencies_ns = self._found.own_ns
        if self._beside is not None:
            self._beside.latencies_ns = self._found.beside_ns


def main(plan: NeighbourPlan, pipe: Connection) -> None:
    """The process's entry."""
    try:
        with ExitStack() as stack:
            Neighbour(plan, pipe, stack).run()
    except (EOFError, KeyboardInterrupt):
        return  # the command has ended or is ending, and reports why itself
    except (ConnectionFailed, OSError) as error:
        pipe.send(str(error))


@final
class NeighbourProcess:
    """The process, seen from the run."""

    def __init__(self, plan: NeighbourPlan) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=main, args=(plan, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join(5.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def wait_ready(self) -> None:
        """Raises: ConnectionFailed."""
        self._take()

    def order(self, what: str) -> Latencies:
        """Give an order and wait until it has been done.

        Raises: ConnectionFailed.
        """
        self._pipe.send(what)
        answer = self._take()
        assert isinstance(answer, Latencies)
        return answer

    def _take(self) -> object:
        if not self._pipe.poll(ANSWER_SECONDS_MAX):
            raise ConnectionFailed("the neighbour's process does not answer")
        answer = self._pipe.recv()
        if isinstance(answer, str) and answer != "ready":
            raise ConnectionFailed(f"the neighbour: {answer}")
        return answer


@final
class Neighbourhood:
    """A neighbour's process and its results, phase by phase. A context manager."""

    def __init__(self, plan: NeighbourPlan, before_seconds: float) -> None:
        """`before_seconds`: how long its own topic is measured without the fan-out."""
        self.topic = plan.topic
        self._process = NeighbourProcess(plan)
        self._elsewhere = plan.beside is None
        self._rate = plan.rate
        self._before_seconds = before_seconds
        self._alone = self._before = self._beside = Latencies()

    def __enter__(self) -> Neighbourhood:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()

    def measure_alone(self) -> None:
        """The second subscription, without any other consumer.

        Raises: ConnectionFailed.
        """
        self._process.wait_ready()
        self._alone = self._process.order("alone")

    def measure_before(self, wait: Callable[[float], None]) -> None:
        """The other topic, while all consumers are connected and nothing is published to them. It
        continues until `end`.

        Raises: ConnectionFailed.
        """
        self._process.order("begin")
        wait(self._before_seconds)
        self._before = self._process.order("end")
        self._process.order("begin")

    def end(self) -> None:
        """The fan-out has ended.

        Raises: ConnectionFailed.
        """
        self._beside = self._process.order("end")

    def figures(self) -> dict[str, Any]:
        """For the report."""
        figures: dict[str, Any] = {
            "rate": self._rate,
            "on_another_broker": self._elsewhere,
            "ratio_max": RATIO_MAX,
            "unread": self._before.unread + self._beside.unread,
            "topic": comparison(self._before.own_ns, self._beside.own_ns),
        }
        if not self._elsewhere:
            second = comparison(self._alone.beside_ns, self._beside.beside_ns)
            figures["second subscription"] = second
        return figures


def comparison(before_ns: list[int], beside_ns: list[int]) -> dict[str, Any]:
    """Percentiles without and with the fan-out, in seconds, and their growth."""
    before = summary((value / 1e9, 1) for value in before_ns)
    beside = summary((value / 1e9, 1) for value in beside_ns)
    ratio = {}
    for name, value in beside.items():
        base = before[name]
        ratio[name] = value / base if value is not None and base else None
    return {
        "messages": [len(before_ns), len(beside_ns)],
        "before": before,
        "beside": beside,
        "ratio": ratio,
    }
