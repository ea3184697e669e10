"""A session: one client connection, the producers and consumers opened on it, and its read loop.

A receive brings a large chunk, which is split into commands. Each command is handled at once. The
task of the session is woken only for work that has to wait (`Transport.receive_into`). A handler
either answers at once or returns a coroutine for the rest, which runs as a task of this session.
Failures of both kinds become an error answer in exactly one place (`_refuse`). At the end of a
chunk the journal is kicked and all output of the turn is flushed, once. A chunk with thousands of
requests takes several turns (`REQUESTS_PER_TURN`) and queues for them with all other connections.
So does a command with thousands of message ids (`protocol.long_commands`).

Order: commands take effect in the order in which they arrive. Before a handler returns, it looks up
the objects that the command names and starts the operation. Operations that must wait are queued by
the object they name (`broker.operations`). A command for a producer or consumer that is still being
created finds a `Pending` in its place and behaves as in Pulsar.

Back-pressure: reading pauses while too many publishes or requests of this connection are in
progress, while all connections together exceed the publish budget, or while the peer does not take
its answers. A paused session does not count as silent. Where a topic has a publish rate, reading
also pauses in front of a message for which there are no tokens yet (`broker.net.publish_limit`).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, final

import structlog
import trio

from broker.net.attached import C, P
from broker.net.closed_ids import ClosedIds
from broker.net.errors import ConnectionRefused, Held
from broker.net.keep_alive import KeepAlive, KeepAliveAction, OutputStall
from broker.net.outbox import Outbox
from broker.net.publish_budget import PendingPublishes
from broker.net.share import Share
from broker.slices import in_slices
from protocol import commands
from protocol import pulsar_api_pb2 as pb
from protocol.ack_runs import AckRuns
from protocol.connection import COMMANDS, Handshake
from protocol.errors import BrokerError, RemoteProtocolError, ServerError
from protocol.frames import FrameDecoder
from protocol.long_commands import LongCommand
from protocol.plain_acks import PlainAck
from protocol.send_fields import Send
from protocol.send_runs import SendRun, one_by_one
from runtime.transport import Taken
from security.authentication.lease import LeaseAction
from security.caller import UNAUTHENTICATED

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from broker.net.attached import Commands, ConsumerWithId, ProducerWithId
    from broker.net.connections import Connections
    from broker.net.publish_limit import PublishLimit
    from broker.net.send_handler import SendHandler
    from protocol.ack_runs import AckRunTarget
    from protocol.frames import Frame
    from runtime.transport import Transport
    from security.authentication.lease import Lease
    from security.caller import Caller

log = structlog.get_logger()

GOODBYE_SECONDS_MAX = 1.0
"""How long a refused peer has to read the reason."""
REQUESTS_PER_TURN = 64
"""Commands other than SEND handled before other connections get a turn: a few milliseconds of
SUBSCRIBEs. A publisher's chunk is never divided: it is cheap and forms one journal group."""
ACKS_PER_REQUEST = 8
"""Entries of a run of plain ACKs that count as one command more: a turn takes 512 of them."""
DECODED_PER_TURN_BYTES = 8 * 1024
"""Bytes of about as many requests. A megabyte of SUBSCRIBEs takes 0.1 s to decode."""


