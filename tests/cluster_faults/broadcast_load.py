"""Named consumers of one broadcast, spread over a topic and its shadows, while brokers suffer.

They speak the protocol themselves, each on a connection of its own, so that it is known exactly
what came on which connection, what was acknowledged, and which receipts came. Each acknowledges
message by message and asks for a receipt. When its connection ends it looks for the owner of its
topic and subscribes again, under its name. All run in one thread, in an event loop of its own.

Consumers differ. Some acknowledge at once, some later, some out of order. The impatient ones leave
a broker that is silent, as clients with a short keep-alive do; the others wait for what it does
when it goes on.
"""

from __future__ import annotations

import threading
import time
from itertools import cycle
from typing import TYPE_CHECKING, Final, TypeVar, final
from urllib.parse import urlsplit

import structlog
import trio

from protocol import client as wire
from protocol import pulsar_api_pb2 as pb
from protocol.errors import RemoteProtocolError
from protocol.metadata import peek_and_payload
from tests.cluster_faults.broadcast_checks import ConsumerHistory
from tests.cluster_faults.load import Stuck, is_hole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from protocol.frames import ParsedFrame
    from tests.cluster_faults.broadcast_checks import Place

SUBSCRIPTION: Final = "everybody"
HABITS: Final = ("at once", "later", "out of order")
LATER_BY: Final = 10
"""So many messages wait for their acknowledgement, of the consumers that acknowledge later."""
SWAPPED_BY: Final = 3
"""Every so many messages are acknowledged in the opposite order, out of order."""
PERMITS: Final = 1_000
PING_SECONDS: Final = 1.0
SILENT_SECONDS: Final = 3.0
"""After so long an impatient consumer leaves. It waits twice as long each time that it finds a
silent broker again, because the machine may be busy."""
SILENT_SECONDS_MAX: Final = 12.0
ANSWER_SECONDS_MAX: Final = 5.0
RETRY_SECONDS: Final = 0.2
HOPS_MAX: Final = 5
WAIT_SECONDS_MAX: Final = 180.0
TELL_SECONDS: Final = 10.0
"""After so long a wait is told to the log of the runner, again and again."""
_LOOK_SECONDS: Final = 0.1
_Type = pb.BaseCommand
_Lookup = pb.CommandLookupTopicResponse
_T = TypeVar("_T")

log = structlog.get_logger()


class _Refused(Exception):
    """A broker does not serve the consumer now."""


