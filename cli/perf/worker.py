"""One process of the load generator: many connections on one epoll, no event loop library.

The process gets orders through a pipe ("go", "resume", "stop") and reports through counters in
shared memory, which cost nothing to read, and once, at the end, through the pipe.

There is one receive buffer. Each time a connection is readable it is read once, its complete frames
are handled in place, and the output for them (acknowledgements) is sent at once. One read takes as
much as client libraries read at once, so that acknowledgements reach the broker in as small pieces
as theirs. The connection keeps an unfinished frame and puts it before the next data it receives.
"""

from __future__ import annotations

import errno
import gc
import re
import select
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from cli.perf.consumers import Behaviour, ConsumerConnection, Tally
from cli.perf.frame_scanner import FrameScanner
from cli.perf.request_templates import ConsumerRequests, first_consumer_id
from cli.perf.samples import Recording, Samples
from cli.perf.target import NOTHING_NOW, decrypted_of
from protocol.errors import BrokerError, ProtocolError

if TYPE_CHECKING:
    import socket
    from collections.abc import MutableSequence
    from multiprocessing.connection import Connection

    from cli.perf.target import Target
    from protocol import pulsar_api_pb2 as pb

READ_BYTES: Final = 64 * 1024
"""The most that one read takes: six messages of 10 KB."""
BUFFER_BYTES: Final = 1024 * 1024
CONNECTING_MAX: Final = 200
"""Connections a process opens at once."""
RETRY_SECONDS: Final = 0.2
CONNECTED, SUBSCRIBED, FAILED, RECEIVED = range(4)
"""Counters of a process."""
COUNTERS: Final = 4
RECORDING_NAME: Final = re.compile(r"part-[0-9]+\.csv")
"""The names that `recording_path` gives."""


def recording_path(directory: str | Path, number: int) -> Path:
    """The file to which the process with this number writes its deliveries."""
    return Path(directory, f"part-{number}.csv")


def prepare_recordings(directory: str | Path) -> None:
    """Make the directory, and remove the recordings of an earlier run from it.

    That run may have had more processes, and a reader of the directory would take the remaining
    files for this run's. Other files stay. Raises: OSError.
    """
    Path(directory).mkdir(parents=True, exist_ok=True)
    for path in Path(directory).iterdir():
        if RECORDING_NAME.fullmatch(path.name):
            path.unlink()


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """The plan of one process."""

    target: Target
    topic: str
    subscription: str
    own: bool
    name_prefix: str
    sub_type: pb.CommandSubscribe.SubType
    metadata: dict[str, str]
    permits: int
    behaviour: Behaviour
    message_bytes_max: int
    connections: list[tuple[int, int]]
    """(number of its first consumer, number of consumers) of each."""
    distance: int = 1
    """From the number of a consumer to that of the next one of its connection."""
    recording_path: str = ""
    """The file to which every delivery is written at the end; empty: none."""
    recorded_from: int = 0
    """The sequence number of the first message that is written."""


@dataclass(slots=True)
class WorkerResult:
    """The results of one process."""

    connect_times_ns: list[int] = field(default_factory=list)
    subscribed_at_ns: int = 0
    """When its last consumer was subscribed, by the monotonic clock."""
    samples: Samples = field(default_factory=Samples)
    received: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    lost: int = 0
    lost_by_stuck: int = 0
    corrupt: int = 0
    foreign: int = 0
    frames_decoded: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    cpu_seconds: float = 0.0


@final
class _Link:
    """A socket and its consumers."""

    __slots__ = ("consumers", "decrypted", "is_open", "kept", "socket", "unsent", "writing")

    def __init__(self, consumers: ConsumerConnection, connection: socket.socket) -> None:
        self.consumers = consumers
        self.socket = connection
        self.decrypted = decrypted_of(connection)
        self.kept = b""
        self.unsent = b""
        self.is_open = False
        self.writing = True


