"""Two commands in one write: what the broker answers, and what comes of it.

A case is a topic of its own with six messages, a consumer that was delivered three of them and has
acknowledged the first, and a producer. Then two commands that name them arrive together. A command
that creates a consumer or producer finds none if it comes first. Instead of a second command the
connection may end, and what the first one has done by itself is seen. What is seen of two:

- the answers to both, and what the broker tells unasked (CLOSE_CONSUMER);
- the order of those that a client goes by: CLOSE_CONSUMER, the SUCCESS of a SEEK, the SUCCESS of a
  SUBSCRIBE. All other answers are told apart by their request ids, and both servers send each of
  them when it is ready;
- the messages delivered, unless one command asks for messages that the other one takes away;
- whether the connection is still served, and then the subscriptions with their positions and the
  numbers of consumers and producers.

Positions are told as numbers of messages, 0 being the first one published. Real Pulsar hands
commands to several threads, so that a pair may have several outcomes. A pair can also be run
apart: the second command is sent when the first has its answer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, final

import httpx
import trio

from protocol import client as wire
from protocol import pulsar_api_pb2 as pb
from protocol.decoding import COMMAND_FIELDS
from protocol.metadata import peek_and_payload
from protocol.position import signed_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from compat_tests.oracle.server_process import ServerProcess
    from protocol.position import Position

Type = pb.BaseCommand

MESSAGES: Final = 6
DELIVERED: Final = 3
ANSWER_SECONDS_MAX: Final = 5.0
QUIET_SECONDS: Final = 0.15
"""How long nothing must come after the last answer that is waited for."""
LOOKS_MAX: Final = 50
"""Statistics are asked until they are the same twice."""
NOBODY: Final = ": 0"
"""Ends each of their rows."""
CASES_AT_A_TIME: Final = 8
SUBSCRIPTION: Final = "s"
CONSUMER: Final = 1
OTHER_CONSUMER: Final = 2
PRODUCER: Final = 1
OTHER_PRODUCER: Final = 2
PRODUCER_NAME: Final = "p"
PUBLISHED_MS: Final = 1_700_000_000_000
SCHEMA: Final = pb.Schema(name="s", type=pb.Schema.String, schema_data=b"")


@dataclass(frozen=True)
class Outcome:
    """What came of two commands, as far as it is compared. Hashable, so that outcomes form sets."""

    answers: tuple[str, ...]
    """Of the first, of the second, unasked; sorted."""
    in_order: tuple[str, ...]
    """Those whose order counts."""
    messages: tuple[int, ...]
    left: tuple[str, ...]
    """Subscriptions with their positions, consumers and producers."""

    def text(self) -> str:
        """One line."""
        messages = "".join(map(str, self.messages))
        told = (", ".join(self.answers), " < ".join(self.in_order), messages, ", ".join(self.left))
        return " | ".join(told)


CLOSED: Final = Outcome((), (), (), ("closed",))
"""The connection was closed; what was answered before that is a matter of speed."""
UNKNOWN_CONSUMER: Final = {
    "ACK_RESPONSE ConsumerNotFound": "no answer",
    "CONSUMER_STATS_RESPONSE ConsumerNotFound": "closed",
}
"""Vela's answers for a consumer that is not there, and what real Pulsar does (decision 0009)."""
CLOSES: Final = frozenset({"SEEK", "SEEK time", "UNSUBSCRIBE", "CLOSE_CONSUMER"})
ORDERED: Final = frozenset({"SEEK", "SEEK time", "SUBSCRIBE", "SUBSCRIBE other"})


def outcome_of(
    pair: tuple[str, str],
    answers: list[tuple[int, str]],
    messages: list[int],
    left: tuple[str, ...] | None,
) -> Outcome:
    """`answers`: (0 = unasked, 1, 2; text); `left` is None when the connection was closed."""
    told = [(who, UNKNOWN_CONSUMER.get(text, text)) for who, text in answers]
    if left is None or any(text == "closed" for _, text in told):
        return CLOSED
    in_order = tuple(
        f"{who} {text}"
        for who, text in told
        if who == 0 or (text == "SUCCESS" and pair[who - 1] in ORDERED)
    )
    is_race = "FLOW" in pair and not CLOSES.isdisjoint(pair)
    return Outcome(
        tuple(sorted(f"{who} {text}" for who, text in told)),
        in_order,
        () if is_race else tuple(messages),
        left,
    )


@dataclass
class Setting:
    """What a command can name."""

    topic: str
    positions: list[Position] = field(default_factory=list)