@final
class BroadcastConsumer:
    """One name. Everything here belongs to the event loop."""

    def __init__(
        self, topic: str, name: str, habit: str, brokers: Iterator[str], *, is_impatient: bool
    ) -> None:
        """`brokers`: URLs of those that can be asked for the owner, in turn."""
        self.topic = topic
        self.history = ConsumerHistory(name)
        self.habit = habit
        self.is_impatient = is_impatient
        self.leaves_holes = False
        """Some messages are not acknowledged at all, until this is over."""
        self.is_subscribed = False
        """Whether it has been told so on a connection that is there."""
        self.newest: Place = (-1, -1)
        self.refusals: dict[str, int] = {}
        """Why it had to try again -> how often."""
        self._brokers = brokers
        self._patience_seconds = SILENT_SECONDS
        self._waiting: list[Place] = []
        self._asked: dict[int, Place] = {}
        self._permits_used = 0
        self._client = wire.Client()
        self._stay = trio.CancelScope()

    async def run(self) -> None:
        """Stay after stay, until cancelled."""
        while True:
            with trio.CancelScope() as self._stay:
                try:
                    await self._one_stay()
                except (OSError, trio.BrokenResourceError, trio.TooSlowError, _Refused) as failed:
                    reason = f"{type(failed).__name__} {failed}"[:200]
                    self.refusals[reason] = self.refusals.get(reason, 0) + 1
            await trio.sleep(RETRY_SECONDS)

    def state(self) -> str:
        """For people."""
        said = f"{self.history.name} at {self.newest} in stay {len(self.history.stays)}"
        if not self.is_subscribed:
            said += ", not subscribed"
        if self.history.unanswered:
            said += f", {len(self.history.unanswered)} acknowledgements without a receipt"
        return f"{said}, refused {list(self.refusals.items())[-3:]}"

    def leave(self) -> None:
        """End this stay. The next one follows."""
        self._stay.cancel()

    def stop_leaving(self) -> None:
        """Everything that comes from now on is acknowledged, at once."""
        self.habit, self.leaves_holes = HABITS[0], False

    async def _one_stay(self) -> None:
        address = urlsplit(await self._owner())
        stream = await _connected(address.hostname or "", address.port or 0)
        async with stream:
            client = self._client = wire.Client()
            self._waiting, self._asked, self._permits_used = [], {}, 0
            self.history.begin_stay()
            request_id = client.next_request_id()
            subscribe = wire.subscribe(
                self.topic,
                SUBSCRIPTION,
                1,
                request_id,
                pb.CommandSubscribe.Shared,
                metadata={"vela.broadcast": "true"},
                consumer_name=self.history.name,
                initialPosition=pb.CommandSubscribe.Earliest,
                force_topic_creation=False,
            )
            await stream.send_all(wire.connect() + subscribe)
            try:
                while data := await self._receive(stream):
                    answer = b"".join(
                        [self._take(frame, request_id) for frame in client.receive(data)]
                    )
                    if answer:
                        await stream.send_all(answer)
            except RemoteProtocolError as wrong:
                raise AssertionError(f"{self.history.name}: {wrong}") from wrong
            finally:
                self.is_subscribed = False
        raise _Refused("the broker ended the connection")

    async def _receive(self, stream: trio.SocketStream) -> bytes:
        """What comes next; empty: the end. Raises: _Refused: nothing, for too long."""
        silent_seconds = 0.0
        while True:
            with trio.move_on_after(PING_SECONDS):
                return bytes(await stream.receive_some(1 << 18))
            if not self.is_impatient:
                continue
            silent_seconds += PING_SECONDS
            if silent_seconds >= self._patience_seconds:
                self._patience_seconds = min(2 * self._patience_seconds, SILENT_SECONDS_MAX)
                raise _Refused("the broker is silent")
            await stream.send_all(wire.ping())

    def _take(self, frame: ParsedFrame, subscribe_id: int) -> bytes:
        """One command of the broker; the answer to it."""
        command, payload = frame
        kind = command.type
        if kind == _Type.MESSAGE:
            return self._on_message(command, payload or b"")
        if kind == _Type.ACK_RESPONSE:
            place = self._asked.pop(command.ackResponse.request_id)
            if not command.ackResponse.HasField("error"):
                self.history.answer(place)
        elif kind == _Type.PING:
            return wire.pong()
        elif kind == _Type.SUCCESS and command.success.request_id == subscribe_id:
            self.is_subscribed = True
            return wire.flow(1, PERMITS)
        elif kind == _Type.ERROR:
            raise _Refused(f"{command.error.error} {command.error.message}")
        elif kind == _Type.CLOSE_CONSUMER:
            raise _Refused("the broker closed the consumer")
        return b""

    # --- messages -----------------------------------------------------------------------

    def _on_message(self, command: pb.BaseCommand, payload: bytes) -> bytes:
        identifier = command.message.message_id
        place = (identifier.ledgerId, identifier.entryId)
        self.history.stays[-1].append(place)
        self.newest = max(self.newest, place)
        self._patience_seconds = SILENT_SECONDS
        metadata, _ = peek_and_payload(payload)
        self._permits_used += max(1, metadata.num_messages_in_batch)
        answer = b""
        if self._permits_used >= PERMITS // 2:
            answer = wire.flow(1, self._permits_used)
            self._permits_used = 0
        if not (self.leaves_holes and is_hole((*place, -1))):
            self._waiting.append(place)
        return answer + self._acknowledgements()

    def _acknowledgements(self) -> bytes:
        """One ACK for each message whose time has come."""
        waiting = self._waiting
        if self.habit == "later":
            now, self._waiting = waiting[:-LATER_BY], waiting[-LATER_BY:]
        elif self.habit == "out of order":
            if len(waiting) < SWAPPED_BY:
                return b""
            now, self._waiting = waiting[::-1], []
        else:
            now, self._waiting = waiting, []
        return b"".join([self._acknowledgement(place) for place in now])

    def _acknowledgement(self, place: Place) -> bytes:
        request_id = self._client.next_request_id()
        self._asked[request_id] = place
        self.history.ask(place)
        return wire.ack(1, [place], request_id=request_id)

    # --- the owner ----------------------------------------------------------------------

    async def _owner(self) -> str:
        """The service URL of the broker that owns the topic, as the next broker says.

        Raises: OSError, trio.TooSlowError, trio.BrokenResourceError, _Refused.
        """
        url, is_authoritative = next(self._brokers), False
        for _ in range(HOPS_MAX):
            with trio.fail_after(ANSWER_SECONDS_MAX):
                answer = await _ask_for_owner(url, self.topic, is_authoritative=is_authoritative)
            if answer.response == _Lookup.Failed:
                raise _Refused(f"{answer.error} {answer.message}")
            url, is_authoritative = answer.brokerServiceUrl, answer.authoritative
            if answer.response == _Lookup.Connect:
                return url
        raise _Refused(f"no broker says that it owns {self.topic}")