@final
class Session(Generic[P, C]):
    """One connection. Also the `ConsumerSession` of its consumers. It does not know what producers
    and consumers are: its creator defines that with the `commands`."""

    _last_kind: int = 0
    """Of the last request of the turn; 0: there were only messages."""
    _ended: bool = False
    """The peer has closed."""
    _refused_silently: bool = False

    def __init__(self, connections: Connections, commands: Commands, transport: Transport) -> None:
        self.connections = connections
        self.limits = limits = connections.limits
        self.outbox = Outbox(
            transport, connections.turns, limits, self._outbox_drained, self._start_writer
        )
        self.send = self.outbox.put
        self.producers: dict[int, P] = {}
        self.consumers: dict[int, C] = {}
        self.closed_producers = ClosedIds()
        self.publishes = PendingPublishes(connections.publish_budget, limits)
        self.limited_producers = 0
        """How many of its producers publish under a rate (`Producer.use_limits`)."""
        self._limits_passed = 0
        """How many limits have admitted the message that waits for the next one."""
        self._held_by: PublishLimit | None = None
        self._was_held = False
        """Since the last look at its credential."""
        self.handshake = Handshake()
        self.connected = False
        """The same as `handshake.connected`, for the hot path."""
        self.caller: Caller = UNAUTHENTICATED
        self.lease: Lease | None = None
        """The credential of the client; None: it has none, or CONNECT has not been answered."""
        self.share = Share(transport)
        self.peer = transport.peer
        self.remote_address = f"/{transport.peer}"  # as statistics and CONSUMER_STATS show it
        now = connections.clock.now()
        self.keep_alive = KeepAlive(limits.keep_alive_seconds, limits.handshake_seconds_max, now)
        self.close_reason = ""
        self.held_bytes = 0
        """Bytes of an unfinished frame in the decoder (Holder)."""
        self.held_since = 0.0
        """When the first bytes of that frame came (Holder)."""
        self._transport = transport
        self._handlers = commands.handlers
        self._send_handler: SendHandler = commands.send_handler
        self._handle_plain_ack = commands.handle_plain_ack
        first_bytes_max = min(limits.handshake_frame_size_bytes_max, limits.frame_size_bytes_max)
        self._decoder = FrameDecoder(
            limits.frame_size_bytes_max,
            plain_sends=True,
            first_frame_size_bytes_max=first_bytes_max,
        )
        self._ack_target: AckRunTarget | None = None
        """The target for the runs of ACKs that the decoder recognises."""
        self._frames: Iterator[Frame | None] = iter(())
        """Bytes of the last receive that no turn has handled yet."""
        self._waiting_sends: list[Send] = []
        """Before `_frames`, the next one last: messages that may wait for a publish rate."""
        self._more = False
        self._requests = 0
        self.waits = 0
        """See `start_wait`."""
        self._paused: trio.Event | None = None
        self._output_stall = OutputStall(limits.output_stall_seconds_max)
        self._nursery: trio.Nursery | None = None

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

    async def _read_until_closed(self) -> None:
        try:
            while not self._ended:
                if self._must_pause():
                    await self._wait_resumed()
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
        with trio.move_on_after(GOODBYE_SECONDS_MAX):
            try:
                await self.outbox.wait_drained()
                self.outbox.finish(self.close_reason)
                await self._transport.finish_sending()
                while await self._transport.receive():
                    pass
            except trio.BrokenResourceError:
                return  # the peer was faster

    def close(self, reason: str) -> None:
        """End the connection now. The reason is logged."""
        if not self.close_reason:
            self.close_reason = reason
            log.warning("closing connection", peer=self.peer, reason=reason)
        self.outbox.fail(reason)

    async def turn_away(self, answer: bytes, reason: str) -> None:
        """End the connection with a last answer, which the peer gets a moment to read. For a task
        of this session; the reason is logged."""
        self.handshake.refused()
        self.connected = False
        self._drop_input()
        self.close_reason = reason
        log.warning("connection refused", peer=self.peer, reason=reason)
        self.outbox.put(answer)
        with trio.move_on_after(GOODBYE_SECONDS_MAX):
            try:
                await self.outbox.wait_drained()
                self.outbox.finish(reason)
                await self._transport.finish_sending()
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
        with trio.CancelScope(shield=True):
            await in_slices(map(self._detach_producer, list(self.producers)))
            await in_slices(map(self._detach_consumer, list(self.consumers)))

    def _detach_producer(self, producer_id: int) -> None:
        producer = self.producers.pop(producer_id, None)
        if producer is not None:
            producer.remove()

    def _detach_consumer(self, consumer_id: int) -> None:
        consumer = self.consumers.pop(consumer_id, None)
        if consumer is not None:
            consumer.remove()

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
        if self._must_pause():
            return Taken.STOP
        return Taken.IN_PART if self._more else Taken.WHOLE

    def _handle_chunk(self, data: bytes) -> bool:
        """One turn, one journal kick, one flush, for the bytes of one receive or (without data) for
        those that an earlier turn has left. Returns whether some are left for another turn."""
        requests = 0
        self._last_kind = 0
        turns = self.connections.turns
        send_handler = self._send_handler
        turns.begin_turn()
        try:
            if data:
                if self._ack_target is not None:
                    data = self._take_ack_runs(data, self._ack_target)
                self._frames = self._decode(data) if data else iter(())
            frames = self._frames
            if self.limited_producers or self._waiting_sends:
                frames = self._as_admitted()
            for frame in frames:
                if isinstance(frame, Send):
                    send_handler.handle(self, frame)
                elif isinstance(frame, SendRun):
                    send_handler.handle_run(self, frame)
                elif frame is None:
                    return True  # a part of a long command is done
                elif isinstance(frame, LongCommand):
                    self._frames = chain(frame.parts(), self._frames)
                    return True
                else:
                    if isinstance(frame, PlainAck):
                        self._acknowledge(frame)
                        requests += len(frame.entry_ids) // ACKS_PER_REQUEST
                    else:
                        self._handle(frame[0])
                    requests += 1
                    if requests >= REQUESTS_PER_TURN:
                        return True
            if self._held_by is not None:
                return True
            if self._decoder.failure is not None:
                raise self._decoder.failure
            return False
        except Held:
            return True
        except (ConnectionRefused, RemoteProtocolError) as error:
            self.outbox.put(
                commands.error(commands.NO_REQUEST, ServerError.UnknownError, str(error))
            )
            raise
        finally:
            turns.end_turn()

    def _decode(self, data: bytes) -> Iterator[Frame]:
        """The frames that `data` completes. Without producers on the connection they are decoded
        piece by piece on demand, because requests take longer to decode than messages."""
        if self.producers or len(data) <= DECODED_PER_TURN_BYTES:
            return iter(self._decoder.feed(data))
        starts = range(0, len(data), DECODED_PER_TURN_BYTES)
        pieces = [data[start : start + DECODED_PER_TURN_BYTES] for start in starts]
        # Not a generator expression: compiled, it would decode all pieces at once.
        return chain.from_iterable(map(self._decoder.feed, pieces))

    def _as_admitted(self) -> Iterator[Frame | None]:
        """The frames up to the first message that a publish rate does not admit yet, without those
        that are refused."""
        admits, waiting = self._send_handler.admits, self._waiting_sends
        for frame in one_by_one(self._frames, waiting):
            if not isinstance(frame, Send) or admits(self, frame):
                yield frame
            elif self._held_by is not None:
                waiting.append(frame)
                return

    def _take_ack_runs(self, data: bytes, target: AckRunTarget) -> bytes:
        """The rest after the ACKs at the beginning have been taken."""
        runs, rest = self._decoder.take_ack_runs(data)
        if runs:
            self._last_kind = pb.BaseCommand.ACK
        for consumers, position in runs:
            target.ack_run(consumers, position)
        return rest

    def what_ran(self) -> str:
        """For the watchdog of the loop: the last request of the turn, or that it had none."""
        return f"session {COMMANDS[self._last_kind or pb.BaseCommand.SEND].name}"

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
        """Drop an unfinished frame and close the connection (Holder). The peer is told the reason
        if that is possible at once."""
        reason = (
            f"a frame of which {held_bytes} bytes came in {held_seconds:.1f} s was given up: the"
            " unfinished frames of all connections reached maxUnfinishedFramesSizeInMB; connect and"
            " send it again"
        )
        self._drop_input()
        self.outbox.put(commands.error(commands.NO_REQUEST, ServerError.TooManyRequests, reason))
        self.outbox.flush()
        self.close(reason)

    def _drop_input(self) -> None:
        """Handle nothing more of the bytes received."""
        self._decoder.forget()
        self._frames = iter(())
        self._waiting_sends.clear()
        if self.held_bytes:
            self.connections.unfinished_frames.holds(self, 0, 0.0)

    def _handle(self, command: pb.BaseCommand) -> None:
        self._last_kind = kind = command.type
        handle = self._handlers.get(kind)
        self.handshake.check(kind)
        if handle is None:
            raise ConnectionRefused(f"{COMMANDS[kind].name} cannot be served")
        try:
            rest = handle(self, getattr(command, COMMANDS[kind].field))
        except ConnectionRefused:
            raise
        except Held as held:
            self._hold(command, held.until)
            raise
        except Exception as error:
            self._refuse(command, error)
            return
        if rest is not None:
            self.start_rest(command, rest)

    def _acknowledge(self, ack: PlainAck) -> None:
        self._last_kind = kind = pb.BaseCommand.ACK
        self.handshake.check(kind)
        try:
            self._handle_plain_ack(self, ack)
        except Exception as error:
            self._refuse(ack.command(), error)

    def _hold(self, command: pb.BaseCommand, until: Coroutine[Any, Any, object]) -> None:
        """Handle nothing more until this has ended: reading pauses as with too many requests."""
        assert self._nursery is not None
        self._requests += self.limits.pending_requests_max + 1
        self._nursery.start_soon(self._end_hold, command, until)

    async def _end_hold(self, command: pb.BaseCommand, until: Coroutine[Any, Any, object]) -> None:
        try:
            await until
        except Exception as error:
            self.refuse(command, error)
        else:
            self._frames = chain(((command, None),), self._frames)
        finally:
            self._requests -= self.limits.pending_requests_max + 1
            self.resume()

    def start_rest(self, command: pb.BaseCommand, rest: Coroutine[Any, Any, None]) -> None:
        """Run the rest of a command, which will answer it, as a task of this session."""
        assert self._nursery is not None
        self._requests += 1
        self._nursery.start_soon(self._finish_request, command, rest)

    def request_begins(self) -> None:
        """A request is in progress outside of this session's tasks; `request_ends` follows."""
        self._requests += 1

    def request_ends(self) -> None:
        """The request no longer waits for anything."""
        self._requests -= 1
        self.resume()

    def start_wait(self, command: pb.BaseCommand, rest: Coroutine[Any, Any, None]) -> None:
        """As `start_rest`, for what may wait for other clients as long as they like. It does not
        count as a request in progress, because the connection must be read meanwhile: it may be the
        one that ends the wait. The caller bounds `waits`."""
        assert self._nursery is not None
        self.waits += 1
        self._nursery.start_soon(self._finish_wait, command, rest)

    async def _finish_wait(self, command: pb.BaseCommand, rest: Coroutine[Any, Any, None]) -> None:
        try:
            await rest
        except Exception as error:
            self.refuse(command, error)
        finally:
            self.waits -= 1

    async def _finish_request(
        self, command: pb.BaseCommand, rest: Coroutine[Any, Any, None]
    ) -> None:
        try:
            await rest
        except Exception as error:
            self.refuse(command, error)
        finally:
            self.request_ends()

    def refuse(self, command: pb.BaseCommand, error: Exception) -> None:
        """Answer a command with an error, outside of its turn."""
        if isinstance(error, ConnectionRefused):
            self.close(str(error))
        else:
            self._refuse(command, error)

    def _refuse(self, command: pb.BaseCommand, error: Exception) -> None:
        """The only place where a failure becomes an answer."""
        name = COMMANDS[command.type].name
        if isinstance(error, BrokerError):
            server_error, message = error.server_error, str(error)
        else:
            log.error("request failed", command=name, exc_info=error)
            server_error = ServerError.UnknownError
            message = f"the broker failed to handle {name}: {error!r}"
        answer = commands.refusal(command, server_error, message)
        if answer is not None:
            self.outbox.put(answer)
        elif not self._refused_silently:
            # Commands without an answer: one line per connection shows the problem.
            self._refused_silently = True
            log.warning("refused", peer=self.peer, command=name, reason=message)

    # --- back-pressure ------------------------------------------------------------------

    @property
    def reading_paused(self) -> bool:
        """Whether the peer is not read for now (Holder)."""
        return self._paused is not None

    def _must_pause(self) -> bool:
        limits = self.limits
        return (
            self.publishes.too_many
            or self._requests > limits.pending_requests_max
            or self.outbox.pending_bytes > limits.output_pause_reading_bytes
            or self._held_by is not None
        )

    def _may_resume(self) -> bool:
        limits = self.limits
        return (
            self.publishes.few
            and self._requests <= limits.pending_requests_max // 2
            and self.outbox.pending_bytes <= limits.output_pause_reading_bytes // 2
            and self._held_by is None
        )

    def admitted_by(self, limits: tuple[PublishLimit, ...], messages: int, size_bytes: int) -> bool:
        """Whether all limits admit the next message. If not, the connection is not read until they
        do, and then asks again for the same message."""
        while self._limits_passed < len(limits):
            limit = limits[self._limits_passed]
            if not limit.admits(self, messages, size_bytes):
                self._held_by = limit
                self._was_held = True
                return False
            self._limits_passed += 1
        self._limits_passed = 0
        return True

    def publish_admitted(self) -> None:
        """The limit that held the next message admits it (PublishingConnection)."""
        self._limits_passed += 1
        self._held_by = None
        self.resume()

    def limits_changed(self) -> None:
        """The limits of a producer are others now: ask them again."""
        if self._held_by is not None:
            self._held_by.forget(self)
            self._held_by = None
            self._limits_passed = 0
            self.resume()

    async def _wait_resumed(self) -> None:
        self._paused = trio.Event()
        self.publishes.call_when_free(self.resume)
        await self._paused.wait()
        self.keep_alive.received(self.connections.clock.now())

    def resume(self) -> None:
        """Some work has finished: resume reading if there is room again."""
        paused = self._paused
        if paused is not None and (self.outbox.failed or self._may_resume()):
            self._paused = None
            paused.set()

    def publish_answered(self, receipts: bytes, count: int, size_bytes: int) -> None:
        """Send the joined receipts of `count` durable messages. `size_bytes` is the size of the
        messages."""
        self.outbox.put(receipts)
        self.publish_done(count, size_bytes)

    def publish_done(self, count: int, size_bytes: int) -> None:
        """So many messages have been answered."""
        self.publishes.answered(count, size_bytes)
        if self._paused is not None:
            self.resume()

    def _outbox_drained(self) -> None:
        self.resume()
        told: object = None
        for consumer in list(self.consumers.values()):
            group = consumer.writable_group
            if group is not told:
                told = group
                consumer.on_writable()

    def check_deadlines(self, now: float) -> None:
        """Check keep-alive, the handshake deadline and stalled output. Called every few seconds."""
        outbox = self.outbox
        if self._output_stall.check(outbox.pending_bytes, outbox.sent_bytes_total, now):
            self.close(
                f"the peer has taken nothing for {self.limits.output_stall_seconds_max:.0f} s"
                f" while {outbox.pending_bytes} bytes wait for it"
            )
            return
        if self._held_by is not None:
            # The client's own PINGs are not read, and it must not give the broker up.
            if self.keep_alive.ping_due_while_unread(now):
                self.outbox.put(commands.ping())
            return
        if self.reading_paused:
            return
        action = self.keep_alive.check(now)
        if action is KeepAliveAction.SEND_PING:
            self.outbox.put(commands.ping())
        elif action is KeepAliveAction.CLOSE_SILENT:
            self.close("no sign of life: the keep-alive PING was not answered in time")
        elif action is KeepAliveAction.CLOSE_NO_HANDSHAKE:
            self.close("no CONNECT within the time allowed for the handshake")

    def check_credential(self, wall_seconds: float) -> None:
        """Ask for a new credential if this one has expired, or end the connection. Called every
        `authenticationRefreshCheckSeconds`."""
        lease = self.lease
        if lease is None:
            return
        # While a publish rate holds it, an answer is not read.
        action = lease.check(wall_seconds, was_unread=self._was_held)
        self._was_held = self._held_by is not None
        if action is LeaseAction.CHALLENGE:
            method = lease.identity.method
            self.outbox.put(commands.auth_challenge(self.protocol_version, method))
        elif action is LeaseAction.CLOSE_CANNOT_RENEW:
            self.close("the credential has expired, and the client cannot renew it")
        elif action is LeaseAction.CLOSE_NO_ANSWER:
            self.close("the credential has expired, and AUTH_CHALLENGE was not answered in time")

    async def is_alive(self, timeout_seconds: float) -> bool:
        """Probe the peer, to find out whether the objects of this session are still in use."""
        if self.outbox.failed:
            return False
        clock = self.connections.clock
        asked = clock.now()
        self.outbox.put(commands.ping())
        self.keep_alive.ping_sent(asked)
        deadline = trio.current_time() + timeout_seconds
        while trio.current_time() < deadline:
            await trio.sleep(min(0.05, timeout_seconds))
            if self.outbox.failed:
                return False
            if self._held_by is not None or self.keep_alive.received_since(asked):
                return True  # held, its answer is not read: all that can be seen is that it is up
        return False

    # --- what topics and subscriptions use ----------------------------------------------

    @property
    def writable(self) -> bool:
        """False while the outbox is over its high-water mark."""
        return self.outbox.writable

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

    @property
    def supports_broker_entry_metadata(self) -> bool:
        """Whether the client asked for 0x0e02 headers."""
        return "supports_broker_entry_metadata" in self.handshake.client_features

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

    def send_many(self, buffers: list[bytes]) -> None:
        """Queue the buffers of many frames at once, in order."""
        self.outbox.put_many(buffers, sum(map(len, buffers)))

    def disconnect_consumer(self, consumer: ConsumerWithId) -> None:
        """Remove the consumer and send CLOSE_CONSUMER. The client looks up and subscribes again."""
        attached = self.consumers.get(consumer.consumer_id)
        if attached is not None and attached.consumer is consumer:
            del self.consumers[consumer.consumer_id]
            self.outbox.put(commands.close_consumer(consumer.consumer_id, commands.NO_REQUEST))

    def disconnect_producer(self, producer: ProducerWithId) -> None:
        """Remove the producer and send CLOSE_PRODUCER. The client looks up and creates it again."""
        held: object = self.producers.get(producer.producer_id)
        if held is not producer:
            return
        del self.producers[producer.producer_id]
        self.closed_producers.add(producer.producer_id)
        self.outbox.put(commands.close_producer(producer.producer_id, commands.NO_REQUEST))


AnySession = Session[Any, Any]
"""A connection, for code that does not use the objects opened on it."""