class Command(NamedTuple):
    """A command as the pairs know it."""

    make: Callable[[Setting, int], bytes]
    """(what there is, request id or sequence id) -> frame."""
    is_answered: bool = True
    creates: str = ""
    """`consumer` or `producer`: there is none before, if the command comes first."""


def _subscribe(consumer_id: int) -> Callable[[Setting, int], bytes]:
    def make(setting: Setting, request_id: int) -> bytes:
        return wire.subscribe(
            setting.topic,
            SUBSCRIPTION,
            consumer_id,
            request_id,
            consumer_name=f"c{consumer_id}",
            initialPosition=pb.CommandSubscribe.Earliest,
        )

    return make


def _producer(producer_id: int) -> Callable[[Setting, int], bytes]:
    return lambda setting, request_id: wire.producer(
        setting.topic, producer_id, request_id, producer_name=PRODUCER_NAME
    )


COMMANDS: Final[Mapping[str, Command]] = {
    "SUBSCRIBE": Command(_subscribe(CONSUMER), creates="consumer"),
    "SUBSCRIBE other": Command(_subscribe(OTHER_CONSUMER), creates="consumer"),
    "FLOW": Command(lambda _, __: wire.flow(CONSUMER, 1), is_answered=False),
    "ACK": Command(
        lambda setting, request_id: wire.ack(
            CONSUMER, [setting.positions[1]], request_id=request_id
        )
    ),
    "REDELIVER": Command(lambda _, __: wire.redeliver_unacknowledged(CONSUMER), is_answered=False),
    "SEEK": Command(
        lambda setting, request_id: wire.seek(CONSUMER, request_id, setting.positions[4])
    ),
    "SEEK time": Command(
        lambda _, request_id: wire.seek(CONSUMER, request_id, publish_time=PUBLISHED_MS + 5)
    ),
    "UNSUBSCRIBE": Command(lambda _, request_id: wire.unsubscribe(CONSUMER, request_id)),
    "CLOSE_CONSUMER": Command(lambda _, request_id: wire.close_consumer(CONSUMER, request_id)),
    "GET_LAST_MESSAGE_ID": Command(
        lambda _, request_id: wire.get_last_message_id(CONSUMER, request_id)
    ),
    "CONSUMER_STATS": Command(lambda _, request_id: wire.consumer_stats(CONSUMER, request_id)),
    "PRODUCER": Command(_producer(PRODUCER), creates="producer"),
    "PRODUCER other": Command(_producer(OTHER_PRODUCER), creates="producer"),
    "SEND": Command(lambda _, sequence_id: _message(MESSAGES, sequence_id)),
    "CLOSE_PRODUCER": Command(lambda _, request_id: wire.close_producer(PRODUCER, request_id)),
    "GET_SCHEMA": Command(lambda setting, request_id: wire.get_schema(setting.topic, request_id)),
    "GET_OR_CREATE_SCHEMA": Command(
        lambda setting, request_id: wire.get_or_create_schema(setting.topic, request_id, SCHEMA)
    ),
    "PARTITIONED_METADATA": Command(
        lambda setting, request_id: wire.partitioned_metadata(setting.topic, request_id)
    ),
    "LOOKUP": Command(lambda setting, request_id: wire.lookup(setting.topic, request_id)),
}
DISCONNECT: Final = "the end of the connection"
PAIRS: Final = [(first, second) for first in COMMANDS for second in (*COMMANDS, DISCONNECT)]
FIRST, SECOND = 1001, 1002
"""Request ids, or sequence ids, of the two."""


def _message(number: int, sequence_id: int) -> bytes:
    content = wire.message(
        b"%d" % number,
        producer_name=PRODUCER_NAME,
        sequence_id=sequence_id,
        publish_time=PUBLISHED_MS + number,
    )
    return wire.send(PRODUCER, sequence_id, content)


