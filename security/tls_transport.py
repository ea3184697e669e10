"""TlsTransport: a Transport that encrypts, over another one that moves the records.

OpenSSL works on memory (`ssl.MemoryBIO`), so that nothing here needs a task: the transport below
calls with the records that came, as `runtime.readers` finds them, and the handshakes of hundreds of
clients share the turns of the event loop with all other reads.

Reading: what one receive brought is given to OpenSSL in pieces and decrypted up to a bound per
turn. A receiver that stops gets the rest when it calls again.

Sending: a slice of what is given is encrypted and handed down. If the transport below does not take
all of its records, the rest is kept, and nothing more is encrypted. The bytes of that slice count
as taken in proportion to the records that have left, and the last byte when all have left. A caller
that keeps the bytes not taken and gives them again therefore keeps some until all are sent, and
needs no other signal. It must give the same bytes again: those of the slice are not encrypted
twice.

Invariants: records leave in the order in which OpenSSL made them; the records not taken are those
of one slice and those that OpenSSL sends of its own accord (alerts, key updates); above a bound on
the latter nothing is read.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast, final

import structlog
import trio

from runtime.readers import STRANGERS
from runtime.send_queue import SendQueue
from runtime.transport import Taken, share_of
from runtime.watchdog import callback_name
from security.handshakes import BEGUN_BYTES, DECRYPTED_BYTES_MAX, HANDSHAKE_BYTES_MAX
from security.openssl import FED_BYTES, FED_BYTES_MIN, GAIN_MIN, READS_PER_TURN, reason_of
from security.slices import SliceUnderWay, slices_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runtime.transport import Strip, Take, Transport
    from security.handshakes import Handshakes

    ReadInto = Callable[[int, memoryview], int]

log = structlog.get_logger()

SLICE_BYTES: Final = 64 * 1024
"""Encrypted at a time: four records."""
UNSENT_BYTES_MAX: Final = 2 * SLICE_BYTES
GOODBYE_SECONDS_MAX: Final = 1.0
"""How long a peer whose handshake failed has to read the alert."""
NO_TLS_ALERT: Final = bytes.fromhex("15030300020246")
"""A record of a fatal alert, protocol_version (RFC 8446 6). OpenSSL is silent to a peer that does
not speak TLS."""


def _take_nothing(_data: bytes | None) -> Taken:
    """The receiver while there is none."""
    return Taken.STOP


class HandshakeFailed(trio.BrokenResourceError):
    """The peer and this side do not agree on TLS. The connection is of no use."""


@final
class TlsTransport:
    """One side of a connection: the server's, unless `of_client` has made it. See the module
    docstring."""

    __slots__ = (
        "_below",
        "_context",
        "_engine",
        "_failure",
        "_fed",
        "_fed_bytes",
        "_handshakes",
        "_has_rest",
        "_incoming",
        "_is_closed",
        "_is_ended",
        "_is_finished",
        "_is_left",
        "_is_secure",
        "_is_stopped",
        "_outgoing",
        "_peer_certificate",
        "_received",
        "_securing",
        "_sending",
        "_take",
        "_under_way",
        "_unsent",
        "held_bytes",
        "held_since",
        "moved_at",
        "peer",
    )

    def __init__(self, below: Transport, context: ssl.SSLContext, handshakes: Handshakes) -> None:
        self.peer = below.peer
        self._below = below
        self._context = context
        self._handshakes = handshakes
        self._engine: ssl.SSLObject | None = None
        """Made when the first bytes come: until then a silent peer costs no more than without
        TLS."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._is_secure = False
        self._peer_certificate: bytes | None = None
        self._securing = trio.Lock()
        self._is_finished = False
        self._is_closed = False
        self._failure = ""
        """Why nothing can be read any more."""
        # Reading.
        self._take: Take = _take_nothing
        self._is_left = False
        """`take` has a rest of its last piece."""
        self._is_stopped = False
        self._has_rest = False
        """More can be decrypted of what has come."""
        self._received = b""
        self._fed = 0
        """Bytes of `_received` that OpenSSL has."""
        self._fed_bytes = FED_BYTES_MIN
        self._is_ended = False
        """The peer has closed."""
        # Sending.
        self._unsent = SendQueue()
        self._sending = trio.Lock()
        self._under_way = SliceUnderWay()
        # The handshake (Holder).
        self.held_bytes = 0
        self.held_since = 0.0
        self.moved_at = 0.0

    @classmethod
    def of_client(
        cls, below: Transport, context: ssl.SSLContext, handshakes: Handshakes, host: str
    ) -> TlsTransport:
        """The client's side, which begins the handshake. `host` is the name of the server."""
        transport = cls(below, context, handshakes)
        engine = context.wrap_bio(transport._incoming, transport._outgoing, server_hostname=host)
        transport._engine = engine
        with suppress(ssl.SSLWantReadError):
            engine.do_handshake()
        transport._queue_records()
        return transport

    # --- the handshake ------------------------------------------------------------------

    @property
    def peer_certificate(self) -> bytes | None:
        """See Transport. Kept, because OpenSSL has none once the connection is broken, and the
        requests that came before are still handled."""
        return self._peer_certificate

    @property
    def reading_paused(self) -> bool:
        """A handshake is always read (Holder)."""
        return False

    def give_up(self, held_bytes: int, held_seconds: float) -> None:
        """Close: too many handshakes are unfinished (Holder)."""
        self._failed(
            f"given up after {held_seconds:.1f} s with {held_bytes} bytes: too many are unfinished"
        )
        self.close()

    async def secure(self) -> None:
        """Finish the handshake. Other calls do so by themselves.

        Raises: HandshakeFailed, trio.BrokenResourceError.
        """
        if self._is_secure:
            return
        async with self._securing:  # a sender may wait for it as well as a receiver
            self._below.use_share(STRANGERS)
            while not self._is_secure:
                if self._failure:
                    raise HandshakeFailed(self._failure)
                try:
                    await self._below.receive_into(self._take_handshake)
                    await self._send_unsent()
                except HandshakeFailed:
                    await self._say_goodbye()
                    raise
            self._below.use_share(share_of(self.peer))

    def _take_handshake(self, data: bytes | None) -> Taken:
        assert data is not None
        if not data:
            raise self._failed("the peer has closed the connection")
        self._hold(len(data))
        if self._failure:
            raise HandshakeFailed(self._failure)
        engine = self._engine
        if engine is None:
            engine = self._engine = self._context.wrap_bio(
                self._incoming, self._outgoing, server_side=True
            )
        self._incoming.write(data)
        try:
            engine.do_handshake()
        except ssl.SSLWantReadError:
            self._queue_records()
            if self.held_bytes > BEGUN_BYTES + HANDSHAKE_BYTES_MAX:
                raise self._failed("the peer has sent too much") from None
            return Taken.STOP if self._unsent.pending_bytes else Taken.WHOLE
        except ssl.SSLError as error:
            if not self._outgoing.pending:
                self._outgoing_alert()
            self._queue_records()
            raise self._failed(reason_of(error)) from None
        self._is_secure = self._has_rest = True
        self._peer_certificate = engine.getpeercert(binary_form=True)
        self._handshakes.finished_total += 1
        self._release()
        self._queue_records()
        return Taken.STOP

    def _outgoing_alert(self) -> None:
        self._unsent.append([NO_TLS_ALERT], len(NO_TLS_ALERT))
        self._unsent.send_to(self._below)

    def _hold(self, received_bytes: int) -> None:
        now = trio.current_time()
        self.moved_at = now
        if not self.held_bytes:
            self.held_since = now
        held = (self.held_bytes or BEGUN_BYTES) + received_bytes
        self._handshakes.unfinished.holds(self, held, now)

    def _release(self) -> None:
        if self.held_bytes:
            self._handshakes.unfinished.holds(self, 0, 0.0)

    def _failed(self, reason: str) -> HandshakeFailed:
        """Count and log. Peers that left without an alert are not counted as failures."""
        self._failure = f"TLS handshake failed: {reason}"
        self._handshakes.failed_total += 1
        tell = log.debug if self._engine is None else log.warning
        tell("TLS handshake failed", peer=self.peer, reason=reason)
        self._release()
        return HandshakeFailed(self._failure)

    async def _say_goodbye(self) -> None:
        """A close with unread input would reset the connection, and lose the alert."""
        with trio.move_on_after(GOODBYE_SECONDS_MAX), suppress(trio.BrokenResourceError):
            await self._send_unsent()
            await self._below.finish_sending()
            while await self._below.receive():
                pass

    # --- reading ------------------------------------------------------------------------

    async def receive(self) -> bytes:
        """The next bytes; empty when the other side has closed."""
        await self.secure()
        while not self._is_finished:
            await self._send_unsent_if_many()
            piece = self._decrypt() if self._has_rest else None
            if piece is None and not self._has_rest:
                self._arrived(await self._below.receive())
                continue
            await trio.lowlevel.checkpoint()
            if piece is not None:
                return piece
        while await self._below.receive():
            pass  # after `finish_sending` it is only of interest that the peer closes
        return b""

    async def receive_into(self, take: Take, *, is_left: bool = False) -> None:
        """See Transport."""
        await self.secure()
        self._take, self._is_left, self._is_stopped = take, is_left, False
        try:
            while not self._is_stopped:
                await self._send_unsent_if_many()
                has_rest = self._is_left or self._has_rest
                await self._below.receive_into(self._take_records, is_left=has_rest)
        finally:
            self._take = _take_nothing  # a receiver and its transport are freed at once

    def _take_records(self, data: bytes | None) -> Taken:
        if data is not None:
            self._arrived(data)
        if self._is_left:
            taken = self._take(None)
        else:
            piece = self._decrypt()
            taken = Taken.WHOLE if piece is None else self._take(piece)
        self._is_left = taken is Taken.IN_PART
        if taken is Taken.STOP:
            self._is_stopped = True
            return taken
        if self._unsent.pending_bytes > UNSENT_BYTES_MAX:
            return Taken.STOP
        return Taken.IN_PART if self._is_left or self._has_rest else taken

    def what_ran(self) -> str:
        """For the watchdog of the loop: what its receiver did with the last bytes."""
        return f"TLS {callback_name(self._take)}"

    def _arrived(self, data: bytes) -> None:
        """From below; empty: the other side has closed."""
        self._has_rest = True
        if data:
            self._received, self._fed = data, 0
        else:
            self._is_ended = True

    def _decrypt(self) -> bytes | None:
        """The next piece; empty: the peer has closed; None: more has to come.

        Raises: trio.BrokenResourceError: it is not what the peer has encrypted.
        """
        engine, scratch = self._engine, self._handshakes.scratch
        assert engine is not None
        read = cast("ReadInto", engine.read)
        if self._failure:
            raise trio.BrokenResourceError(self._failure)
        self._has_rest = True
        size = reads = fed = begin = 0
        while size < DECRYPTED_BYTES_MAX and reads < READS_PER_TURN:
            if not self._incoming.pending and not engine.pending():
                fed, begin = self._feed(fed, size - begin), size
                if not fed:
                    self._has_rest = False
                    break
            reads += 1
            try:
                count = read(DECRYPTED_BYTES_MAX - size, scratch[size:])
            except ssl.SSLWantReadError:
                is_poor = size - begin < GAIN_MIN * fed
                fed, begin = self._feed(fed, size - begin), size
                if not fed or is_poor:
                    self._has_rest = fed > 0
                    break
                continue
            except ssl.SSLZeroReturnError:
                count = 0
            except ssl.SSLError as error:
                self._failure = f"TLS: {reason_of(error)}"
                log.warning("TLS connection broken", peer=self.peer, reason=reason_of(error))
                self._queue_records()
                if not size:
                    raise trio.BrokenResourceError(self._failure) from None
                break  # what came before is good
            if not count:
                self._is_ended = True
                self._has_rest = False
                break
            size += count
        if self._outgoing.pending:
            self._queue_records()
        if size:
            self._has_rest = self._has_rest or self._is_ended
            return bytes(scratch[:size])
        return b"" if self._is_ended and not self._has_rest else None

    def _feed(self, fed: int, gained: int) -> int:
        """Give OpenSSL more of what has come, after it was fed so many bytes and has decrypted so
        many of them. Returns how many there were."""
        if fed:
            self._fed_bytes = FED_BYTES_MIN if gained < GAIN_MIN * fed else FED_BYTES
        received, begin = self._received, self._fed
        if begin == len(received):
            return 0
        end = min(len(received), begin + self._fed_bytes)
        if not begin and end >= len(received):
            self._incoming.write(received)
        else:
            self._incoming.write(memoryview(received)[begin:end])
        self._fed = end
        if end == len(received):
            self._received, self._fed = b"", 0
        return end - begin

    # --- sending ------------------------------------------------------------------------

    def send_nowait(self, buffers: Sequence[bytes | memoryview]) -> int:
        """Returns the number of bytes taken; 0 means not now."""
        if self._failure or self._is_finished or self._is_closed:
            raise trio.BrokenResourceError(self._failure or "connection closed")
        if not self._is_secure:
            return 0
        self._flush()
        taken = self._under_way.newly_taken(self._unsent.pending_bytes)
        if self._unsent.pending_bytes:
            return taken
        for pieces, size in slices_of(buffers, taken, SLICE_BYTES):
            records = self._encrypt(pieces)
            sent = self._below.send_nowait([records])
            if sent < len(records):
                self._unsent.append([memoryview(records)[sent:]], len(records) - sent)
                self._under_way.begin(size, len(records))
                return taken + self._under_way.newly_taken(self._unsent.pending_bytes)
            taken += size
        return taken

    def _encrypt(self, pieces: list[bytes | memoryview]) -> bytes:
        assert self._engine is not None
        try:
            self._engine.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        except ssl.SSLError as error:
            raise trio.BrokenResourceError(f"TLS: {reason_of(error)}") from None
        return self._outgoing.read()

    async def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        """Like `send_nowait`, but waits until at least one byte is taken."""
        await self.secure()
        await trio.lowlevel.checkpoint()
        while not (taken := self.send_nowait(buffers)):
            await self._send_some()
        return taken

    def send_strip_nowait(self, strip: Strip, bytes_max: int) -> int:
        """See Transport."""
        return self.send_nowait(strip.buffers(bytes_max))

    async def send_strip(self, strip: Strip, bytes_max: int) -> int:
        """See Transport."""
        return await self.send(strip.buffers(bytes_max))

    def call_when_writable(self, call: Callable[[], object], *, is_full: bool) -> bool:
        """Its records have to be waited for."""
        del call, is_full
        return False

    def _queue_records(self) -> None:
        """Queue the records that OpenSSL sends of its own accord."""
        if self._outgoing.pending:
            records = self._outgoing.read()
            self._unsent.append([records], len(records))
            self._under_way.records_follow(len(records))
        self._flush()

    def _flush(self) -> None:
        """Unless a task waits to send the very same records."""
        if self._unsent.pending_bytes and not self._sending.locked():
            self._unsent.send_to(self._below)

    async def _send_some(self) -> None:
        """Wait until some of the records have left, if there are any."""
        async with self._sending:
            if self._unsent.pending_bytes:
                self._unsent.took(await self._below.send(self._unsent.batch()))

    async def _send_unsent(self) -> None:
        while self._unsent.pending_bytes:
            await self._send_some()

    async def _send_unsent_if_many(self) -> None:
        while self._unsent.pending_bytes > UNSENT_BYTES_MAX:
            await self._send_some()

    # --- the end ------------------------------------------------------------------------

    async def finish_sending(self) -> None:
        """Say that no more follows, in TLS and below. What the peer still sends is dropped."""
        await self._send_unsent()
        self._close_notify()
        await self._send_unsent()
        await self._below.finish_sending()

    def _close_notify(self) -> None:
        """Queue it, once."""
        if self._engine is None or not self._is_secure or self._is_finished:
            return
        self._is_finished = True
        with suppress(ssl.SSLError, OSError):  # the answer has not come, or nothing can be said
            self._engine.unwrap()
        self._queue_records()

    def use_share(self, share: str) -> None:
        """See Transport."""
        self._below.use_share(share)

    def close(self) -> None:
        """Close at once. Wakes a blocked `send` and `receive`."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self._is_secure and not self._failure:
            self._handshakes.failed_total += 1
        self._release()
        if not self._unsent.pending_bytes:
            with suppress(trio.BrokenResourceError):
                self._close_notify()
        self._below.close()
