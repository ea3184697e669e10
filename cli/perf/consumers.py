"""The consumers of one connection: bytes in, bytes out.

Pure: time is an argument, nothing is sent. Each consumer sends what a client library sends for it:
PARTITIONED_METADATA, LOOKUP, SUBSCRIBE, FLOW, each after the answer to the previous one. At most
`window` consumers of a connection are in progress at once. A retryable refusal is tried again; any
other is counted by its text, and the consumer has failed.

Messages are acknowledged one by one, as individual ACK commands. Those for the messages of one
receive are written together.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from cli.perf.deliveries import Deliveries
from cli.perf.frame_scanner import Meaning
from cli.perf.payload import read
from cli.perf.request_templates import REQUEST_BASE, AckTemplate
from protocol import client
from protocol import pulsar_api_pb2 as pb
from protocol.decoding import COMMAND_FIELDS
from protocol.errors import RemoteProtocolError
from protocol.templates import varint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.perf.request_templates import ConsumerRequests
    from cli.perf.samples import Recording, Samples
    from protocol.position import Position

_METADATA, _LOOKUP, _SUBSCRIBE = 1, 2, 3
_LATER: Final = frozenset({pb.TooManyRequests, pb.ServiceNotReady})
_Type = pb.BaseCommand


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How all consumers of a run behave."""

    run_id: bytes
    window: int
    lookups: bool
    acks: bool
    stuck_percent: float = 0.0
    """Percentage of consumers that give no permits until the order to resume."""
    unacked_percent: float = 0.0
    """Percentage of consumers that never acknowledge."""

    def is_stuck(self, index: int) -> bool:
        """Whether this consumer of the run gives no permits."""
        return _one_of(index, self.stuck_percent)

    def acknowledges(self, index: int) -> bool:
        """Whether this consumer acknowledges. Those that do not are distinct from the stuck ones,
        as far as there are enough."""
        return self.acks and not _one_of(index + 1, self.unacked_percent)


def _one_of(index: int, percent: float) -> bool:
    return int((index + 1) * percent / 100 + 1e-9) != int(index * percent / 100 + 1e-9)


@final
class Tally:
    """The progress of a process so far, over all of its connections."""

    __slots__ = (
        "connected",
        "corrupt",
        "failed",
        "failures",
        "foreign",
        "received",
        "subscribed",
        "subscribed_at_ns",
    )

    def __init__(self) -> None:
        self.connected = 0
        self.subscribed = 0
        self.subscribed_at_ns = 0
        """When the latest of them was."""
        self.failed = 0
        self.received = 0
        self.corrupt = 0
        self.foreign = 0
        """Messages that are not of this run."""
        self.failures: Counter[str] = Counter()


@final
class Answer(Meaning):
    """A request of this step was granted."""

    def __init__(self, step: int) -> None:
        self.step = step


@final
class Entry(Meaning):
    """A message of this run."""

    def __init__(self, sequence: int, published_ns: int, position: Position) -> None:
        self.sequence = sequence
        self.published_ns = published_ns
        self.position = position
        self.verify_all = sequence == 0
        self._acks: dict[int, AckTemplate] = {}

    def acks(self, consumers: Sequence[bytes]) -> bytes:
        """ACK of the entry by these consumers."""
        size = len(consumers[0])
        template = self._acks.get(size)
        if template is None:
            template = self._acks[size] = AckTemplate(self.position, size)
        return template.acks(consumers)


class _Ignored(Meaning):
    """Nothing to do."""


_ANSWERS: Final = {step: Answer(step) for step in (_METADATA, _LOOKUP, _SUBSCRIBE)}
_IGNORED: Final = _Ignored()


