"""Decodes the answers of a bookie to WRITE_LAC (wire protocol version 3). Pure.

Version 2 has no such request. As BookKeeper's client does, a client whose entries go over version 2
sends it over another connection, which speaks version 3.

Memory: besides what a call delivers, at most one packet of `frame_size_max` bytes is held, and only
bytes that have arrived. A bad packet fails the decoder for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ledgers.remote.answers import LacWritten
from protocol.bookkeeper import v3
from protocol.bookkeeper.messages import ErrorResponse, WriteLacResponse
from protocol.bookkeeper.packets import FRAME_SIZE_MAX, PacketDecoder
from protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from ledgers.remote.answers import Answer


@final
class LacAnswerDecoder:
    """One connection to a bookie: bytes as they arrive -> answers (a Decoder)."""

    __slots__ = ("_packets", "error")

    def __init__(self, frame_size_max: int = FRAME_SIZE_MAX) -> None:
        self._packets = PacketDecoder(frame_size_max)
        self.error: RemoteProtocolError | None = None
        """See Decoder."""

    def feed(self, data: bytes) -> list[Answer]:
        """See Decoder."""
        answers: list[Answer] = []
        if self.error is not None:
            return answers
        try:
            for packet in self._packets.feed(data):
                answer = v3.decode_response(packet)
                if not isinstance(answer, WriteLacResponse | ErrorResponse):
                    raise RemoteProtocolError(f"{type(answer).__name__} was not asked for")
                if answer.txn_id is None:
                    raise RemoteProtocolError("an answer without a transaction id")
                answers.append(LacWritten(answer.status, answer.txn_id))
        except RemoteProtocolError as error:
            self.error = error
        return answers
