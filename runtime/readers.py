"""Finds the connections with data to read, and calls them, without a task for each.

If each connection had its own waiting task, every arrival would cost about 15 us: to register the
socket again, to wake the task and to walk down to the place where it waits. When ten thousand
connections acknowledge the same message, that exceeds the work itself. The sockets therefore stay
in one epoll set, and the loop waits in this set (`runtime.loop_wait`): the readers are called
without a turn of trio. Where that is not possible one task waits for the set, which is itself
readable as soon as one of its sockets has something new. A reader never waits and never raises.

The set is edge-triggered: it reports the input since the last report. A socket that waits for its
call is therefore not reported again, and one that has just become readable is found at once,
however many others wait. A reader that has not emptied its socket asks for another call
(`call_again`). After the peer has closed there is always something to read, until the reader has
noticed.

Fairness: each connection belongs to a share (its tenant, or the address of a peer that is not known
better), and the shares are served in turns (`runtime.fair_queue`). A call costs its share the bytes
that it read, and `CALL_BYTES` more, so that small requests and large chunks count. Within a share,
connections that read much are a flow of their own: a publisher does not wait for a hundred busy
connections of its tenant. The measure is bytes read and not time, because a call also sends output
that others have queued in the same turn.

Strangers: anyone can begin a handshake, and each of its calls takes a millisecond. All connections
in their handshake are one share together (`STRANGERS`), in which a call costs all that a share may
use before others, and a turn has `STRANGERS_PER_TURN_MAX` such calls at most.

Patience: a reader may declare that nobody waits for its next input (`be_patient`), and for how long
its next call may wait (`runtime.patience`). Until then the set does not report its input, as each
report would wake the loop. This happens only if the loop waits in the set, because only that wait
can end after so short a time.

Writing: a sender whose socket takes no more is called by the same set when there is room
(`call_when_writable`, `runtime.writers`), after the readers of the turn.

Steps: long work that is divided into short steps has them in the turns (`call_in_turns`), after
the readers and writers. A task would need a turn of trio for each of its steps. A turn has one
step, and further ones until they have taken `STEPS_SHARE` times as long as everything before them
in the turn, or `STEPS_SECONDS_MAX`. Delivery of backlogs is such work: it gets two thirds of the
time of a loop that is busy with reading, and publishers that are faster than delivery are held
back. Where little is read, each step is followed by a look for input.

During a turn the set is polled again every `LOOK_SECONDS`, so that small inputs are served between
two calls of connections that read all they can get. At each poll, finished groups of the journals
come first, because they end work that was admitted before.

After `TURN_SECONDS` of calls all other tasks run, and also after `ENDED_PER_TURN` connections have
ended or paused in the turn, because each of them wakes a task of its own.

While several shares are served, one call should not read more than `SHARED_CHUNK_BYTES`
(`chunk_bytes_max`): the messages of a chunk are handled and written to disk as a whole. A share
that is alone reads as much as it can, which costs less for each message.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections import deque
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from runtime.fair_queue import FairQueue
from runtime.loop_wait import wait_of_loop
from runtime.patience import Patience
from runtime.rounds import heavy_rounds
from runtime.watchdog import CALLBACK_SECONDS_MAX, CPU_READ_SECONDS, watchdog_of_loop
from runtime.writers import Writers

if TYPE_CHECKING:
    from collections.abc import Callable

FOUND_AT_ONCE_MAX = 1024
TURN_SECONDS = 0.001
LOOK_SECONDS = 0.0002
"""About one call of a publisher's chunk, or of 64 acknowledgements. A look takes 1 us."""
LITTLE_BYTES = 8 * 1024
"""A connection that read no more than this in its last call is expected to read little."""
QUANTUM_BYTES: Final = 64 * 1024
"""The bytes that a share may read before the next one is served."""
CALL_BYTES: Final = 4 * 1024
"""The cost of a call besides the bytes that it reads."""
ENDED_PER_TURN: Final = 8
STRANGERS: Final = "strangers"
"""The share of connections in their handshake."""
STRANGERS_PER_TURN_MAX: Final = 4
STEPS_SHARE: Final = 2.0
"""The time of steps by that of calls. To deliver a message to one consumer takes up to twice as
long as to take it from its publisher."""
STEPS_SECONDS_MAX: Final = 0.003
"""Of a turn, for the steps of long work. Together with what is read before, it stays below the
budget of a turn."""
SHARED_CHUNK_BYTES: Final = 128 * 1024
"""Bytes that one call reads while others want to read, too."""
SHARED_SECONDS: Final = 0.1
"""How long a call of another share counts."""
_WANTED_EVENTS: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_CLOSE_EVENTS: Final = select.EPOLLRDHUP | select.EPOLLET
_INPUT: Final = select.EPOLLIN
_ROOM: Final = select.EPOLLOUT
_ROOM_EVENTS: Final = select.EPOLLOUT | select.EPOLLET
_GONE: Final = select.EPOLLHUP | select.EPOLLERR
_URGENT_EVENTS: Final = select.EPOLLIN | select.EPOLLET
_OWN_SHARE: Final = ""
"""The share of calls from threads."""
CHUNK_BYTES_MAX: Final = 1024 * 1024


