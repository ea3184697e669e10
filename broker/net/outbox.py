"""The output of a connection: ordered, bounded and batched.

All output put during one turn of the event loop leaves with one system call. The outbox announces
that it has new output and is flushed when the turn ends (`broker.ground.turn`).

Large buffers are never copied. Small ones are joined: measured on loopback, joining is faster below
about 1 KB per buffer and `sendmsg` of separate buffers above. A strip of frames with one payload
(`broker.net.strip`) is one piece of output, which sends itself.

What the kernel does not take follows when the socket has room: the transport calls (`_room`), or
the writer task waits for it (`run`) where a transport cannot call.

Invariants: bytes leave in the order in which they were put; `pending_bytes` is the sum of the
buffers and strips that the kernel has not yet taken; while the kernel takes no more (`_stalled`),
only `_room` or the writer task sends, and the bytes count in the budget of all connections.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, final

import trio

from runtime.rounds import heavy_rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.ground.turn import Turns
    from broker.limits.output_budget import OutputBudget
    from broker.net.strip import FrameStrip
    from runtime.transport import Transport

Buffer = bytes | memoryview

BUFFERS_PER_CALL_MAX = 1024
"""IOV_MAX of Linux."""
JOIN_BELOW_BYTES = 1024
"""Average buffer size below which joining is cheaper than a vector of buffers."""
SEND_BYTES_MAX = 1024 * 1024
"""The most one step sends: within the turn, and each time the socket has room after that. It takes
half a millisecond, and on loopback a part of the receiver's work is in it."""

YIELDING_SEND_BYTES_MAX = 256 * 1024
"""The same when the socket has room, while messages are being published (`runtime.rounds`)."""

STRIP_REST_SHARE: Final = 8
"""A strip is sent whole if it passes the bound of a step by no more than this part of it: a strip
is cut for one step, and its last message passes the bound."""


def _nothing() -> None:
    """The callback before the owner has set one."""


def _strip_bytes(strip: FrameStrip, bytes_max: int) -> int:
    """How much of a strip one step sends (STRIP_REST_SHARE)."""
    if strip.size_bytes <= bytes_max + bytes_max // STRIP_REST_SHARE:
        return strip.size_bytes
    return bytes_max


