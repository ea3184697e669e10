"""A session with a store on other machines: news come late, and an end is learned of later still.

Over a session of MemoryStore. A watch reports after some turns of the event loop, at the latest
before the next result. While the session is in doubt, reads wait and writes are refused; a write
that is under way when doubt begins has taken effect and is refused all the same. The store may end
a session in doubt, which its owner does not hear of before it is in touch again.
"""

from collections import deque

import trio

from metadata.store import MetadataUnavailable, SessionState

TURNS = 4


class LateStore:
    """See the module docstring. Run it with `nursery.start_soon(run)`."""

    def __init__(self, inner):
        self.inner = inner
        self.session_state = SessionState.LIVE
        self.damage = ""
        self._on_session = []
        self._watches = []
        self._news = deque()
        self._has_news = trio.Event()
        self._moved = trio.Event()

    async def run(self):
        while True:
            await self._has_news.wait()
            self._has_news = trio.Event()
            for _turn in range(TURNS):
                await trio.lowlevel.checkpoint()
            self._tell()

    def _tell(self):
        while self._news and self.session_state is SessionState.LIVE:
            on_change, path = self._news.popleft()
            on_change(path)

    def watch(self, path, on_change):
        def keep(changed):
            self._news.append((on_change, changed))
            self._has_news.set()

        self._watches.append((path, on_change))
        return self.inner.watch(path, keep)

    def watch_session(self, on_change):
        self._on_session.append(on_change)
        return lambda: self._on_session.remove(on_change)

    def expire(self):
        """The store ends the session of an owner that it does not hear of."""
        self.become(SessionState.IN_DOUBT)
        self.inner.become(SessionState.LOST)

    def become(self, state):
        if state is SessionState.IN_DOUBT and self.session_state is SessionState.LOST:
            return
        if state is SessionState.LIVE and self.inner.session_state is SessionState.LOST:
            self._change(SessionState.LOST)
            self.inner.become(SessionState.LIVE)
        elif state is SessionState.LOST:
            self.inner.become(SessionState.LOST)
        self._change(state)
        if state is SessionState.LIVE:
            self._news.clear()
            for path, on_change in self._watches:
                on_change(path)

    def _change(self, state):
        if state is self.session_state:
            return
        self.session_state = state
        moved, self._moved = self._moved, trio.Event()
        moved.set()
        for on_change in tuple(self._on_session):
            on_change(state)

    async def _read(self, operation, *arguments):
        while True:
            while self.session_state is SessionState.IN_DOUBT:
                await self._moved.wait()
            self._refuse_unless_live()
            result = await operation(*arguments)
            if self.session_state is SessionState.LIVE:
                self._tell()
                return result

    async def _write(self, operation, *arguments):
        self._refuse_unless_live()
        try:
            result = await operation(*arguments)
        finally:
            self._refuse_unless_live()
            self._tell()
        return result

    def _refuse_unless_live(self):
        if self.session_state is not SessionState.LIVE:
            raise MetadataUnavailable("not connected")

    async def sync(self):
        await self._read(self.inner.sync)

    async def get(self, path):
        return await self._read(self.inner.get, path)

    async def children(self, path):
        return await self._read(self.inner.children, path)

    async def exists(self, path):
        return await self._read(self.inner.exists, path)

    async def put(self, path, value, expected_version):
        return await self._write(self.inner.put, path, value, expected_version)

    async def put_ephemeral(self, path, value):
        await self._write(self.inner.put_ephemeral, path, value)

    async def delete(self, path, expected_version=None):
        await self._write(self.inner.delete, path, expected_version)
