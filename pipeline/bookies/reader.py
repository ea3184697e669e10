"""BookieReader: the sockets under `ledger_read`. Blocking, without threads; one per thread.

Connections are kept between reads, one per bookie. One that breaks, is silent, or says what is no
answer is closed and opened again; a read that is left early closes those that still owe answers.
Every request has flags 0: nothing here can fence a ledger.
"""

from __future__ import annotations

import selectors
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, final

from pipeline.bookies.addresses import BY_ID
from pipeline.bookies.ledger_read import LedgerRead, ReadLimits
from protocol.bookkeeper import v2
from protocol.bookkeeper.messages import BatchReadRequest, BatchReadResponse, ReadResponse
from protocol.bookkeeper.packets import FRAME_SIZE_MAX, ResponseDecoder
from protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from pipeline.bookies.addresses import BookieAddresses
    from pipeline.bookies.ledger_read import Request
    from protocol.bookkeeper.ledger_layout import LedgerLayout

RECEIVE_SIZE_BYTES: Final = 1 << 20
_ANSWER_OVERHEAD_BYTES: Final = 4096


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderConfig:
    """How a reader behaves. Memory: about `runs_in_flight` times `run_size_bytes`."""

    timeout_seconds: float = 30.0
    """A read fails when nothing at all came for so long."""
    answer_timeout_seconds: float = 10.0
    """A bookie that is silent for so long is left for another one, or connected again."""
    run_size_bytes: int = 1 << 20
    """The size that one batch read asks for; at least one entry comes, however large."""
    runs_in_flight: int = 4
    reads_in_flight: int = 128
    """Single reads at once: striped ledgers, and bookies without batch reads."""
    frame_size_max: int = FRAME_SIZE_MAX
    """The largest answer taken; must hold the largest entry."""
    password: bytes = b""
    """Of the ledgers; only HMAC digests depend on it."""

    def __post_init__(self) -> None:
        if min(self.runs_in_flight, self.reads_in_flight, self.run_size_bytes) < 1:
            raise ValueError("runs_in_flight, reads_in_flight and run_size_bytes must be positive")
        if self.run_size_bytes + _ANSWER_OVERHEAD_BYTES > self.frame_size_max:
            raise ValueError(
                f"run_size_bytes={self.run_size_bytes} does not fit frame_size_max="
                f"{self.frame_size_max}"
            )

    @property
    def limits(self) -> ReadLimits:
        """The part that decisions depend on."""
        return ReadLimits(
            timeout_seconds=self.timeout_seconds,
            run_size_bytes=self.run_size_bytes,
            runs_in_flight=self.runs_in_flight,
            reads_in_flight=self.reads_in_flight,
        )