@final
class ConsumerConnection:
    """See the module docstring. `out` is the output to be sent."""

    def __init__(
        self,
        numbers: range,
        first_consumer_id: int,
        requests: ConsumerRequests,
        behaviour: Behaviour,
        tally: Tally,
        samples: Samples,
        recording: Recording | None = None,
    ) -> None:
        """`numbers`: those of its consumers in the whole run, from which their ids follow."""
        self.out: list[bytes] = []
        self.now_ns = 0
        count = len(numbers)
        self.deliveries = Deliveries(count)
        self.connect_times_ns: list[int] = []
        self.failed: set[int] = set()
        self._count = count
        self._numbers = numbers
        self._consumers = [varint(first_consumer_id + number) for number in numbers]
        self._indexes = {consumer: index for index, consumer in enumerate(self._consumers)}
        self._requests = requests
        self._behaviour = behaviour
        self._tally = tally
        self._samples = samples
        self._recording = recording
        self._next = 0
        self._under_way = 0
        self._begun_ns = [0] * count
        self._pending: dict[bytes, int] = {}
        self._later: list[tuple[int, int]] = []
        self.stuck = frozenset(
            index for index, number in enumerate(numbers) if behaviour.is_stuck(number)
        )
        silent = frozenset(
            index for index, number in enumerate(numbers) if not behaviour.acknowledges(number)
        )
        self._acks_any = len(silent) < count
        self._silent_ids = frozenset(self._consumers[index] for index in silent)

    # --- subscribing --------------------------------------------------------------------

    def open(self, now_ns: int, connect_frame: bytes) -> None:
        """The connection is being opened with this CONNECT; its first consumers begin now."""
        self._begun_ns[: self._behaviour.window] = [now_ns] * min(
            self._count, self._behaviour.window
        )
        self.out.append(connect_frame)

    def resume_stuck(self) -> None:
        """Consumers without permits give some."""
        flow, consumers = self._requests.flow, self._consumers
        self.out.extend(flow(consumers[index]) for index in sorted(self.stuck - self.failed))

    def retry(self) -> None:
        """Send retryable refused requests again."""
        again, self._later = self._later, []
        for step, index in again:
            self._ask(step, [index])

    @property
    def waits_to_retry(self) -> bool:
        """Whether `retry` would do something."""
        return bool(self._later)

    def _start_more(self) -> None:
        first = self._next
        last = min(self._count, first + self._behaviour.window - self._under_way)
        if last <= first:
            return
        self._next = last
        self._under_way += last - first
        begun_ns = self._begun_ns
        for index in range(first, last):
            if not begun_ns[index]:
                begun_ns[index] = self.now_ns
        self._ask(_METADATA if self._behaviour.lookups else _SUBSCRIBE, range(first, last))

    def _ask(self, step: int, indexes: Sequence[int]) -> None:
        base, made = step * REQUEST_BASE, self._requests
        requests = [varint(base + index) for index in indexes]
        self._pending.update(zip(requests, indexes, strict=True))
        if step == _METADATA:
            self.out.extend(map(made.metadata, requests))
        elif step == _LOOKUP:
            self.out.extend(map(made.lookup, requests))
        else:
            consumers = map(self._consumers.__getitem__, indexes)
            numbers = map(self._numbers.__getitem__, indexes)
            self.out.extend(map(made.subscribe, consumers, requests, numbers))

    def _granted(self, step: int, requests: Sequence[bytes]) -> None:
        pending = self._pending
        try:
            indexes = [pending.pop(request) for request in requests]
        except KeyError:
            raise RemoteProtocolError("an answer to a request that was not made") from None
        if step != _SUBSCRIBE:
            self._ask(step + 1, indexes)
            return
        consumers, begun_ns, now_ns = self._consumers, self._begun_ns, self.now_ns
        stuck = self.stuck
        active = [index for index in indexes if index not in stuck] if stuck else indexes
        self.out.extend(map(self._requests.flow, map(consumers.__getitem__, active)))
        self.connect_times_ns += [now_ns - begun_ns[index] for index in indexes]
        self._under_way -= len(indexes)
        self._tally.subscribed += len(indexes)
        self._tally.subscribed_at_ns = now_ns
        self._start_more()

    def _refused(self, request_id: int, error: int, message: str) -> None:
        step, index = divmod(request_id, REQUEST_BASE)
        if self._pending.pop(varint(request_id), None) is None:
            raise RemoteProtocolError(f"the broker reports: {message}")
        if error in _LATER:
            self._later.append((step, index))
            return
        self._fail(index, f"{pb.ServerError.Name(error)}: {message}")

    def _fail(self, index: int, reason: str) -> None:
        self.failed.add(index)
        self._tally.failed += 1
        self._tally.failures[reason] += 1
        self._under_way -= 1
        self._start_more()

    def lost_connection(self, reason: str) -> None:
        """The connection has ended. Its consumers that were not subscribed yet have failed."""
        waiting = self._count - len(self.connect_times_ns) - len(self.failed)
        self._tally.failed += waiting
        self._tally.failures[reason] += max(1, waiting)
        self._next = self._count
        self._under_way = 0

    # --- FrameTarget --------------------------------------------------------------------

    def meaning(self, command: pb.BaseCommand, body: bytes) -> Meaning | None:
        """See FrameTarget."""
        kind = command.type
        if kind == _Type.MESSAGE:
            published = self._read(body)
            if published is None:
                return None
            where = command.message.message_id
            return Entry(*published, (where.ledgerId, where.entryId))
        if kind == _Type.SUCCESS:
            return _ANSWERS[_SUBSCRIBE]
        if kind == _Type.PARTITIONED_METADATA_RESPONSE:
            content = command.partitionMetadataResponse
            granted = content.response == pb.CommandPartitionedTopicMetadataResponse.Success
            return _ANSWERS[_METADATA] if granted and not content.partitions else None
        if kind == _Type.LOOKUP_RESPONSE:
            connect = pb.CommandLookupTopicResponse.Connect
            found = command.lookupTopicResponse.response == connect
            return _ANSWERS[_LOOKUP] if found else None
        return _IGNORED

    def _read(self, body: bytes) -> tuple[int, int] | None:
        try:
            return read(body, self._behaviour.run_id)
        except RemoteProtocolError:
            self._tally.corrupt += 1
            return None

    def on_run(self, meaning: Meaning, ids: Sequence[bytes]) -> None:
        """See FrameTarget."""
        if isinstance(meaning, Entry):
            self._deliver(meaning, ids)
        elif isinstance(meaning, Answer):
            self._granted(meaning.step, ids)

    def _deliver(self, entry: Entry, ids: Sequence[bytes]) -> None:
        try:
            indexes = list(map(self._indexes.__getitem__, ids))
        except KeyError:
            raise RemoteProtocolError("a message for a consumer that is not there") from None
        before = self.deliveries.received
        self.deliveries.take(indexes, entry.sequence)
        self._tally.received += self.deliveries.received - before
        self._samples.add(entry.sequence, self.now_ns - entry.published_ns, len(indexes))
        if self._recording is not None:
            numbers = map(self._numbers.__getitem__, indexes)
            self._recording.add(entry.sequence, entry.published_ns, self.now_ns, numbers)
        if self._acks_any:
            silent = self._silent_ids
            if silent:
                ids = [consumer for consumer in ids if consumer not in silent]
            if ids:
                self.out.append(entry.acks(ids))
        if (entry.sequence + 1) % self._requests.half == 0:
            self.out.extend(
                map(self._requests.flow_half, map(self._consumers.__getitem__, indexes))
            )

    def on_frame(self, command: pb.BaseCommand, body: bytes) -> None:
        """See FrameTarget."""
        kind = command.type
        if kind == _Type.CONNECTED:
            self._tally.connected += 1
            self._start_more()
        elif kind == _Type.PING:
            self.out.append(client.pong())
        elif kind == _Type.MESSAGE:
            self._tally.foreign += 1
            where = command.message
            self.out.append(client.ack(where.consumer_id, [where.message_id]))
        elif kind == _Type.ERROR:
            self._refused(command.error.request_id, command.error.error, command.error.message)
        elif kind in (_Type.PARTITIONED_METADATA_RESPONSE, _Type.LOOKUP_RESPONSE):
            answer = getattr(command, COMMAND_FIELDS[kind])
            reason = answer.message or "the topic is partitioned, or another broker's"
            self._refused(answer.request_id, answer.error, reason)
        elif kind == _Type.CLOSE_CONSUMER:
            self._tally.failures["the broker closed a consumer"] += 1
