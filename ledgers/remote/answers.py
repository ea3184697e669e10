"""Decodes the answers of a bookie (wire protocol version 2) as runs. Pure.

Answers to adds are 28 bytes each and come in groups. A group is unpacked with one iterator, and
consecutive entries of one ledger with the same status become one `AddRun`: what follows costs per
run, not per entry.

Memory: besides what a call delivers, at most one packet of `frame_size_max` bytes is held, and only
bytes that have arrived. A bad packet fails the decoder for good. The answers before it in the same
chunk are still delivered.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple, Protocol, final

from protocol.bookkeeper import v2
from protocol.bookkeeper.messages import STATUSES, BatchReadResponse, ReadResponse
from protocol.bookkeeper.packets import FRAME_SIZE_MAX
from protocol.errors import RemoteProtocolError

_PREFIX_SIZE_BYTES: Final = 4
_ADD_ANSWER: Final = Struct(">IIIqq")
_ADD_ANSWER_SIZE_BYTES: Final = _ADD_ANSWER.size
_ADD_SIZE: Final = _ADD_ANSWER.size - _PREFIX_SIZE_BYTES
_ADD_HEADER: Final = v2.VERSION << 24 | v2.ADD << 16
_unpack_size: Final = Struct(">i").unpack_from


class AddRun(NamedTuple):
    """The same answer to adds of consecutive entries."""

    status: int
    ledger_id: int
    first_entry_id: int
    entries: int


class LacWritten(NamedTuple):
    """The answer to WRITE_LAC, which only protocol version 3 has."""

    status: int
    txn_id: int


Answer = AddRun | ReadResponse | BatchReadResponse | LacWritten


class Decoder(Protocol):
    """Decodes the answers of one connection."""

    error: RemoteProtocolError | None
    """Why nothing more will be decoded. The connection must be closed."""

    def feed(self, data: bytes) -> list[Answer]:
        """The answers that `data` completes. After a call the owner looks at `error`."""


@final
class AnswerDecoder:
    """One connection to a bookie: bytes as they arrive -> answers."""

    __slots__ = ("_frame_size_max", "_pending", "_wanted", "error")

    def __init__(self, frame_size_max: int = FRAME_SIZE_MAX) -> None:
        self._frame_size_max = frame_size_max
        self._pending = bytearray()
        self._wanted = 0
        """Size that `_pending` needs before it is worth a look."""
        self.error: RemoteProtocolError | None = None
        """Why nothing more will be decoded. The connection must be closed."""

    @property
    def pending_size_bytes(self) -> int:
        """Bytes held of an answer that is not complete yet."""
        return len(self._pending)

    def feed(self, data: bytes) -> list[Answer]:
        """The answers that `data` completes. After a call the owner looks at `error`."""
        answers: list[Answer] = []
        if self.error is not None:
            return answers
        if self._pending:
            self._pending += data
            if len(self._pending) < self._wanted:
                return answers
            data = bytes(self._pending)
            self._pending = bytearray()
        try:
            at = self._decode(data, answers)
        except RemoteProtocolError as error:
            self.error = error
            return answers
        if at < len(data):
            self._pending += memoryview(data)[at:]
        return answers

    def _decode(self, data: bytes, answers: list[Answer]) -> int:
        """Returns how many bytes were whole answers."""
        at = 0
        end = len(data)
        while end - at >= _PREFIX_SIZE_BYTES:
            size: int = _unpack_size(data, at)[0]
            if not 0 <= size <= self._frame_size_max:
                raise RemoteProtocolError(
                    f"answer of {size} bytes; allowed are 0 to {self._frame_size_max}"
                )
            next_at = at + _PREFIX_SIZE_BYTES + size
            if next_at > end:
                self._wanted = next_at - at
                return at
            if size == _ADD_SIZE:
                after = self._add_runs(data, at, answers)
                if after > at:
                    at = after
                    continue
            answer = v2.decode_response(data[at + _PREFIX_SIZE_BYTES : next_at])
            if not isinstance(answer, ReadResponse | BatchReadResponse):
                raise RemoteProtocolError(f"{type(answer).__name__} was not asked for")
            answers.append(answer)
            at = next_at
        self._wanted = _PREFIX_SIZE_BYTES
        return at

    def _add_runs(self, data: bytes, start: int, answers: list[Answer]) -> int:
        """Take all answers to adds from `start` on. Returns the place after the last."""
        count = (len(data) - start) // _ADD_ANSWER_SIZE_BYTES
        window = memoryview(data)[start : start + count * _ADD_ANSWER_SIZE_BYTES]
        at = start
        run_status = run_ledger_id = run_first = next_entry_id = -1
        for size, header, status, ledger_id, entry_id in _ADD_ANSWER.iter_unpack(window):
            if size != _ADD_SIZE or header != _ADD_HEADER:
                break
            if entry_id == next_entry_id and ledger_id == run_ledger_id and status == run_status:
                next_entry_id += 1
            else:
                if at > start:
                    count = next_entry_id - run_first
                    answers.append(AddRun(run_status, run_ledger_id, run_first, count))
                if status not in STATUSES:
                    raise RemoteProtocolError(f"answer with unknown status {status}")
                run_status, run_ledger_id = status, ledger_id
                run_first, next_entry_id = entry_id, entry_id + 1
            at += _ADD_ANSWER_SIZE_BYTES
        if at > start:
            answers.append(AddRun(run_status, run_ledger_id, run_first, next_entry_id - run_first))
        return at
