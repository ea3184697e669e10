"""RemoteBookie: a bookie in another process, Apache BookKeeper's or Vela's (a BookieApi).

All adds use one channel. They are collected and leave at `kick` with one system call. Outside of a
turn that happens by itself in the next step of the event loop. Reads use other channels, chosen by
the ledger's id, so that large answers do not delay answers to adds. One more channel, opened when
it is needed, speaks protocol version 3, for what version 2 does not have. (With 16 channels for
adds, 20 adds of 10 ledgers in a turn to 3 bookies cost 54 us each, with one 20 us: what counts is
the number of system calls.)

Back-pressure: adds are refused with TOO_MANY_REQUESTS while the bytes without an answer exceed a
bound. Adds during the back-off of a channel are refused with UNREACHABLE. A refusal may overtake
the answers to earlier adds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from bookie.api import FLAG_FENCING, LAST_ENTRY, BookieError, Status
from ledgers.remote.channel import TICKS_PER_TIMEOUT, Channel
from ledgers.remote.lac_answers import LacAnswerDecoder
from protocol.bookkeeper import v2, v3
from protocol.bookkeeper.digests import last_add_confirmed_of
from protocol.bookkeeper.messages import BatchReadRequest, WriteLacRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bookie.api import AddSink, EntryBody, Turn
    from ledgers.remote.config import RemoteConfig
    from ledgers.remote.network import Connect

_log = structlog.get_logger()
_ABSENT: Final = frozenset({Status.NO_ENTRY, Status.NO_LEDGER})
_JOIN_BELOW_BYTES: Final = 4096
"""Mean size of an entry below which a copy costs less than a vector of buffers."""
_BATCH_HEAD_BYTES_MAX: Final = 1024


@final
class AddEncoder:
    """Adds as the bytes of protocol version 2. Shared by the bookies of one client: a run that goes
    to several of them, one after the other, is encoded once."""

    __slots__ = ("_bodies", "_encoded", "_flags", "_key")

    def __init__(self) -> None:
        self._bodies: list[EntryBody] = []
        self._key = b""
        self._flags = 0
        self._encoded: tuple[Sequence[bytes], int] = ((), 0)

    def encode(
        self, bodies: list[EntryBody], master_key: bytes, flags: int
    ) -> tuple[Sequence[bytes], int]:
        """Buffers to send, and their size in bytes."""
        # Equal bodies are the same objects here, which makes the comparison cheap.
        if bodies == self._bodies and master_key == self._key and flags == self._flags:
            return self._encoded
        buffers: list[bytes] = []
        size = 0
        for head, payload in bodies:
            length = len(head) + len(payload)
            request = v2.encode_add_request_head(length, master_key, flags)
            buffers += (request, head, payload)
            size += len(request) + length
        result: Sequence[bytes] = buffers
        if size < _JOIN_BELOW_BYTES * len(bodies):
            result = (b"".join(buffers),)
        self._bodies, self._key, self._flags = bodies, master_key, flags
        self._encoded = result, size
        return self._encoded

    def forget(self) -> None:
        """Hold no entries: the turn has ended."""
        self._bodies = []
        self._encoded = (), 0


@final
class RemoteBookie:
    """See the module docstring. `run` in a nursery; cancelling it answers everything pending."""

    def __init__(
        self,
        bookie_id: str,
        address: Callable[[], tuple[str, int]],
        config: RemoteConfig,
        turn: Turn,
        encoder: AddEncoder,
        on_failure: Callable[[str], None],
        connect: Connect,
    ) -> None:
        """`address` raises OSError while it is not known. `on_failure` is called, with the reason,
        for every lost connection and every request without an answer in time."""
        self.bookie_id = bookie_id
        self.bytes_in_flight = 0
        """Bytes of adds without an answer."""
        self._config = config
        self._turn = turn
        self._encoder = encoder
        self._token = trio.lowlevel.current_trio_token()
        self._is_scheduled = False
        self._is_dirty = False
        self._requests = 0
        self._channels = [
            Channel(bookie_id, connect, address, config, turn, self._on_answered, on_failure)
            for _ in range(config.channels)
        ]
        self._adding = self._channels[0]
        self._lac_channel = Channel(
            bookie_id,
            connect,
            address,
            config,
            turn,
            self._on_answered,
            on_failure,
            LacAnswerDecoder,
        )
        self._all_channels = (*self._channels, self._lac_channel)

    @property
    def connections(self) -> int:
        """Open connections."""
        return sum(channel.is_connected for channel in self._all_channels)

    def _on_answered(self, size_bytes: int) -> None:
        self.bytes_in_flight -= size_bytes

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve requests until cancelled."""
        async with trio.open_nursery() as nursery:
            for channel in self._all_channels:
                nursery.start_soon(channel.run)
            task_status.started()
            config = self._config
            interval_s = min(config.add_timeout_s, config.read_timeout_s) / TICKS_PER_TIMEOUT
            while True:
                before = trio.current_time()
                await trio.sleep(interval_s)
                # A longer sleep: the process did not run, and could not take answers.
                elapsed_s = min(trio.current_time() - before, 2 * interval_s)
                for channel in self._all_channels:
                    channel.check_timeout(elapsed_s)

    def _reading_channel(self, ledger_id: int) -> Channel:
        others = len(self._channels) - 1
        return self._channels[1 + ledger_id % others] if others else self._adding

    # --- adds ---------------------------------------------------------------------------

    def add_entry(
        self,
        ledger_id: int,
        entry_id: int,
        body: EntryBody,
        master_key: bytes,
        flags: int,
        sink: AddSink,
    ) -> None:
        """See BookieApi."""
        self.add_entries(ledger_id, entry_id, [body], master_key, flags, sink)

    def add_entries(
        self,
        ledger_id: int,
        first_entry_id: int,
        bodies: list[EntryBody],
        master_key: bytes,
        flags: int,
        sink: AddSink,
    ) -> None:
        """See BookieApi. The list is not changed."""
        channel = self._adding
        count = len(bodies)
        status = Status.TOO_MANY_REQUESTS
        if channel.is_refusing:
            status = Status.UNREACHABLE
        elif self.bytes_in_flight < self._config.bytes_in_flight_max:
            buffers, size = self._encoder.encode(bodies, master_key, flags)
            if channel.put_adds(ledger_id, first_entry_id, count, buffers, size, sink):
                self.bytes_in_flight += size
                self._is_dirty = True
                if not self._is_scheduled and not self._turn.in_turn:
                    self._is_scheduled = True
                    self._token.run_sync_soon(self._kick_scheduled)
                return
        self._token.run_sync_soon(self._refuse, status, ledger_id, first_entry_id, count, sink)

    def _kick_scheduled(self) -> None:
        self._is_scheduled = False
        self.kick()

    def kick(self) -> None:
        """See BookieApi."""
        if self._is_dirty:
            self._is_dirty = False
            self._adding.flush()
            self._encoder.forget()

    def _refuse(
        self, status: Status, ledger_id: int, first: int, count: int, sink: AddSink
    ) -> None:
        self._turn.begin_turn()
        try:
            sink.on_add_replies(status, ledger_id, first, count)
            sink.on_replies_end()
            self._turn.end_turn()
        except Exception as error:
            _log.error("refusal_not_taken", bookie=self.bookie_id, exc_info=error)

    # --- reads --------------------------------------------------------------------------

    def read_cached(self, ledger_id: int, entry_id: int) -> EntryBody | None:
        """See BookieApi: nothing is cached here."""
        return None

    async def read_entry(
        self, ledger_id: int, entry_id: int, *, flags: int = 0, master_key: bytes = b""
    ) -> bytes:
        """See BookieApi."""
        request = v2.encode_read_request(ledger_id, entry_id, flags, master_key)
        bodies = await self._reading_channel(ledger_id).read((ledger_id, entry_id), request)
        return bodies[0]

    async def read_batch(
        self, ledger_id: int, first_entry_id: int, count_max: int, size_bytes_max: int
    ) -> list[bytes]:
        """See BookieApi."""
        self._requests += 1
        size_max = min(size_bytes_max, self._config.frame_size_max - _BATCH_HEAD_BYTES_MAX)
        request = BatchReadRequest(ledger_id, first_entry_id, self._requests, count_max, size_max)
        channel = self._reading_channel(ledger_id)
        bodies = await channel.read(self._requests, v2.encode_batch_read_request(request))
        if not bodies:
            raise BookieError(Status.IO_ERROR, "a batch read was answered without an entry")
        return list(bodies)

    async def fence_ledger(self, ledger_id: int, master_key: bytes) -> None:
        """See BookieApi."""
        try:
            await self.read_entry(ledger_id, LAST_ENTRY, flags=FLAG_FENCING, master_key=master_key)
        except BookieError as error:
            if error.status not in _ABSENT:
                raise

    async def force_ledger(self, ledger_id: int) -> None:
        """See BookieApi. Raises: BookieError: always. Version 2 has no such request, and needs
        none: every add that it answers is durable."""
        await trio.lowlevel.checkpoint()
        raise BookieError(Status.BAD_REQUEST, "protocol version 2 has no force")

    async def write_explicit_lac(self, ledger_id: int, body: bytes, master_key: bytes) -> None:
        """See BookieApi."""
        self._requests += 1
        last_add_confirmed = last_add_confirmed_of(body)
        txn_id = self._requests
        request = WriteLacRequest(ledger_id, last_add_confirmed, body, master_key, txn_id)
        await self._lac_channel.read(txn_id, v3.encode_request(request))
