"""A bookie over the wire that misbehaves on demand; in a thread, because the reader blocks.

Each connection is served by a thread of its own and answers packets in order with what `answer`
returns: frames to send, or None to close the connection.
"""

import socket
import threading
from contextlib import suppress

from protocol.bookkeeper import messages as m
from protocol.bookkeeper import v2
from protocol.bookkeeper.digests import Digest, DigestType
from protocol.bookkeeper.packets import PacketDecoder

DIGEST = Digest(DigestType.CRC32C)


def entry(ledger_id: int, entry_id: int, payload: bytes) -> bytes:
    return DIGEST.head(ledger_id, entry_id, entry_id - 1, 0, payload) + payload


class FakeBookie:
    """`ledgers`: ledger id -> entry id -> body as stored."""

    def __init__(self) -> None:
        self.ledgers: dict[int, dict[int, bytes]] = {}
        self.requests: list[m.Request] = []
        self.has_batch_reads = True
        self.closes_on_batch_reads = False
        self.status_of = lambda request: m.OK
        self.connections_to_drop = 0
        self.answers_before_close: int | None = None
        self.is_silent = False
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def bookie_id(self) -> str:
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def fill(self, ledger_id: int, count: int, size: int = 20) -> None:
        self.ledgers[ledger_id] = {
            entry_id: entry(ledger_id, entry_id, payload_of(entry_id, size))
            for entry_id in range(count)
        }

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        decoder = PacketDecoder()
        with connection, suppress(OSError):
            if self.connections_to_drop:
                self.connections_to_drop -= 1
                return
            answered = 0
            while data := connection.recv(1 << 16):
                for packet in decoder.feed(data):
                    frames = self._answer(packet)
                    answered += 1
                    if frames is None or answered == self.answers_before_close:
                        return
                    connection.sendall(frames)

    def _answer(self, packet: bytes) -> bytes | None:
        request = v2.decode_request(packet)
        self.requests.append(request)
        assert isinstance(request, m.ReadRequest | m.BatchReadRequest)
        if self.is_silent:
            return b""
        status = self.status_of(request)
        entries = self.ledgers.get(request.ledger_id)
        if status == m.OK and entries is None:
            status = m.NO_LEDGER
        elif status == m.OK and request.entry_id not in entries:
            status = m.NO_ENTRY
        if isinstance(request, m.ReadRequest):
            body = entries[request.entry_id] if status == m.OK else b""
            head = v2.encode_read_response_head(
                status, request.ledger_id, request.entry_id, len(body)
            )
            return head + body
        if self.closes_on_batch_reads:
            return None
        if not self.has_batch_reads:
            status = m.BAD_REQUEST
        bodies = []
        size = v2.BATCH_READ_OVERHEAD_BYTES
        entry_id = request.entry_id
        while status == m.OK and entry_id in entries and len(bodies) < request.count_max:
            size += 4 + len(entries[entry_id])
            if bodies and size > request.size_bytes_max:
                break
            bodies.append(entries[entry_id])
            entry_id += 1
        return b"".join(
            v2.encode_batch_read_response(
                status, request.ledger_id, request.entry_id, request.request_id, bodies
            )
        )


def payload_of(entry_id: int, size: int = 20) -> bytes:
    return b"%08d" % entry_id + bytes(size - 8)
