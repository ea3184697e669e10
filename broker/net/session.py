"""A session: one client connection, the producers and consumers opened on it, and its read loop.

A receive brings a large chunk, which is split into commands. Each command is handled at once. The
task of the session is woken only for work that has to wait (`Transport.receive_into`). A handler
either answers at once or returns a coroutine for the rest, which runs as a task of this session
(`broker.net.request_tasks`). At the end of a chunk the journal is kicked and all output of the turn
is flushed, once. A chunk with thousands of requests takes several turns
(`protocol.request_frames`) and queues for them with all other connections. So does a command with
thousands of message ids (`protocol.long_commands`).

Order: commands take effect in the order in which they arrive. Before a handler returns, it looks up
the objects that the command names and starts the operation. Operations that must wait are queued by
the object they name (`broker.ground.operations`). A command for a producer or consumer that is
still being created finds a `Pending` in its place and behaves as in Pulsar.

Back-pressure: reading pauses at several bounds (`broker.net.back_pressure`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, final

import structlog
import trio

from broker.ground.slices import in_slices
from broker.limits.publish_budget import PendingPublishes
from broker.net.attached import CS, PS, C, P
from broker.net.closed_ids import ClosedIds
from broker.net.deadlines import check_credential, check_deadlines, is_alive
from broker.net.errors import ConnectionRefused, Held
from broker.net.keep_alive import KeepAlive, OutputStall
from broker.net.outbox import Outbox
from broker.net.request_tasks import RequestTasks
from broker.net.share import Share
from protocol import commands
from protocol import pulsar_api_pb2 as pb
from protocol.ack_runs import RUN_MIN, AckRuns
from protocol.connection import COMMANDS, Handshake
from protocol.errors import RemoteProtocolError, ServerError
from protocol.request_frames import RequestDecoder
from protocol.send_fields import Send
from protocol.send_runs import one_by_one
from runtime.transport import Taken
from security.caller import UNAUTHENTICATED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.limits.connections import Connections
    from broker.net.attached import Commands
    from broker.net.send_handler import SendHandler
    from protocol.ack_runs import AckRunTarget
    from protocol.request_frames import Frame
    from runtime.transport import Transport
    from security.authentication.lease import Lease
    from security.caller import Caller

log = structlog.get_logger()

TURN_OUTPUT_BYTES = 64 * 1024
"""After so much output of its requests a turn leaves the rest of them to another one. A FLOW may
let 256 KB be dispatched, and there may be 64 of them in a slice."""
MESSAGES_SECONDS_PER_TURN = 0.003
"""After so much time a turn reads no further slice of messages: the cost of a message depends on
its topic."""
MESSAGES_SECONDS_BESIDE_STEPS = 0.0002
"""The same while delivery of a backlog, or other long work, waits for its share of the turn. To
append the messages and to answer them takes several times as long."""
GOODBYE_SECONDS_MAX = 1.0
"""How long a refused peer has to read the reason."""


@final
class Session(RequestTasks, Generic[P, C, PS, CS]):
    """One connection. It does not know what producers and consumers are: its creator defines that
    with the `commands`."""

    last_kind: int = 0
    """The kind of the last request of the turn; 0: there were only messages."""
    _more: bool = False
    _ended: bool = False
    """The peer has closed."""
    _is_wave: bool = False
    """The last receive brought nothing but acknowledgements of an entry by several consumers."""
    _in_slice: bool = False
    """`_frames` is not exhausted."""

    def __init__(self, connections: Connections, commands: Commands, transport: Transport) -> None:
        self.connections = connections
        outputs, limits = connections.outputs, connections.limits
        super().__init__(
            Outbox(transport, connections.turns, outputs, self._outbox_drained, self._start_writer),
            PendingPublishes(connections.publish_budget, limits),
            limits,
            transport.peer,
        )
        self.send = self.outbox.append
        self.producers: dict[int, P] = {}
        self.consumers: dict[int, C] = {}
        """By number. Only `add_consumer` adds."""
        self._told: list[int] = []
        """Numbers of consumers that are told of room for output, one of each group; empty: they
        have to be chosen. While all of them are there, they are those that were chosen."""
        self.closed_producers = ClosedIds()
        self.producing: PS | None = None
        """What topics know of its producers; None before the first one."""
        self.consuming: CS | None = None
        """The same of its consumers."""
        self.limited_producers = 0
        """How many of its producers publish under a rate (`Producer.use_limits`)."""
        self.handshake = Handshake()
        self.connected = False
        """The same as `handshake.connected`, for the hot path."""
        self.caller: Caller = UNAUTHENTICATED
        self.lease: Lease | None = None
        """The credential of the client; None: it has none, or CONNECT has not been answered."""
        self.share = Share(transport)
        self.remote_address = f"/{transport.peer}"  # as statistics and CONSUMER_STATS show it
        now = connections.clock.now()
        self.keep_alive = KeepAlive(limits.keep_alive_seconds, limits.handshake_seconds_max, now)
        self.held_bytes = 0
        """Bytes of an unfinished frame in the decoder (Holder)."""
        self.held_since = 0.0
        """When the first bytes of that frame came (Holder)."""
        self._transport = transport
        self.handlers = commands.handlers
        self._on_frame = commands.on_frame
        self.send_handler: SendHandler = commands.send_handler
        self.handle_plain_ack = commands.handle_plain_ack
        first_bytes_max = min(limits.handshake_frame_size_bytes_max, limits.frame_size_bytes_max)
        self._decoder = RequestDecoder(limits.frame_size_bytes_max, first_bytes_max)
        self._ack_target: AckRunTarget | None = None
        """The target for the runs of ACKs that the decoder recognises."""
        self._waiting_sends: list[Send] = []
        """Before `_frames`, the next one last: messages that may wait for a publish rate."""
        self.output_stall = OutputStall(limits.output_stall_seconds_max)

    # --- life ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve the connection until either side ends it. Never raises for faults of the peer."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    await self._read_until_closed()
                finally:
                    # Messages that one consumer gives back must not go to another one of here.
                    self.outbox.fail("connection closed")
                    # Detaching lets others run: a request of here whose turn comes may need a task.
                    await self._detach_all()
                    self._nursery = None
                nursery.cancel_scope.cancel()
        finally:
            self.outbox.fail("connection closed")
            # They refer to this object, which is to go without the garbage collector.
            self.producing = self.consuming = None

    async def _read_until_closed(self) -> None:
        try:
            while not self._ended:
                if self.must_pause():
                    await self.wait_resumed()
                    self.keep_alive.received(self.connections.clock.now())
                await self._transport.receive_into(self._take, is_left=self._more)
        except trio.BrokenResourceError as error:
            self.close_reason = self.close_reason or self.outbox.failed or f"lost: {error}"
        except (ConnectionRefused, RemoteProtocolError) as error:
            self.close_reason = str(error)
            log.warning("connection refused", peer=self.peer, reason=self.close_reason)
            await self._say_goodbye()
        else:
            log.debug("connection closed", peer=self.peer, reason=self.close_reason)

    def _start_writer(self) -> None:
        """Most connections never need this task: their output fits into their sockets."""
        if self._nursery is not None:
            self._nursery.start_soon(self.outbox.run)

    async def _say_goodbye(self) -> None:
        """Let the peer read the reason: a close with unread input would reset the connection."""
        self._drop_input()
        with trio.move_on_after(GOODBYE_SECONDS_MAX), suppress(trio.BrokenResourceError):
            await self._finish_sending()
            while await self._transport.receive():
                pass

    async def _finish_sending(self) -> None:
        await self.outbox.wait_drained()
        self.outbox.finish(self.close_reason)
        await self._transport.finish_sending()

    async def turn_away(self, answer: bytes, reason: str) -> None:
        """End the connection with a last answer, which the peer gets a moment to read. For a task
        of this session; the reason is logged."""
        self.handshake.refused()
        self.connected = False
        self._drop_input()
        self.close_reason = reason
        log.warning("connection refused", peer=self.peer, reason=reason)
        self.outbox.append(answer)
        with trio.move_on_after(GOODBYE_SECONDS_MAX):
            try:
                await self._finish_sending()
                await trio.sleep_forever()  # a peer that closes ends this task with the session
            except trio.BrokenResourceError:
                log.debug("peer left before it was refused", peer=self.peer)
        self.outbox.fail(reason)

    async def _detach_all(self) -> None:
        """The connection has ended: remove its producers and consumers and the partial frame. There
        may be a hundred thousand."""
        self._decoder.ack_runs = None
        self._ack_target = None
        self._drop_input()
        if not (self.producers or self.consumers):
            return  # as of many a connection that only looks up topics
        with trio.CancelScope(shield=True):
            await in_slices(_detach_each(self.producers))
            await in_slices(_detach_each(self.consumers))

    # --- reading ------------------------------------------------------------------------

    def _take(self, data: bytes | None) -> Taken:
        """One receive, or a turn with the rest of the last one. After a STOP the task of the
        session has to continue."""
        if data is None:
            self._more = not self.outbox.failed and self._handle_chunk(b"")
        elif data:
            self.keep_alive.received(self.connections.clock.now())
            self._more = self._handle_chunk(data)
        else:
            self.close_reason = self.close_reason or "closed by the client"
            self._ended = True
            return Taken.STOP
        if self._decoder.buffered_bytes or self.held_bytes:
            self._count_unfinished(len(data) if data else 0)
        if self.must_pause():
            return Taken.STOP
        if self._more:
            return Taken.IN_PART
        return Taken.UNHURRIED if self._is_wave else Taken.WHOLE

    def _handle_chunk(self, data: bytes) -> bool:
        """One turn, one journal kick, one flush, for slices of the bytes of one receive or (without
        data) for what earlier turns have left of it. Returns whether some are left for another
        turn."""
        self.last_kind = 0
        self._is_wave = False
        now = self.connections.clock.now
        begun = self.keep_alive.received_at if data else now()
        turns = self.connections.turns
        turns.begin_turn()
        try:
            if data and self._ack_target is not None:
                data = self._take_ack_runs(data, self._ack_target)
                if not data:
                    return False
            decoder = self._decoder
            if not self._in_slice:
                self._frames = iter(decoder.feed(data) if data else decoder.more())
            output_bytes_max = self.outbox.pending_bytes + TURN_OUTPUT_BYTES
            while self._handle_slice(output_bytes_max):
                if not decoder.may_go_on or now() - begun > (
                    MESSAGES_SECONDS_BESIDE_STEPS
                    if turns.has_steps()
                    else MESSAGES_SECONDS_PER_TURN
                ):
                    if not decoder.is_left and decoder.failure is not None:
                        raise decoder.failure
                    return decoder.is_left
                self._frames = iter(decoder.go_on())
            return True
        except Held:
            return True
        except (ConnectionRefused, RemoteProtocolError) as error:
            self.outbox.append(
                commands.error(commands.NO_REQUEST, ServerError.UnknownError, str(error))
            )
            raise
        finally:
            turns.end_turn()

    def _handle_slice(self, output_bytes_max: int) -> bool:
        """Handle the frames that were read. Returns whether all were handled; otherwise the turn
        ends here."""
        self._in_slice = True
        frames, on_frame, outbox = self._frames, self._on_frame, self.outbox
        if self.limited_producers or self._waiting_sends:
            frames = self._as_admitted()
        for frame in frames:
            # A message that a rate has admitted cannot be put back.
            if outbox.pending_bytes > output_bytes_max and (
                frames is self._frames or not isinstance(frame, Send)
            ):
                self.put_first(iter((frame,)))
                return False
            if on_frame[type(frame)](self, frame):
                return False
        self._in_slice = self._held_by is not None
        return not self._in_slice

    def _as_admitted(self) -> Iterator[Frame | None]:
        """The frames up to the first message that a publish rate does not admit yet, without those
        that are refused."""
        admits, waiting = self.send_handler.admits, self._waiting_sends
        for frame in one_by_one(self._frames, waiting):
            if not isinstance(frame, Send) or admits(self, frame):
                yield frame
            elif self._held_by is not None:
                waiting.append(frame)
                return

    def _take_ack_runs(self, data: bytes, target: AckRunTarget) -> bytes:
        """The rest after the ACKs at the beginning have been taken. If there is none, more of them
        will follow: no client waits for their effect, so they may be read together."""
        runs, rest = self._decoder.take_ack_runs(data)
        if runs:
            self.last_kind = pb.BaseCommand.ACK
            self._is_wave = not rest and len(runs[-1][0]) >= RUN_MIN
        for consumers, position in runs:
            target.ack_run(consumers, position)
        return rest

    def what_ran(self) -> str:
        """For the watchdog of the loop: the last request of the turn, or that it had none."""
        return f"session {COMMANDS[self.last_kind or pb.BaseCommand.SEND].name}"

    def _count_unfinished(self, received_bytes: int) -> None:
        """After a turn that ends within a frame or that completed one."""
        before = self.held_bytes
        after = self._decoder.buffered_bytes
        now = self.keep_alive.received_at
        if before == 0 or after != before + received_bytes:
            self.held_since = now  # it is another frame than before
        self.connections.unfinished_frames.holds(self, after, now)

    @property
    def moved_at(self) -> float:
        """When the last bytes came (Holder)."""
        return self.keep_alive.received_at

    def give_up(self, held_bytes: int, held_seconds: float) -> None:
        """Drop an unfinished frame and close the connection (Holder). The peer gets the reason if
        that is possible at once."""
        reason = (
            f"a frame of which {held_bytes} bytes came in {held_seconds:.1f} s was given up: the"
            " unfinished frames of all connections reached maxUnfinishedFramesSizeInMB; connect and"
            " send it again"
        )
        self._drop_input()
        self.outbox.append(commands.error(commands.NO_REQUEST, ServerError.TooManyRequests, reason))
        self.outbox.flush()
        self.close(reason)

    def _drop_input(self) -> None:
        """Handle nothing more of the bytes received."""
        self._decoder.forget()
        self._frames = iter(())
        self._in_slice = False
        self._waiting_sends.clear()
        if self.held_bytes:
            self.connections.unfinished_frames.holds(self, 0, 0.0)

    # --- deadlines ----------------------------------------------------------------------

    def _outbox_drained(self) -> None:
        self.resume()
        consumers = self.consumers
        told = [consumers.get(number) for number in self._told]
        if not told or None in told:
            self._told = _one_of_each_group(consumers)
            told = [consumers[number] for number in self._told]
        for consumer in told:
            if consumer is not None:
                consumer.on_writable()

    def check_deadlines(self, now: float) -> None:
        """See `broker.net.deadlines`."""
        check_deadlines(self, now)

    def check_credential(self, wall_seconds: float, now: float) -> None:
        """See `broker.net.deadlines`."""
        check_credential(self, wall_seconds, now)

    async def is_alive(self, timeout_seconds: float) -> bool:
        """See `broker.net.deadlines`."""
        return await is_alive(self, timeout_seconds)

    # --- what its door uses --------------------------------------------------------------

    @property
    def peer_certificate(self) -> bytes | None:
        """The verified certificate of the client (DER); None: it has shown none."""
        return self._transport.peer_certificate

    @property
    def protocol_version(self) -> int:
        """The version agreed on in CONNECTED."""
        return self.handshake.protocol_version

    @property
    def client_version(self) -> str:
        """The client version from CONNECT."""
        return self.handshake.client_version

    def ack_runs_for(self, target: AckRunTarget) -> AckRuns | None:
        """The place where the target registers consumers whose plain ACKs it takes by the run.
        None: another target has consumers there."""
        runs = self._decoder.ack_runs
        if self._ack_target is not target:
            if runs is not None and not runs.unused:
                return None
            self._ack_target = target
        if runs is None:
            runs = self._decoder.ack_runs = AckRuns()
        return runs

    def add_consumer(self, number: int, consumer: C) -> None:
        """From now on the number is that of this consumer."""
        self.consumers[number] = consumer
        self._told = []  # it may be the only one of its group

    def send_many(self, buffers: list[bytes]) -> None:
        """Queue the buffers of many frames at once, in order."""
        self.outbox.append_many(buffers, sum(map(len, buffers)))


def _one_of_each_group(consumers: dict[int, C]) -> list[int]:
    """The numbers of consumers that together are told for all."""
    groups: set[object] = set()
    found: list[int] = []
    for number, consumer in consumers.items():
        group = consumer.writable_group
        if group not in groups:
            groups.add(group)
            found.append(number)
    return found


def _detach_each(opened: dict[int, Any]) -> Iterator[None]:
    """One per step. Others may leave meanwhile."""
    for number in list(opened):
        each = opened.pop(number, None)
        if each is not None:
            each.remove()
        yield


AnySession = Session[Any, Any, Any, Any]
"""A connection, for code that does not use the objects opened on it."""
