"""Decodes requests to a bookie (either wire protocol), with adds of version 2 as runs. Pure.

A broker sends the adds of a turn together. Consecutive entries of one ledger with the same key and
flags become one `AddRun`, cut straight out of the bytes received: what follows costs per run. All
other packets are decoded one by one. A connection starts out as version 3 and flips to version 2,
for good, with the first packet that is not a version 3 request: that is how BookKeeper's bookies
tell them apart.

An entry that arrives in two pieces is kept as two: a body is a pair of byte strings anyway, so that
nothing has to be copied together.

Memory: besides what a call delivers, at most one packet of `frame_size_max` bytes is held, and only
bytes that have arrived. A bad packet fails the decoder for good; what was decoded before it in the
same chunk is still delivered.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, final

from protocol.bookkeeper import v2, v3
from protocol.bookkeeper.digests import MASTER_KEY_SIZE_BYTES, METADATA_SIZE_BYTES
from protocol.bookkeeper.messages import Request
from protocol.bookkeeper.packets import FRAME_SIZE_MAX
from protocol.errors import RemoteProtocolError

_PREFIX_SIZE_BYTES: Final = 4
_KEY_AT: Final = _PREFIX_SIZE_BYTES + 4
_BODY_AT: Final = _KEY_AT + MASTER_KEY_SIZE_BYTES
_ENTRY_AT_MIN: Final = _BODY_AT + 16
"""An add with this many bytes has the ids of its entry."""
_ADD_BYTES_MIN: Final = _BODY_AT + METADATA_SIZE_BYTES
_ADD: Final = v2.VERSION << 8 | v2.ADD
_RUN_ENTRIES_MAX: Final = 1_000
_PIECE_BYTES_MIN: Final = 16 * 1024
_unpack_size: Final = Struct(">i").unpack_from
_unpack_header: Final = Struct(">I").unpack_from
_unpack_ids: Final = Struct(">qq").unpack_from


@final
class AddRun:
    """Adds of consecutive entries. `bodies`: pairs of byte strings, each one entry."""

    __slots__ = ("bodies", "first_entry_id", "flags", "ledger_id", "master_key", "size_bytes")

    def __init__(self, ledger_id: int, first_entry_id: int, master_key: bytes, flags: int) -> None:
        self.ledger_id = ledger_id
        self.first_entry_id = first_entry_id
        self.bodies: list[tuple[bytes, bytes]] = []
        self.master_key = master_key
        self.flags = flags
        self.size_bytes = 0
        """The size of all bodies."""


Asked = Request | AddRun


@final
class RequestDecoder:
    """One connection: bytes as they arrive -> requests."""

    __slots__ = ("_frame_size_max", "_is_v2", "_pieces", "_wanted", "error", "pending_size_bytes")

    def __init__(self, frame_size_max: int = FRAME_SIZE_MAX) -> None:
        self._frame_size_max = frame_size_max
        self._is_v2 = False
        self._pieces: list[bytes] = []
        """The pieces of a packet that is not complete yet."""
        self._wanted = 0
        """The size of that packet with its prefix, or less while its prefix is not complete."""
        self.pending_size_bytes = 0
        """Bytes held of a packet that is not complete yet."""
        self.error: RemoteProtocolError | None = None
        """Why nothing more will be decoded. The connection must be closed."""

    @property
    def is_v2(self) -> bool:
        """The connection has flipped to version 2."""
        return self._is_v2

    def feed(self, data: bytes) -> list[Asked]:
        """The requests that `data` completes. After a call the owner looks at `error`."""
        asked: list[Asked] = []
        if self.error is not None:
            return asked
        try:
            at = 0
            if self._pieces:
                if self.pending_size_bytes < _ENTRY_AT_MIN:
                    # The first piece holds all that an add says before its entry.
                    data = b"".join(self._pieces) + data
                else:
                    at = self._wanted - self.pending_size_bytes
                    if len(data) < at:
                        self._keep(data)
                        return asked
                    self._complete(data[:at], asked)
            self._pieces = []
            self.pending_size_bytes = 0
            at = self._decode(data, at, asked)
            if at < len(data):
                self._keep(data[at:])
        except RemoteProtocolError as error:
            self.error = error
            self._pieces = []
            self.pending_size_bytes = 0
        return asked

    def _keep(self, data: bytes) -> None:
        """Few pieces, also of a peer that sends byte by byte."""
        pieces = self._pieces
        if pieces and len(pieces[-1]) < _PIECE_BYTES_MIN:
            pieces[-1] += data
        else:
            pieces.append(data)
        self.pending_size_bytes += len(data)

    def _complete(self, last: bytes, asked: list[Asked]) -> None:
        """The packet of the pieces has its last one. Raises: RemoteProtocolError."""
        first = self._pieces[0]
        if len(self._pieces) > 1:
            last = b"".join([*self._pieces[1:], last])
        header: int = _unpack_header(first, _PREFIX_SIZE_BYTES)[0]
        if header >> 16 != _ADD or self._wanted < _ADD_BYTES_MIN:
            self._decode(first + last, 0, asked)
            return
        self._is_v2 = True
        ledger_id, entry_id = _unpack_ids(first, _BODY_AT)
        run = AddRun(ledger_id, entry_id, first[_KEY_AT:_BODY_AT], header & 0xFFFF)
        run.bodies.append((first[_BODY_AT:], last))
        run.size_bytes = self._wanted - _BODY_AT
        asked.append(run)

    def _decode(self, data: bytes, at: int, asked: list[Asked]) -> int:
        """Returns how many bytes were whole packets. Raises: RemoteProtocolError."""
        end = len(data)
        run: AddRun | None = None
        key = b""
        run_ledger_id = next_entry_id = flags = -1
        while end - at >= _PREFIX_SIZE_BYTES:
            size: int = _unpack_size(data, at)[0]
            if not 0 <= size <= self._frame_size_max:
                raise RemoteProtocolError(
                    f"packet of {size} bytes; allowed are 0 to {self._frame_size_max}"
                )
            next_at = at + _PREFIX_SIZE_BYTES + size
            if next_at > end:
                self._wanted = next_at - at
                return at
            header: int = 0
            if size >= _ADD_BYTES_MIN - _PREFIX_SIZE_BYTES:
                header = _unpack_header(data, at + _PREFIX_SIZE_BYTES)[0]
            if header >> 16 != _ADD:
                run = None
                asked.append(self._decode_packet(data[at + _PREFIX_SIZE_BYTES : next_at]))
                at = next_at
                continue
            self._is_v2 = True
            ids = _unpack_ids(data, at + _BODY_AT)
            ledger_id: int = ids[0]
            entry_id: int = ids[1]
            if (
                run is None
                or entry_id != next_entry_id
                or ledger_id != run_ledger_id
                or header & 0xFFFF != flags
                or len(run.bodies) >= _RUN_ENTRIES_MAX
                or not data.startswith(key, at + _KEY_AT)
            ):
                key = data[at + _KEY_AT : at + _BODY_AT]
                run_ledger_id, next_entry_id, flags = ledger_id, entry_id, header & 0xFFFF
                run = AddRun(ledger_id, entry_id, key, flags)
                asked.append(run)
            run.bodies.append((data[at + _BODY_AT : next_at], b""))
            run.size_bytes += next_at - at - _BODY_AT
            next_entry_id += 1
            at = next_at
        self._wanted = _PREFIX_SIZE_BYTES
        return at

    def _decode_packet(self, packet: bytes) -> Request:
        """Raises: RemoteProtocolError."""
        if not self._is_v2:
            if not packet.startswith(b"\x02"):
                request = v3.decode_request(packet)
                if request is not None:
                    return request
            self._is_v2 = True
        return v2.decode_request(packet)