@final
class BookieReader:
    """See the module docstring. A context manager; usable until `close`."""

    def __init__(
        self, config: ReaderConfig | None = None, addresses: BookieAddresses = BY_ID
    ) -> None:
        self._config = config if config is not None else ReaderConfig()
        self._addresses = addresses
        self._connections: dict[str, _Connection] = {}
        self._is_reading = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the next read opens new ones."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def read(
        self, layout: LedgerLayout, first: int, last: int
    ) -> Iterator[tuple[int, list[bytes]]]:
        """(entry id of the first, verified payloads) of consecutive runs of entries, which make up
        `first` to `last`, both inclusive. In an open ledger `last` must be a confirmed entry.

        Raises: BookieReadError: of the first entry that cannot be read, after those before it.
            BookiesNotReachable: a bookie has no address. ValueError: no range of this ledger.
        """
        if layout.last_entry_id is not None and last > layout.last_entry_id:
            raise ValueError(
                f"ledger {layout.ledger_id} ends with entry {layout.last_entry_id}, not {last}"
            )
        if self._is_reading:
            raise RuntimeError("a reader does one read at a time: finish or close the other one")
        self._is_reading = True
        config = self._config
        work = LedgerRead(layout, first, last, config.limits, time.monotonic(), config.password)
        try:
            while not work.is_done:
                taken = work.take(time.monotonic())
                self._send(work, layout.ledger_id)
                if taken:
                    yield from taken
                    work.on_resumed(time.monotonic())
                else:
                    self._receive(work)
        finally:
            self._is_reading = False
            for bookie_id in [key for key, each in self._connections.items() if each.owes_answers]:
                self._connections.pop(bookie_id).close()

    def _send(self, work: LedgerRead, ledger_id: int) -> None:
        packets: dict[str, list[Request]] = {}
        for request in work.requests(time.monotonic()):
            packets.setdefault(request.bookie_id, []).append(request)
        for bookie_id, requests in packets.items():
            try:
                connection = self._connection_to(bookie_id)
                connection.send(ledger_id, requests, self._config.run_size_bytes)
            except OSError as error:
                self._lose(work, bookie_id, _reason(error))

    def _connection_to(self, bookie_id: str) -> _Connection:
        connection = self._connections.get(bookie_id)
        if connection is None:
            connection = _Connection(self._addresses.of(bookie_id), self._config)
            self._connections[bookie_id] = connection
        return connection

    def _receive(self, work: LedgerRead) -> None:
        """Wait for answers, or until it is time to ask another bookie."""
        waiting = {key: each for key, each in self._connections.items() if each.owes_answers}
        now = time.monotonic()
        until = min([work.wait_until(now), *(each.silent_at for each in waiting.values())])
        with selectors.DefaultSelector() as selector:
            for bookie_id, connection in waiting.items():
                selector.register(connection.socket, selectors.EVENT_READ, bookie_id)
            ready = {key.data for key, _ in selector.select(max(0.0, until - now) + 0.001)}
        for bookie_id, connection in waiting.items():
            if bookie_id in ready:
                self._take_answers(work, bookie_id, connection)
            elif time.monotonic() >= connection.silent_at:
                seconds = self._config.answer_timeout_seconds
                self._lose(work, bookie_id, f"no answer in {seconds:g} s")

    def _take_answers(self, work: LedgerRead, bookie_id: str, connection: _Connection) -> None:
        try:
            answers = connection.receive()
        except (OSError, RemoteProtocolError) as error:
            self._lose(work, bookie_id, _reason(error))
            return
        now = time.monotonic()
        for tag, status, bodies in answers:
            work.on_response(bookie_id, tag, status, bodies, now)

    def _lose(self, work: LedgerRead, bookie_id: str, reason: str) -> None:
        connection = self._connections.pop(bookie_id, None)
        if connection is not None:
            connection.close()
        work.on_lost(bookie_id, reason, time.monotonic())


@final
class _Connection:
    """One TCP connection to a bookie, and which requests it has not answered."""

    def __init__(self, address: tuple[str, int], config: ReaderConfig) -> None:
        self._timeout_seconds = config.answer_timeout_seconds
        self.socket = socket.create_connection(address, config.answer_timeout_seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = ResponseDecoder(2, config.frame_size_max)
        self._batches: set[int] = set()
        self._reads: dict[tuple[int, int], int] = {}
        self.silent_at = time.monotonic() + self._timeout_seconds

    @property
    def owes_answers(self) -> bool:
        """Requests were sent that have no answer yet."""
        return bool(self._batches or self._reads)

    def send(self, ledger_id: int, requests: list[Request], run_size_bytes: int) -> None:
        """Raises: OSError."""
        if not self.owes_answers:
            self.silent_at = time.monotonic() + self._timeout_seconds
        packets: list[bytes] = []
        for _, tag, entry_id, count in requests:
            if count == 1:
                self._reads[ledger_id, entry_id] = tag
                packets.append(v2.encode_read_request(ledger_id, entry_id))
            else:
                self._batches.add(tag)
                packets.append(
                    v2.encode_batch_read_request(
                        BatchReadRequest(ledger_id, entry_id, tag, count, run_size_bytes)
                    )
                )
        self.socket.sendall(b"".join(packets))

    def receive(self) -> list[tuple[int, int, tuple[bytes, ...]]]:
        """(tag, status, entry bodies) of the answers that have come.

        Raises: OSError: the connection ended. RemoteProtocolError: something is no answer.
        """
        data = self.socket.recv(RECEIVE_SIZE_BYTES)
        if not data:
            raise ConnectionResetError("the bookie closed the connection")
        self.silent_at = time.monotonic() + self._timeout_seconds
        answers: list[tuple[int, int, tuple[bytes, ...]]] = []
        for response in self._decoder.feed(data):
            if isinstance(response, BatchReadResponse) and response.request_id in self._batches:
                self._batches.remove(response.request_id)
                answers.append((response.request_id, response.status, response.bodies))
            elif isinstance(response, ReadResponse):
                tag = self._reads.pop((response.ledger_id, response.entry_id), None)
                if tag is None:
                    raise RemoteProtocolError("the answer to a read that was not sent")
                bodies = (response.body,) if response.body else ()
                answers.append((tag, response.status, bodies))
            else:
                raise RemoteProtocolError("the answer to a request that was not sent")
        return answers

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