@final
class Worker:
    """See the module docstring."""

    def __init__(
        self, plan: WorkerPlan, counters: MutableSequence[int], first_counter: int, pipe: Connection
    ) -> None:
        self._plan = plan
        self._counters = counters
        self._first_counter = first_counter
        self._pipe = pipe
        self._tally = Tally()
        self._samples = Samples()
        self._recording = Recording() if plan.recording_path else None
        self._scanner = FrameScanner()
        self._buffer = bytearray(max(BUFFER_BYTES, 4 * plan.message_bytes_max))
        self._view = memoryview(self._buffer)
        self._epoll = select.epoll()
        self._links: dict[int, _Link] = {}
        self._to_open: deque[ConsumerConnection] = deque(self._consumers())
        self._all = list(self._to_open)
        self._connecting = 0
        self._retry_at = 0.0

    def _consumers(self) -> list[ConsumerConnection]:
        plan = self._plan
        distance = plan.distance
        numbers = [
            range(first, first + count * distance, distance) for first, count in plan.connections
        ]
        first_id = first_consumer_id(1 + max(each[-1] for each in numbers))
        requests = ConsumerRequests(
            plan.topic,
            plan.subscription,
            own=plan.own,
            name_prefix=plan.name_prefix,
            sub_type=plan.sub_type,
            metadata=plan.metadata,
            permits=plan.permits,
            first_id=first_id,
        )
        return [
            ConsumerConnection(
                each,
                first_id,
                requests,
                plan.behaviour,
                self._tally,
                self._samples,
                self._recording,
            )
            for each in numbers
        ]

    def run(self) -> None:
        """Run until "stop", or until the other end of the pipe is closed."""
        gc.collect()
        gc.freeze()
        gc.disable()
        pipe = self._pipe
        pipe.send("ready")
        self._epoll.register(pipe.fileno(), select.EPOLLIN)
        going = False
        cpu_before = time.process_time()
        while True:
            for number, events in self._epoll.poll(RETRY_SECONDS, 256):
                if number != pipe.fileno():
                    link = self._links.get(number)
                    if link is not None:
                        self._on_events(link, events)
                    continue
                order = pipe.recv()
                if order == "stop":
                    result = self._result(pipe.recv())
                    result.cpu_seconds = time.process_time() - cpu_before
                    self._write_recording()
                    pipe.send(result)
                    self._close()
                    return
                if order == "resume":
                    self._resume_stuck()
                going = True
            if going:
                self._open_more()
                self._retry()
            self._publish_counters()

    # --- connections --------------------------------------------------------------------

    def _open_more(self) -> None:
        while self._to_open and self._connecting < CONNECTING_MAX:
            consumers = self._to_open.popleft()
            consumers.open(time.monotonic_ns(), self._plan.target.connect_frame())
            try:
                link = _Link(consumers, self._plan.target.begin())
            except OSError as error:
                name = errno.errorcode.get(error.errno or 0, "") or str(error)
                consumers.lost_connection(f"cannot connect: {name}")
                continue
            self._connecting += 1
            self._links[link.socket.fileno()] = link
            self._epoll.register(link.socket.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _on_events(self, link: _Link, events: int) -> None:
        try:
            if events & select.EPOLLOUT:
                self._send(link)
            if events & ~select.EPOLLOUT:
                self._receive(link)
        except (OSError, ProtocolError, BrokerError) as error:
            self._drop(link, str(error) or type(error).__name__)

    def _receive(self, link: _Link) -> None:
        self._receive_once(link)
        while link.decrypted():
            self._receive_once(link)

    def _receive_once(self, link: _Link) -> None:
        kept = link.kept
        offset = len(kept)
        if offset:
            self._buffer[:offset] = kept
        try:
            received = link.socket.recv_into(self._view[offset:], READ_BYTES)
        except NOTHING_NOW:
            return
        if not received:
            raise ConnectionError("the broker closed the connection")
        consumers = link.consumers
        consumers.now_ns = time.monotonic_ns()
        end = offset + received
        used = self._scanner.scan(self._buffer, end, consumers)
        link.kept = bytes(self._view[used:end]) if used < end else b""
        if not link.is_open and used:
            link.is_open = True
            self._connecting -= 1
        if consumers.out:
            self._send(link)

    def _send(self, link: _Link) -> None:
        out = link.consumers.out
        if out:
            link.unsent = b"".join((link.unsent, *out)) if link.unsent else b"".join(out)
            out.clear()
        data = link.unsent
        if data:
            try:
                sent = link.socket.send(data)
            except NOTHING_NOW:
                sent = 0
            link.unsent = data[sent:]
        if bool(link.unsent) != link.writing:
            link.writing = bool(link.unsent)
            wanted = select.EPOLLIN | (select.EPOLLOUT if link.writing else 0)
            self._epoll.modify(link.socket.fileno(), wanted)

    def _drop(self, link: _Link, reason: str) -> None:
        if not link.is_open:
            self._connecting -= 1
        number = link.socket.fileno()
        self._epoll.unregister(number)
        del self._links[number]
        link.socket.close()
        link.consumers.lost_connection(reason)

    def _retry(self) -> None:
        now = time.monotonic()
        if now < self._retry_at:
            return
        self._retry_at = now + RETRY_SECONDS
        for link in list(self._links.values()):
            if link.consumers.waits_to_retry:
                link.consumers.retry()
                self._on_events(link, select.EPOLLOUT)

    def _resume_stuck(self) -> None:
        self._samples.ended = True
        if self._recording is not None:
            self._recording.ended = True
        for link in list(self._links.values()):
            link.consumers.resume_stuck()
            self._on_events(link, select.EPOLLOUT)

    def _publish_counters(self) -> None:
        tally, counters, first = self._tally, self._counters, self._first_counter
        counters[first + CONNECTED] = tally.connected
        counters[first + SUBSCRIBED] = tally.subscribed
        counters[first + FAILED] = tally.failed
        counters[first + RECEIVED] = tally.received

    # --- the end ------------------------------------------------------------------------

    def _result(self, published: int) -> WorkerResult:
        result = WorkerResult(samples=self._samples)
        for consumers in self._all:
            result.connect_times_ns += consumers.connect_times_ns
            deliveries = consumers.deliveries
            result.received += deliveries.received
            result.duplicated += deliveries.duplicated
            result.out_of_order += deliveries.out_of_order
            of_others = deliveries.lost(published, consumers.stuck | consumers.failed)
            result.lost += of_others
            result.lost_by_stuck += deliveries.lost(published, frozenset(consumers.failed)) - (
                of_others
            )
        result.subscribed_at_ns = self._tally.subscribed_at_ns
        result.corrupt = self._tally.corrupt + self._scanner.corrupt
        result.foreign = self._tally.foreign
        result.frames_decoded = self._scanner.decoded
        result.failures = self._tally.failures
        return result

    def _write_recording(self) -> None:
        if self._recording is not None:
            with open(self._plan.recording_path, "w", encoding="ascii") as file:
                file.write(Recording.HEADING)
                file.writelines(self._recording.lines(self._plan.recorded_from))

    def _close(self) -> None:
        for link in self._links.values():
            link.socket.close()
        self._epoll.close()


def main(
    plan: WorkerPlan, counters: MutableSequence[int], first_counter: int, pipe: Connection
) -> None:
    """The process's entry."""
    try:
        Worker(plan, counters, first_counter, pipe).run()
    except (EOFError, KeyboardInterrupt):
        return  # the command has ended or is ending, and reports why itself