@final
class Outbox:
    """Pending output of one connection."""

    __slots__ = (
        "_back",
        "_budget",
        "_buffers",
        "_closed",
        "_drained",
        "_failed",
        "_marked",
        "_on_writable",
        "_sent_bytes_total",
        "_stalled",
        "_start_writer",
        "_strips",
        "_transport",
        "_turns",
        "_wake",
        "held_bytes",
        "held_since",
        "moved_at",
        "pending_bytes",
        "writable",
    )

    def __init__(
        self,
        transport: Transport,
        turns: Turns,
        budget: OutputBudget,
        on_writable: Callable[[], None],
        start_writer: Callable[[], None] = _nothing,
    ) -> None:
        """`budget`: of all connections of the broker, with their bounds. `start_writer` is called
        once, when a writer task (`run`) is first needed."""
        self._transport = transport
        self._turns = turns
        self._budget = budget
        self._on_writable = on_writable
        self._start_writer = start_writer
        self._buffers: deque[Buffer] = deque()
        """What comes before the first strip."""
        self._strips: deque[tuple[FrameStrip, deque[Buffer]]] = deque()
        """Each with the buffers that follow it."""
        self._back = self._buffers
        """The buffers after the last strip."""
        self._drained: trio.Event | None = None
        self._marked = False
        self._stalled = False
        self._closed = False
        self._failed = ""
        self._wake = trio.Event()
        self._sent_bytes_total = 0
        self.pending_bytes = 0
        self.writable = True
        self.held_bytes = 0
        """The bytes that count in the budget (Holder)."""
        self.held_since = 0.0
        """When the kernel began to take no more (Holder)."""
        self.moved_at = 0.0
        """When it last took some (Holder)."""

    @property
    def reading_paused(self) -> bool:
        """See Holder. That its peer is not read is no excuse for one that does not read."""
        return False

    @property
    def is_too_full_to_read(self) -> bool:
        """Whether answers to further requests would only pile up. `on_writable` follows."""
        return not self.writable and self.pending_bytes > self._budget.pause_reading_bytes

    @property
    def sent_bytes_total(self) -> int:
        """Bytes taken by the kernel so far. They distinguish a stalled peer from a slow one."""
        return self._sent_bytes_total

    @property
    def peer(self) -> str:
        """`host:port` of the other side."""
        return self._transport.peer

    @property
    def failed(self) -> str:
        """Why nothing can be sent any more; empty while the connection is good."""
        return self._failed

    def append(self, *buffers: Buffer) -> None:
        """Append to the output, which is sent at the end of the turn. Dropped once the peer has
        gone."""
        if self._failed:
            return
        size = 0
        for buffer in buffers:
            size += len(buffer)
        self._back.extend(buffers)
        self.pending_bytes += size
        if not self._marked:
            self._marked = True
            self._turns.has_output(self)
        if self.pending_bytes > self._budget.high_water_bytes:
            self._pass_high_water()

    def append_many(self, buffers: Iterable[Buffer], size_bytes: int) -> None:
        """Like `append`, for a caller that already knows the total size of the buffers."""
        if self._failed:
            return
        self._back.extend(buffers)
        self.pending_bytes += size_bytes
        if not self._marked:
            self._marked = True
            self._turns.has_output(self)
        if self.pending_bytes > self._budget.high_water_bytes:
            self._pass_high_water()

    def append_strip(self, strip: FrameStrip) -> None:
        """Like `append`, for a strip of which nothing has been sent."""
        if self._failed:
            return
        self._back = deque()
        self._strips.append((strip, self._back))
        self.pending_bytes += strip.size_bytes
        if not self._marked:
            self._marked = True
            self._turns.has_output(self)
        if self.pending_bytes > self._budget.high_water_bytes:
            self._pass_high_water()

    def _pass_high_water(self) -> None:
        self.writable = False
        hard_limit_bytes = self._budget.hard_limit_bytes
        if self.pending_bytes > hard_limit_bytes:
            self.fail(
                f"the peer does not read: {self.pending_bytes} bytes are waiting for it,"
                f" the bound is {hard_limit_bytes}"
            )

    def finish(self, reason: str) -> None:
        """Accept no more output, because the peer has been notified that no more follows. Later
        puts are dropped. The connection stays open until `fail`."""
        self._failed = self._failed or reason

    def fail(self, reason: str) -> None:
        """Drop all output and close the connection. The reader of the session notices."""
        if self._closed:
            return
        self._closed = True
        self._failed = self._failed or reason
        self._clear()
        self.pending_bytes = 0
        self._count()
        self._wake.set()
        self._report_drained()
        # There is nothing more to report, so the reference to the owner, which holds this object,
        # is dropped. Both are then freed when the last of their tasks has ended.
        self._on_writable = self._start_writer = _nothing
        self._transport.close()

    def flush(self) -> None:
        """Send as much as the kernel takes now. The rest follows when there is room."""
        self._marked = False
        if self._stalled or self._failed:
            if self._stalled:
                self._count()
            return
        try:
            is_full = self._send_inline(SEND_BYTES_MAX)
            if self.pending_bytes:
                self._stalled = True
                self.held_since = self.moved_at = self._budget.now()
                self._count()
                self._wait_for_room(is_full=is_full)
        except trio.BrokenResourceError as error:
            self.fail(f"sending failed: {error}")

    def _wait_for_room(self, *, is_full: bool) -> None:
        if self._failed or self._transport.call_when_writable(self._room, is_full=is_full):
            return
        self._wake.set()
        start, self._start_writer = self._start_writer, _nothing
        start()

    def _room(self) -> None:
        """The socket takes more: the transport calls."""
        try:
            self._go_on()
        except Exception as error:
            self._turns.cannot_send(self, error)

    def _go_on(self) -> None:
        if self._failed or not self._stalled:
            return
        is_yielding = heavy_rounds().is_yielding
        try:
            is_full = self._send_inline(YIELDING_SEND_BYTES_MAX if is_yielding else SEND_BYTES_MAX)
            if self._failed:
                return
            self.moved_at = self._budget.now()
            self._count()
            if self.pending_bytes:
                self._wait_for_room(is_full=is_full)
            else:
                self._stalled = False
        except trio.BrokenResourceError as error:
            self.fail(f"sending failed: {error}")

    def _count(self) -> None:
        """Tell the budget what waits. It may give this connection up, or others."""
        if self.held_bytes != self.pending_bytes:
            self._budget.holds(self, self.pending_bytes)

    def give_up(self, held_bytes: int, held_seconds: float) -> None:
        """Close the connection (Holder)."""
        self.fail(
            f"{held_bytes} bytes have waited for the peer for {held_seconds:.1f} s, and the output"
            " of all connections has reached its bound"
        )

    def _send_inline(self, budget_bytes: int) -> bool:
        """Send so much. Returns whether the kernel has refused some of it."""
        while self.pending_bytes and budget_bytes > 0:
            if self._buffers:
                batch, size = self._next_batch(budget_bytes)
                taken = self._transport.send_nowait(batch)
                self._took(taken)
            else:
                strip = self._strips[0][0]
                size = _strip_bytes(strip, budget_bytes)
                taken = self._transport.send_strip_nowait(strip, size)
                self._took_of_strip(taken)
            if taken < size:
                return True
            budget_bytes -= size
        return False

    def _next_batch(self, bytes_max: int) -> tuple[list[Buffer], int]:
        """The next buffers to hand to the kernel (still queued), joined if that is cheaper."""
        buffers = self._buffers
        is_all = not self._strips and self.pending_bytes <= bytes_max
        if is_all and len(buffers) <= BUFFERS_PER_CALL_MAX:
            batch = list(buffers)
            size = self.pending_bytes
        else:
            batch = []
            size = 0
            for buffer in islice(buffers, BUFFERS_PER_CALL_MAX):
                batch.append(buffer)
                size += len(buffer)
                if size >= bytes_max:
                    batch[-1] = memoryview(buffer)[: len(buffer) - (size - bytes_max)]
                    size = bytes_max
                    break
        if len(batch) > 1 and size < JOIN_BELOW_BYTES * len(batch):
            batch = [b"".join(batch)]
        return batch, size

    def _took(self, count: int) -> None:
        """Remove `count` bytes from the buffers at the front."""
        buffers = self._buffers
        if count == self.pending_bytes:
            buffers.clear()
        left = count
        while buffers:
            size = len(buffers[0])
            if size > left:
                if left:
                    buffers[0] = memoryview(buffers[0])[left:]
                break
            left -= size
            buffers.popleft()
        self._sent(count)

    def _took_of_strip(self, count: int) -> None:
        """Remove `count` bytes from the strip at the front."""
        strip = self._strips[0][0]
        strip.took(count)
        if not strip.size_bytes:
            self._buffers = self._strips.popleft()[1]
        self._sent(count)

    def _sent(self, count: int) -> None:
        """So many bytes have left."""
        self._sent_bytes_total += count
        self.pending_bytes -= count
        if self.pending_bytes == 0:
            self._report_drained()
        if not self.writable and self.pending_bytes <= self._budget.low_water_bytes:
            self.writable = True
            self._on_writable()

    async def run(self) -> None:
        """The writer task: sends the rest of flushes until the connection fails."""
        rounds = heavy_rounds()
        while not self._failed:
            await self._wake.wait()
            self._wake = trio.Event()
            try:
                while self.pending_bytes and not self._failed:
                    most = YIELDING_SEND_BYTES_MAX if rounds.is_yielding else SEND_BYTES_MAX
                    if self._buffers:
                        batch, size = self._next_batch(most)
                        taken = await self._transport.send(batch) if size else 0
                        if self._failed:
                            break
                        self._took(taken)
                    else:
                        strip = self._strips[0][0]
                        size = _strip_bytes(strip, most)
                        taken = await self._transport.send_strip(strip, size)
                        if self._failed:
                            break
                        self._took_of_strip(taken)
                    self.moved_at = self._budget.now()
                    self._count()
            except trio.BrokenResourceError as error:
                self.fail(f"sending failed: {error}")
            self._stalled = False

    def _clear(self) -> None:
        self._buffers.clear()
        self._strips.clear()
        self._back = self._buffers

    def _report_drained(self) -> None:
        if self._drained is not None:
            self._drained.set()
            self._drained = None

    async def wait_drained(self) -> None:
        """Return when all output put so far has left or can no longer leave."""
        self.flush()
        while self.pending_bytes and not self._failed:
            if self._drained is None:
                self._drained = trio.Event()
            await self._drained.wait()