class RunningChanged(Protocol):
    """A callable that is called with whether `run` runs."""

    def __call__(self, *, running: bool) -> None:
        """See Readers.on_running."""


@final
class Readers:
    """Sockets that are read without a task each, and the callable for each of them. To be made in
    the event loop."""

    __slots__ = (
        "_alone_since",
        "_busy",
        "_calls",
        "_chunk_bytes_max",
        "_closed",
        "_ended",
        "_epoll",
        "_found",
        "_is_asked",
        "_last_share",
        "_lock",
        "_much",
        "_on_running",
        "_patience",
        "_shares",
        "_soon",
        "_steps",
        "_strangers",
        "_token",
        "_trio_is_ready",
        "_trios",
        "_urgent",
        "_waiting",
        "_wake",
        "_watchdog",
        "_writers",
        "chunk_bytes_max",
    )

    def __init__(self, chunk_bytes_max: int = CHUNK_BYTES_MAX) -> None:
        """`chunk_bytes_max`: what a call may read while no other share is served."""
        self._epoll = select.epoll()
        self._calls: dict[int, Callable[[], int]] = {}
        self._shares: dict[int, str] = {}
        self._much: set[int] = set()
        self._found: FairQueue[tuple[str, bool], int] = FairQueue(QUANTUM_BYTES)
        """By share, and whether they read much."""
        self._waiting: set[int] = set()
        """Descriptors in this queue."""
        self._patience = Patience()
        self._closed: set[int] = set()
        """Descriptors whose peers have closed."""
        self._ended = 0
        """Removed in the turn."""
        self._strangers = 0
        """Called in the turn."""
        self._chunk_bytes_max = chunk_bytes_max
        self.chunk_bytes_max = chunk_bytes_max
        """The most that a call should read now."""
        self._last_share = _OWN_SHARE
        """Called last."""
        self._alone_since = 0.0
        """When it was called after another one."""
        self._wake = -1
        """Readable when `run`, while it runs, has to look at the queues."""
        self._soon: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        """Calls that other threads want to have made. One queue, so that the order stays the same
        when `run` begins and ends."""
        self._is_asked = False
        """The calls in this queue will be made without asking again."""
        self._urgent: dict[int, Callable[[], object]] = {}
        """Called at each look. By descriptor."""
        self._on_running: list[RunningChanged] = []
        self._lock = threading.Lock()
        """It guards `_wake`, not the queue: a thread may wait for the interpreter while it holds
        it."""
        self._watchdog = watchdog_of_loop()
        """Gets the calls that take long."""
        self._trios = -1
        """The set of trio, while it is waited for here."""
        self._trio_is_ready = False
        self._busy = 0.0
        """Seconds of calls that were not reported to the watchdog yet."""
        self._token = trio.lowlevel.current_trio_token()
        self._writers = Writers()
        self._steps: deque[Callable[[], bool]] = deque()
        """Long work, the next step first."""

    def __len__(self) -> int:
        return len(self._calls)

    def __bool__(self) -> bool:
        return len(self) > 0

    def add(self, descriptor: int, call: Callable[[], int], share: str = _OWN_SHARE) -> None:
        """Invoke `call` when the descriptor has become readable or broken, until `remove`. The call
        returns the number of bytes it has read, and asks for another one (`call_again`) unless it
        has read everything.

        Raises: OSError: epoll cannot watch the descriptor.
        """
        if self._writers.knows(descriptor):
            self._watch(descriptor, _WANTED_EVENTS)
        else:
            self._epoll.register(descriptor, _WANTED_EVENTS)
        self._calls[descriptor] = call
        self._shares[descriptor] = share

    def add_urgent(self, descriptor: int, call: Callable[[], object]) -> None:
        """Invoke `call` as soon as the descriptor is found readable, before all others: what it
        does is short, and ends work that was let in before.

        Raises: OSError: epoll cannot watch the descriptor.
        """
        self._epoll.register(descriptor, _URGENT_EVENTS)
        self._urgent[descriptor] = call

    def remove_urgent(self, descriptor: int) -> None:
        """Stop calling. Must be called before the descriptor is closed. Idempotent."""
        if self._urgent.pop(descriptor, None) is not None:
            with contextlib.suppress(OSError):  # it is closed and therefore no longer in the set
                self._epoll.unregister(descriptor)

    def use_share(self, descriptor: int, call: Callable[[], int], share: str) -> None:
        """From now on these calls belong to another share."""
        if self._calls.get(descriptor) == call:
            self._shares[descriptor] = share

    def remove(self, descriptor: int, call: Callable[[], int]) -> None:
        """Stop calling. Must be called before the descriptor is closed. Idempotent, even when the
        number has meanwhile been given to another connection."""
        if self._calls.get(descriptor) == call:
            del self._calls[descriptor]
            del self._shares[descriptor]
            self._much.discard(descriptor)
            self._closed.discard(descriptor)
            self._patience.forget(descriptor)
            self._ended += 1
            with contextlib.suppress(OSError):  # it is closed and therefore no longer in the set
                if self._writers.knows(descriptor):
                    self._watch(descriptor, 0)
                else:
                    self._epoll.unregister(descriptor)

    def _watch(self, descriptor: int, events: int) -> None:
        """Report these events, and room if it is waited for. Input that is there already counts as
        new. Raises: OSError."""
        if self._writers.knows(descriptor):
            events |= _ROOM_EVENTS
        self._epoll.modify(descriptor, events)

    def call_when_writable(
        self, descriptor: int, call: Callable[[], object], *, is_full: bool
    ) -> None:
        """Invoke `call` once, which never raises: when the descriptor, which is full, has room
        again; if it is not full, in a later turn.

        Raises: OSError: epoll cannot watch the descriptor.
        """
        is_known = self._writers.knows(descriptor)
        if not is_known and descriptor not in self._calls:
            self._epoll.register(descriptor, _ROOM_EVENTS)
            is_known = True
        self._writers.add(descriptor, call, is_full=is_full)
        if not is_known:
            is_unreported = self._patience.is_unreported(descriptor)
            self._watch(descriptor, _CLOSE_EVENTS if is_unreported else _WANTED_EVENTS)
        if not is_full:
            self._wake_turns()

    def remove_writer(self, descriptor: int) -> None:
        """Stop calling. Must be called before the descriptor is closed. Idempotent."""
        if self._writers.knows(descriptor):
            self._writers.remove(descriptor)
            if descriptor not in self._calls:
                with contextlib.suppress(OSError):
                    self._epoll.unregister(descriptor)

    def call_again(self, descriptor: int) -> None:
        """Call in a later turn even if no more bytes arrive, because some of those that have come
        are not read or not handled yet. Only for use within the call itself."""
        if descriptor not in self._waiting:
            self._waiting.add(descriptor)
            self._put(descriptor, is_much=True)

    def be_patient(self, descriptor: int, seconds: float) -> None:
        """The next input is in no hurry, and may wait so long. Only for use within the call itself,
        which has read everything. It holds for one call, and not for one that `call_again` or the
        peer's close asks for."""
        if self._trios != -1 and self._patience.begin(descriptor, monotonic() + seconds):
            self._watch(descriptor, _CLOSE_EVENTS)

    def call_in_turns(self, step: Callable[[], bool]) -> None:
        """Call in a later turn, and again until the call returns False, as the module docstring
        says. All that ask are called one after the other. `run` raises what it raises."""
        self._steps.append(step)
        self._wake_turns()

    def has_steps(self) -> bool:
        """Whether long work waits for its next step."""
        return bool(self._steps)

    def call_soon(self, descriptor: int) -> None:
        """`call_again` for any other caller, which does not know whether `run` waits."""
        self.call_again(descriptor)
        self._wake_turns()

    def _wake_turns(self) -> None:
        """If a task waits for the set, it has to look."""
        if self._wake != -1 and self._trios == -1:
            os.eventfd_write(self._wake, 1)

    def run_sync_soon(self, call: Callable[..., object], *arguments: object) -> None:
        """Call in the event loop, in the order of these calls. For other threads. It is like
        trio's function of this name, which it uses unless `run` runs, and takes less CPU: the loop
        finds the wish among its sockets."""
        self._soon.append((call, arguments))
        if self._is_asked:
            return
        self._is_asked = True
        with self._lock:
            if self._wake == -1:
                self._token.run_sync_soon(self._call_soon)
            else:
                os.eventfd_write(self._wake, 1)

    def _call_soon(self) -> None:
        self._is_asked = False  # first: what comes from now on may be too late for this call
        soon = self._soon
        watchdog = self._watchdog
        begun = monotonic()
        while soon:
            call, arguments = soon.popleft()
            call(*arguments)
            now = monotonic()
            if now - begun > CALLBACK_SECONDS_MAX and watchdog is not None:
                watchdog.called(call, now - begun)
            begun = now

    def on_running(self, call: RunningChanged) -> None:
        """Call when `run` begins (or at once if it has), and when it ends: nothing that is added is
        noticed before and afterwards."""
        self._on_running.append(call)
        if self._wake != -1:
            call(running=True)

    async def run(self) -> None:
        """Call readers until cancelled."""
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.add_urgent(self._wake, self._woken)
        try:
            for call in self._on_running:
                call(running=True)
            await self._run()
        finally:
            for call in self._on_running:
                call(running=False)
            self.remove_urgent(self._wake)
            with self._lock:
                os.close(self._wake)
                self._wake = -1
                self._is_asked = False
                if self._soon:
                    self._token.run_sync_soon(self._call_soon)

    def _woken(self) -> int:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        self._call_soon()
        return 0

    async def _run(self) -> None:
        wait = wait_of_loop(self)
        if wait is None:
            await self._run_in_turns()
            return
        self._trios = wait.descriptor
        self._epoll.register(self._trios, select.EPOLLIN)
        rounds = heavy_rounds()
        try:
            rounds.use_turns(self.call_in_turns)
            await wait.run()
        finally:
            rounds.use_turns(None)
            with contextlib.suppress(OSError):  # trio has closed it
                self._epoll.unregister(self._trios)
            self._trios = -1
            self._queue_patient(inf)

    async def _run_in_turns(self) -> None:
        descriptor = self._epoll.fileno()
        while True:
            if self._is_busy():
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(descriptor)
            begun = monotonic()
            self._find()
            self._turn(begun)

    def serve(self, seconds_max: float) -> bool:
        """Wait so long for something to call, unless something waits to be called, and call.
        Returns whether trio has something to do. In the wait of the loop (`runtime.loop_wait`).

        Raises: what an urgent call or one from another thread raises.
        """
        self._trio_is_ready = False
        patience = self._patience
        if patience:
            seconds_max = max(0.0, min(seconds_max, patience.until - monotonic()))
        is_busy = self._is_busy()
        found = self._epoll.poll(0.0 if is_busy else seconds_max, FOUND_AT_ONCE_MAX)
        if not found and not is_busy and not patience:
            return False
        begun = monotonic()
        if patience and begun >= patience.until:
            self._queue_patient(begun)
        if not found and not self._is_busy():
            return False
        watchdog = self._watchdog
        if watchdog is not None:
            watchdog.calls_begin(begun)
        self._take(found)
        end = self._turn(begun)
        if watchdog is not None:
            self._busy += end - begun
            if self._busy > CPU_READ_SECONDS:
                self._busy = 0.0
                watchdog.calls_end(end)
        return self._trio_is_ready

    def _is_busy(self) -> bool:
        """Whether something waits to be called."""
        return bool(self._waiting) or bool(self._writers) or bool(self._steps)

    def _turn(self, begun: float) -> float:
        """Call what has to be called, in a turn that has begun then. Returns the time
        afterwards."""
        now = self._writers.call_ready(self._call_found())
        steps = self._steps
        end = now + min(STEPS_SHARE * (now - begun), STEPS_SECONDS_MAX)
        while steps:
            step = steps.popleft()
            if step():
                steps.append(step)
            before, now = now, monotonic()
            if now - before > CALLBACK_SECONDS_MAX and self._watchdog is not None:
                self._watchdog.called(step, now - before)
            if now >= end:
                break
        return now

    def _find(self) -> None:
        """Queue what has become readable, and call what is urgent."""
        self._take(self._epoll.poll(0, FOUND_AT_ONCE_MAX))

    def _take(self, found: list[tuple[int, int]]) -> None:
        waiting = self._waiting
        urgent: list[Callable[[], object]] = []
        while True:
            for descriptor, events in found:
                if descriptor in self._urgent:
                    urgent.append(self._urgent[descriptor])
                    continue
                if descriptor == self._trios:
                    self._trio_is_ready = True
                    continue
                if events & (_ROOM | _GONE):
                    self._writers.found(descriptor)
                    events &= ~_ROOM
                    if not events or descriptor not in self._calls:
                        continue
                if events != _INPUT:
                    self._closed.add(descriptor)
                    self._patience.end(descriptor)
                if descriptor not in waiting:
                    waiting.add(descriptor)
                    self._put(descriptor, is_much=descriptor in self._much)
            if len(found) < FOUND_AT_ONCE_MAX:
                break
            found = self._epoll.poll(0, FOUND_AT_ONCE_MAX)
        if urgent:
            self._call_urgent(urgent)

    def _queue_patient(self, now: float) -> None:
        for descriptor in self._patience.ended(now):
            if descriptor not in self._waiting:
                self._waiting.add(descriptor)
                self._put(descriptor, is_much=descriptor in self._much)

    def _call_urgent(self, urgent: list[Callable[[], object]]) -> None:
        watchdog = self._watchdog
        begun = 0.0 if watchdog is None else monotonic()
        for call in urgent:
            call()
            if watchdog is not None:
                now = monotonic()
                if now - begun > CALLBACK_SECONDS_MAX and call != self._woken:  # tells of its calls
                    watchdog.called(call, now - begun)
                begun = now

    def _put(self, descriptor: int, *, is_much: bool) -> None:
        self._found.append((self._shares.get(descriptor, _OWN_SHARE), is_much), descriptor)

    def _call_found(self) -> float:
        """Returns the time afterwards."""
        self._ended = self._strangers = 0
        now = monotonic()
        end = now + TURN_SECONDS
        look = now + LOOK_SECONDS
        while self._found:
            now = self._call(self._found.take(), now)
            if (
                now >= end
                or self._ended >= ENDED_PER_TURN
                or self._strangers >= STRANGERS_PER_TURN_MAX
            ):
                break
            if now >= look:
                self._find()
                now = monotonic()
                look = now + LOOK_SECONDS
        return now

    def _call(self, descriptor: int, begun: float) -> float:
        """Call the reader of this descriptor. Returns the time afterwards."""
        # A descriptor removed meanwhile is not called. If its number belongs to another connection
        # by now, the call is superfluous and finds nothing to read.
        self._waiting.discard(descriptor)
        call = self._calls.get(descriptor)
        if call is None:
            return begun
        share = self._shares[descriptor]
        if share != self._last_share and share:
            self._last_share = share
            self._alone_since = begun
            self.chunk_bytes_max = min(SHARED_CHUNK_BYTES, self._chunk_bytes_max)
        elif begun - self._alone_since > SHARED_SECONDS:
            self.chunk_bytes_max = self._chunk_bytes_max
        size = call()
        if self._patience.was_ended(descriptor):
            self._watch(descriptor, _WANTED_EVENTS)
        if share == STRANGERS:
            self._strangers += 1
            self._found.charge(QUANTUM_BYTES + size)
        else:
            self._found.charge(CALL_BYTES + size)
        if size > LITTLE_BYTES:
            if descriptor in self._calls:
                self._much.add(descriptor)
        elif size:
            self._much.discard(descriptor)
        if descriptor in self._closed and descriptor in self._calls:
            self.call_again(descriptor)
        now = monotonic()
        if now - begun > CALLBACK_SECONDS_MAX and self._watchdog is not None:
            self._watchdog.called(call, now - begun)
        return now