@final
class Connection:
    """A connection of bare commands."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._client = wire.Client()
        self._frames: list[tuple[pb.BaseCommand, bytes | None]] = []
        self.closed = False

    @classmethod
    async def open(cls, port: int) -> Connection:
        """Connected."""
        connection = cls(await trio.open_tcp_stream("127.0.0.1", port))
        await connection.send(wire.connect())
        await connection.expect(Type.CONNECTED)
        return connection

    async def send(self, *frames: bytes) -> None:
        """All in one write, unless the broker has closed."""
        try:
            await self._stream.send_all(b"".join(frames))
        except trio.BrokenResourceError:
            self.closed = True

    async def next(self) -> tuple[pb.BaseCommand, bytes | None] | None:
        """The next command but PING; None: the broker has closed."""
        while True:
            while not self._frames:
                try:
                    data = b"" if self.closed else await self._stream.receive_some(65536)
                except trio.BrokenResourceError:
                    data = b""
                if not data:
                    self.closed = True
                    return None
                self._frames += self._client.receive(bytes(data))
            command, payload = self._frames.pop(0)
            if command.type != Type.PING:
                return command, payload
            await self.send(wire.pong())

    async def expect(self, kind: pb.BaseCommand.Type) -> pb.BaseCommand:
        """The next command, which must be of this type."""
        with trio.fail_after(30):
            frame = await self.next()
        assert frame is not None, f"closed instead of {Type.Type.Name(kind)}"
        assert frame[0].type == kind, f"{frame[0]} instead of {Type.Type.Name(kind)}"
        return frame[0]

    async def end(self) -> None:
        """Say that nothing more will come, and wait until the broker has closed."""
        with trio.fail_after(30):
            if not self.closed:
                await self._stream.send_eof()
            while await self.next() is not None:
                pass

    async def aclose(self) -> None:
        """Close."""
        await trio.aclose_forcefully(self._stream)


@final
class PairCase:
    """One pair of commands on a topic of its own."""

    def __init__(self, broker_port: int, web: httpx.AsyncClient, name: str) -> None:
        self._broker_port = broker_port
        self._web = web
        self._name = name
        self._setting = Setting(f"persistent://public/default/{name}")

    async def run(self, first: str, second: str, *, is_apart: bool = False) -> Outcome:
        """Prepare, send both, look. `is_apart`: the second one after the answer to the first."""
        connection = await Connection.open(self._broker_port)
        try:
            await self._prepare(connection, COMMANDS[first].creates)
            setting = self._setting
            if second == DISCONNECT:
                await connection.send(COMMANDS[first].make(setting, FIRST))
                await connection.end()
                return Outcome((), (), (), await self._left(nobody=True))
            frames = [COMMANDS[first].make(setting, FIRST), COMMANDS[second].make(setting, SECOND)]
            wanted = [[1] * COMMANDS[first].is_answered, [2] * COMMANDS[second].is_answered]
            if not is_apart:
                frames, wanted = [b"".join(frames)], [wanted[0] + wanted[1]]
            answers: list[tuple[int, str]] = []
            messages: list[int] = []
            for frame, who in zip(frames, wanted, strict=True):
                await connection.send(frame)
                told_now, delivered_now = await self._collect(connection, who)
                answers += told_now
                messages += delivered_now
            left = None if connection.closed else await self._left()
            return outcome_of((first, second), answers, messages, left)
        finally:
            await connection.aclose()

    async def _prepare(self, connection: Connection, creates: str) -> None:
        setting = self._setting
        await connection.send(wire.lookup(setting.topic, 1))
        await connection.expect(Type.LOOKUP_RESPONSE)
        await connection.send(wire.producer(setting.topic, PRODUCER, 2, producer_name="p"))
        await connection.expect(Type.PRODUCER_SUCCESS)
        await connection.send(*(_message(number, number) for number in range(MESSAGES)))
        for _ in range(MESSAGES):
            receipt = (await connection.expect(Type.SEND_RECEIPT)).send_receipt.message_id
            setting.positions.append((receipt.ledgerId, receipt.entryId))
        if creates == "producer":
            await connection.send(wire.close_producer(PRODUCER, 3))
            await connection.expect(Type.SUCCESS)
        await connection.send(COMMANDS["SUBSCRIBE"].make(setting, 4))
        await connection.expect(Type.SUCCESS)
        await connection.send(wire.flow(CONSUMER, DELIVERED))
        for _ in range(DELIVERED):
            await connection.expect(Type.MESSAGE)
        await connection.send(wire.ack(CONSUMER, [setting.positions[0]], request_id=5))
        await connection.expect(Type.ACK_RESPONSE)
        if creates == "consumer":
            await connection.send(wire.close_consumer(CONSUMER, 6))
            await connection.expect(Type.SUCCESS)

    async def _collect(
        self, connection: Connection, wanted: list[int]
    ) -> tuple[list[tuple[int, str]], list[int]]:
        """Until everything wanted is answered and then nothing comes for a while."""
        answers: list[tuple[int, str]] = []
        messages: list[int] = []
        deadline = trio.current_time() + ANSWER_SECONDS_MAX
        missing = list(wanted)
        while True:
            now = trio.current_time()
            with trio.move_on_after(max(deadline - now, 0) if missing else QUIET_SECONDS):
                frame = await connection.next()
                if frame is None:
                    return answers, messages
                command, payload = frame
                if command.type == Type.MESSAGE:
                    assert payload is not None
                    messages.append(int(bytes(peek_and_payload(payload)[1])))
                    continue
                who = {FIRST: 1, SECOND: 2}.get(request_of(command), 0)
                if who in missing:
                    missing.remove(who)
                answers.append((who, told(command)))
                continue
            return answers + [(who, "no answer") for who in missing], messages

    async def _left(self, *, nobody: bool = False) -> tuple[str, ...]:
        """What statistics tell twice; with `nobody` once consumers and producers have gone."""
        path = f"/admin/v2/persistent/public/default/{self._name}"
        before: tuple[str, ...] | None = None
        for _ in range(LOOKS_MAX):
            left = await self._left_now(path)
            if left == before and (not nobody or all(row.endswith(NOBODY) for row in left)):
                break
            before = left
            await trio.sleep(0.03)
        return before or ()

    async def _left_now(self, path: str) -> tuple[str, ...]:
        internal = (await self._web.get(f"{path}/internalStats")).json()
        stats = (await self._web.get(f"{path}/stats")).json()
        rows: list[str] = []
        for name, row in sorted(stats["subscriptions"].items()):
            cursor = internal["cursors"].get(name, {"markDeletePosition": "0:deleted"})
            number = cursor["markDeletePosition"].partition(":")[2]
            rows.append(f"{name} after {number}, consumers: {len(row['consumers'])}")
        return (*rows, f"producers: {len(stats['publishers'])}")


def told(command: pb.BaseCommand) -> str:
    """A command in words."""
    kind = command.type
    content = getattr(command, COMMAND_FIELDS[kind])
    word = Type.Type.Name(kind)
    names = {each.name for each in content.DESCRIPTOR.fields}
    if "error" in names and content.HasField("error"):
        return f"{word} {pb.ServerError.Name(content.error)}"
    if "error_code" in names and content.HasField("error_code"):
        return f"{word} {pb.ServerError.Name(content.error_code)}"
    if kind == Type.CLOSE_CONSUMER:
        return f"{word} {content.consumer_id}"
    if kind == Type.CLOSE_PRODUCER:
        return f"{word} {content.producer_id}"
    if kind == Type.SEND_RECEIPT:
        return f"{word} {signed_id(content.message_id.entryId)}"
    if kind == Type.GET_LAST_MESSAGE_ID_RESPONSE:
        last = signed_id(content.last_message_id.entryId)
        return f"{word} {last} after {signed_id(content.consumer_mark_delete_position.entryId)}"
    if kind == Type.CONSUMER_STATS_RESPONSE:
        permits, unacked = content.availablePermits, content.unackedMessages
        return f"{word} permits {permits} unacked {unacked} backlog {content.msgBacklog}"
    return word


def request_of(command: pb.BaseCommand) -> int:
    """The request id, or sequence id, that a command answers; -1: none."""
    content = getattr(command, COMMAND_FIELDS[command.type])
    names = {each.name for each in content.DESCRIPTOR.fields}
    for name in ("request_id", "sequence_id"):
        if name in names:
            return int(getattr(content, name))
    return -1


Found = dict[tuple[str, str], Counter[Outcome]]
"""How often each outcome of each pair was seen."""


async def run_pairs(
    server: ServerProcess,
    pairs: Iterable[tuple[str, str]],
    mark: str,
    repetitions: int,
    cases_at_a_time: int = CASES_AT_A_TIME,
    *,
    is_apart: bool = False,
) -> Found:
    """Each pair so many times, on topics whose names have the mark. `is_apart`: see PairCase."""
    found: Found = {}
    slots = trio.Semaphore(cases_at_a_time)

    async def one(pair: tuple[str, str], name: str) -> None:
        async with slots:
            case = PairCase(server.broker_port, web, name)
            outcome = await case.run(*pair, is_apart=is_apart)
        found.setdefault(pair, Counter())[outcome] += 1

    async with (
        httpx.AsyncClient(base_url=server.web_url, timeout=30) as web,
        trio.open_nursery() as nursery,
    ):
        for repetition in range(repetitions):
            for index, pair in enumerate(pairs):
                nursery.start_soon(one, pair, f"pair-{mark}-{repetition}-{index}")
    return found
