"""The network of a simulated cluster: connections between hosts that delay, hold back, and break.

Bytes of a connection arrive in order and are never lost while both of its ends live, as with TCP:
a cut between two hosts, and the pause of a host, hold them back. A host that crashes takes its
connections along. The other side hears of it at once, or, when the machine is gone, not before
the host is there again and is sent something.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from socket import AF_INET

import trio

from runtime.transport import Taken

GRID_SECONDS = 0.002
"""Arrivals are rounded up to it, so that many belong to one instant."""
WINDOW_BYTES = 256 * 1024
CONNECT_AGAIN_SECONDS = 0.25


def on_grid(when):
    """The first instant after the time at which something can arrive."""
    return (int(when / GRID_SECONDS + 1e-6) + 1) * GRID_SECONDS


class Events:
    """What happens at its time, without a task that waits for it. The clock makes it happen when no
    task can run."""

    def __init__(self):
        self._queue = []
        self._numbers = itertools.count()

    @property
    def next_at(self):
        """The time of the first one."""
        return self._queue[0][0] if self._queue else float("inf")

    def at(self, when, call, *arguments):
        """Call at a time."""
        heapq.heappush(self._queue, (when, next(self._numbers), call, arguments))

    def happen(self, now):
        """All that is due."""
        while self._queue and self._queue[0][0] <= now:
            _when, _number, call, arguments = heapq.heappop(self._queue)
            call(*arguments)


class Network:
    """Connections of any number of hosts."""

    def __init__(self, rng, events, put_back):
        """`put_back`: lets tasks of a process that was paused go on."""
        self.rng = rng
        self.at = events.at
        self.put_back = put_back
        self.on_resume = lambda: None
        """Called when a process may run again, before it does."""
        self.hosts = {}
        self._cuts = {}
        """How many faults hold back what goes from one host to another."""
        self.holding = {}
        """Pipes with something held back."""
        self.ports = itertools.count(40_000)

    def host(self, name):
        """The host of this name."""
        if name not in self.hosts:
            self.hosts[name] = Host(self, name)
        return self.hosts[name]

    def latency(self):
        """Seconds that one thing takes to another host."""
        draw = self.rng.random()
        if draw < 0.97:
            return 0.0
        return 0.004 if draw < 0.995 else self.rng.uniform(0.005, 0.15)

    # --- faults -------------------------------------------------------------------------

    def is_cut(self, source, target):
        """Whether nothing gets from one host to the other."""
        return bool(self._cuts.get((source.name, target.name)))

    def cut(self, source_name, target_name):
        """Hold everything back in one direction. The result heals it."""
        key = (source_name, target_name)
        self._cuts[key] = self._cuts.get(key, 0) + 1

        def heal():
            self._cuts[key] -= 1
            self.release()

        return heal

    def release(self):
        """Something was healed."""
        for pipe in tuple(self.holding):
            pipe.release()

    def pipe(self, source, target, arrived):
        """A directed queue of anything between two hosts; `arrived(item)` at the other end."""
        return Pipe(self, source, target, arrived)

    async def connect(self, source, target_name, port):
        """A connection from one host to another. Raises: OSError."""
        target = self.host(target_name)
        incarnation = source.incarnation
        while True:
            await trio.sleep_until(on_grid(trio.current_time() + self.latency()))
            is_there = not (self.is_cut(source, target) or self.is_cut(target, source))
            if source.incarnation != incarnation or source.is_down:
                raise OSError("this host has crashed")
            if is_there and not source.is_paused and not (target.is_down and target.is_silent):
                break
            await trio.sleep(CONNECT_AGAIN_SECONDS)
        accept = None if target.is_down else target.listeners.get(port)
        if accept is None:
            raise OSError(f"{target_name}:{port} refuses connections")
        ours = Socket(source, f"{target_name}:{port}")
        theirs = Socket(target, f"{source.name}:{next(self.ports)}")
        ours.out = self.pipe(source, target, theirs.arrived)
        theirs.out = self.pipe(target, source, ours.arrived)
        ours.other, theirs.other = theirs, ours
        accept(theirs)
        await trio.sleep_until(on_grid(trio.current_time() + self.latency()))
        return ours


class Host:
    """A machine with one process."""

    def __init__(self, network, name):
        self.network = network
        self.name = name
        self.is_paused = False
        self.paused_at = None
        """When the last pause began."""
        self.is_down = False
        self.is_silent = False
        """While it is down: nothing answers at its address."""
        self.incarnation = 0
        self.listeners = {}
        self.sockets = {}
        self.held = []
        """Tasks of its process that could run and do not, because it is paused."""
        self._after_pause = []

    def connector(self):
        """The `Connect` of its ledger client."""

        async def connect(host, port):
            return await self.network.connect(self, host, port)

        return connect

    def pause(self):
        """No task and no thread of its process runs: nothing comes out, and nothing gets in."""
        if not self.is_paused:
            self.is_paused, self.paused_at = True, trio.current_time()

    def resume(self):
        """Go on with what was held back."""
        self.is_paused = False
        self.network.on_resume()
        held, self.held = self.held, []
        self.network.put_back(held)
        calls, self._after_pause = self._after_pause, []
        for call in calls:
            call()
        self.network.release()

    def after_pause(self, call):
        """Call when the process is not paused any more."""
        self._after_pause.append(call)

    def crash(self, *, is_silent=False):
        """Its process ends, or the machine with it. What a connection has under way still arrives,
        or none of it does."""
        self.is_down, self.is_silent = True, is_silent
        self.incarnation += 1
        self.listeners.clear()
        sockets, self.sockets = self.sockets, {}
        for socket in sockets:
            socket.die(is_silent=is_silent, is_lossy=self.network.rng.random() < 0.5)
        if self.is_paused:
            self.resume()

    def start(self):
        """A process can run again."""
        self.is_down = self.is_silent = False


_END = object()
_RESET = object()


class Pipe:
    """See `Network.pipe`."""

    def __init__(self, network, source, target, arrived):
        self.network = network
        self._source = source
        self._target = target
        self._arrived = arrived
        self._last = 0.0
        self._held = deque()
        self._is_dead = False

    @property
    def is_blocked(self):
        """Whether what has been sent has to wait."""
        return (
            self._target.is_paused
            or self._source.is_paused
            or self.network.is_cut(self._source, self._target)
        )

    def send(self, item):
        """Let the item arrive later."""
        if self._is_dead:
            return
        if self._held or self.is_blocked:
            self._hold(item)
            return
        self._schedule(item)

    def _hold(self, item):
        self._held.append(item)
        self.network.holding[self] = None

    def _schedule(self, item):
        self._last = max(self._last, on_grid(trio.current_time() + self.network.latency()))
        self.network.at(self._last, self._due, item)

    def _due(self, item):
        if self._is_dead:
            return
        if self._held or self.is_blocked:
            self._hold(item)
            return
        self._arrived(item)

    def release(self):
        """Something was healed."""
        if not self.is_blocked:
            self.network.holding.pop(self, None)
            held, self._held = self._held, deque()
            for item in held:
                self._schedule(item)

    def replaced(self):
        """An empty one to the same place. What has not arrived never does."""
        self._is_dead = True
        self._held.clear()
        self.network.holding.pop(self, None)
        return Pipe(self.network, self._source, self._target, self._arrived)


class _Peer:
    """A socket, as far as its peer is asked for."""

    family = AF_INET

    def __init__(self, peer):
        host, _, port = peer.rpartition(":")
        self._name = (host, int(port))

    def getpeername(self):
        return self._name


class Socket(trio.abc.Stream):
    """One end of a connection: a `Connection` of the ledger client, a `Transport` of the broker,
    and a stream of the bookie's server."""

    def __init__(self, host, peer):
        self.peer = peer
        self.socket = _Peer(peer)
        self.out = None
        self.other = None
        self._host = host
        host.sockets[self] = None
        self._in = bytearray()
        self._is_ended = False
        """Nothing more will arrive."""
        self._broken = ""
        self._is_finished = False
        self._unread = 0
        """Bytes that this end has sent and the other has not taken."""
        self._news = trio.Event()
        self._room = trio.Event()

    # --- arriving -----------------------------------------------------------------------

    def arrived(self, item):
        """From the network."""
        if self._broken:
            if item is not _RESET and item is not _END and not self._host.is_down:
                self.out.send(_RESET)
            return
        if item is _RESET:
            self._break("the connection was reset")
        elif item is _END:
            self._is_ended = True
        else:
            self._in += item
        self._news.set()

    def _break(self, reason):
        self._broken = self._broken or reason
        self._host.sockets.pop(self, None)
        self._in.clear()
        self._news.set()
        self._room.set()

    def die(self, *, is_silent, is_lossy):
        """The host of this end has crashed."""
        self._broken = "this host has crashed"
        self._news.set()
        self._room.set()
        if is_lossy:
            self.out = self.out.replaced()
        if not is_silent:
            self.out.send(_RESET)

    # --- Connection, Transport ----------------------------------------------------------

    def send_nowait(self, buffers):
        self._check()
        data = b"".join(buffers)[: max(0, WINDOW_BYTES - self._unread)]
        if data:
            self._unread += len(data)
            self.out.send(data)
        return len(data)

    def _check(self):
        if self._broken:
            raise trio.BrokenResourceError(self._broken)

    async def wait_writable(self):
        self._check()
        while self._unread >= WINDOW_BYTES:
            self._room = trio.Event()
            await self._room.wait()
            self._check()
        await trio.lowlevel.checkpoint()

    async def send(self, buffers):
        while True:
            await self.wait_writable()
            taken = self.send_nowait(buffers)
            if taken:
                return taken

    def send_strip_nowait(self, strip, bytes_max):
        return self.send_nowait(strip.buffers(bytes_max))

    async def send_strip(self, strip, bytes_max):
        return await self.send(strip.buffers(bytes_max))

    def call_when_writable(self, call, *, is_full):
        return False

    async def receive(self):
        while not self._in:
            self._check()
            if self._is_ended:
                await trio.lowlevel.checkpoint()
                return b""
            self._news = trio.Event()
            await self._news.wait()
        data = bytes(self._in)
        self._in.clear()
        if self.other is not None:
            self.other.taken(len(data))
        return data

    def taken(self, size):
        """The other end has read."""
        self._unread -= size
        self._room.set()

    def use_share(self, share):
        """Each has a task of its own."""

    async def receive_into(self, take, *, is_left=False):
        taken = Taken.IN_PART if is_left else Taken.WHOLE
        while taken is not Taken.STOP:
            if taken is Taken.IN_PART:
                await trio.lowlevel.checkpoint()
                taken = take(None)
            else:
                taken = take(await self.receive())

    async def finish_sending(self):
        self._check()
        if not self._is_finished:
            self._is_finished = True
            self.out.send(_END)
        await trio.lowlevel.checkpoint()

    def close(self):
        if not self._broken:
            if not self._is_finished:
                self._is_finished = True
                self.out.send(_END)
            self._break("the connection was closed")

    # --- trio.abc.Stream ------------------------------------------------------------------

    async def send_all(self, data):
        view = memoryview(data)
        while view:
            view = view[await self.send([view]) :]

    async def wait_send_all_might_not_block(self):
        await self.wait_writable()

    async def receive_some(self, max_bytes=None):
        return await self.receive()

    async def aclose(self):
        self.close()
        await trio.lowlevel.checkpoint()

    def setsockopt(self, *_option):
        """Nothing to tune."""


class Listener(trio.abc.Listener):
    """Accepts the connections to one port of a host."""

    def __init__(self, host, port):
        self._waiting, self._accepted = trio.open_memory_channel(1000)
        host.listeners[port] = self._waiting.send_nowait

    async def accept(self):
        return await self._accepted.receive()

    async def aclose(self):
        await trio.lowlevel.checkpoint()