async def _ask_for_owner(url: str, topic: str, *, is_authoritative: bool) -> _Lookup:
    address = urlsplit(url)
    client = wire.Client()
    async with await _connected(address.hostname or "", address.port or 0) as stream:
        lookup = wire.lookup(topic, client.next_request_id(), authoritative=is_authoritative)
        await stream.send_all(wire.connect() + lookup)
        while data := await stream.receive_some(1 << 16):
            for command, _ in client.receive(bytes(data)):
                if command.type == _Type.LOOKUP_RESPONSE:
                    return command.lookupTopicResponse
    raise _Refused("the broker ended the connection of a lookup")


async def _connected(host: str, port: int) -> trio.SocketStream:
    with trio.fail_after(ANSWER_SECONDS_MAX):
        return await trio.open_tcp_stream(host, port)


@final
class BroadcastLoad:
    """Consumers and their thread. Methods are called from other threads."""

    def __init__(self, service_urls: Sequence[str], topics: Sequence[str], holes_at: int) -> None:
        """`topics`: the source and its shadows. `holes_at`: the number of the topic whose consumers
        leave holes; any other number: none."""
        self.consumers: list[BroadcastConsumer] = []
        brokers = cycle(service_urls)
        for number, topic in enumerate(topics):
            short = topic.rpartition("/")[2]
            for habit in HABITS:
                for is_impatient in (False, True):
                    name = f"{short} {habit}{', impatient' if is_impatient else ''}"
                    consumer = BroadcastConsumer(
                        topic, name, habit, brokers, is_impatient=is_impatient
                    )
                    consumer.leaves_holes = number == holes_at
                    self.consumers.append(consumer)
        self.errors: list[str] = []
        """What went wrong in the load itself."""
        self._is_running = threading.Event()
        self._thread = threading.Thread(target=self._guard, daemon=True)
        self._token: trio.lowlevel.TrioToken
        self._scope = trio.CancelScope()

    def start(self) -> None:
        """Return when all are subscribed. Raises: Stuck."""
        self._thread.start()
        self._is_running.wait()
        self.wait("subscription", lambda each: each.is_subscribed)

    def wait(self, what: str, is_true: Callable[[BroadcastConsumer], bool]) -> None:
        """Return when it is true of every consumer. Raises: Stuck."""
        begun = told = time.monotonic()
        while lacking := self.ask(lambda: [each for each in self.consumers if not is_true(each)]):
            now = time.monotonic()
            if now - begun > WAIT_SECONDS_MAX:
                raise Stuck(
                    f"STUCK: {what}: {len(lacking)} of {len(self.consumers)} consumers lack it "
                    f"after {WAIT_SECONDS_MAX:g} s; {lacking[0].state()}"
                )
            if now - told > TELL_SECONDS:
                told = now
                states = [each.state() for each in lacking]
                log.info("waiting", what=what, seconds=round(now - begun), lacking=states)
            time.sleep(_LOOK_SECONDS)

    def wait_for(
        self, what: str, place: Place, *, at: str = "", only_impatient: bool = False
    ) -> None:
        """Return when everybody has got this message or a later one. `at`: only consumers of this
        topic. Raises: Stuck."""
        self.wait(
            f"a delivery while {what}",
            lambda each: bool(
                each.newest >= place
                or (at and each.topic != at)
                or (only_impatient and not each.is_impatient)
            ),
        )

    def come_again(self) -> None:
        """Everybody leaves, and subscribes again. Raises: Stuck."""
        before = self.ask(self._leave_all)
        self.wait(
            "a new subscription",
            lambda each: each.is_subscribed and len(each.history.stays) > before[each],
        )

    def _leave_all(self) -> dict[BroadcastConsumer, int]:
        for consumer in self.consumers:
            consumer.leave()
        return {each: len(each.history.stays) for each in self.consumers}

    def ask(self, function: Callable[[], _T]) -> _T:
        """In the event loop, between two of its turns."""
        return trio.from_thread.run_sync(function, trio_token=self._token)

    def close(self) -> None:
        """End all connections and the thread."""
        if self._thread.is_alive():
            self._is_running.wait()
            try:
                self.ask(self._scope.cancel)
            except trio.RunFinishedError:
                return
            self._thread.join()

    def _guard(self) -> None:
        try:
            trio.run(self._run)
        except BaseException as error:
            self.errors.append(f"BROKEN LOAD: {error!r}")
        finally:
            self._is_running.set()

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._is_running.set()
        with self._scope:
            async with trio.open_nursery() as nursery:
                for consumer in self.consumers:
                    nursery.start_soon(consumer.run)
