"""Puts chunked messages together. Pure.

A producer cuts a large message into entries that share a `uuid` and count up `chunk_id`; entries of
other producers may lie between. The message belongs where its last chunk is. Its id names that
entry and the entry of its first chunk (PIP-107), because a reader that starts at the message needs
to read from the first chunk on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

if TYPE_CHECKING:
    from protocol import pulsar_api_pb2 as pb
    from protocol.position import Position


class ChunkStartMissing(Exception):
    """A chunk came whose predecessors did not: they lie before the range that was read."""


class Whole(NamedTuple):
    """A message put together: its (compressed) payload, and the entry of its first chunk."""

    payload: bytes
    first_chunk: Position


@final
class ChunkBuffer:
    """Chunks of messages whose end has not come yet."""

    def __init__(self) -> None:
        self._parts: dict[str, list[bytes]] = {}
        self._first: dict[str, Position] = {}

    def add(
        self, metadata: pb.MessageMetadata, payload: bytes | memoryview, position: Position
    ) -> Whole | None:
        """Take the chunk at `position`; the whole message when this was its last one.

        Raises: ChunkStartMissing.
        """
        if metadata.chunk_id == 0:
            self._parts[metadata.uuid] = []
            self._first[metadata.uuid] = position
        parts = self._parts.get(metadata.uuid)
        if parts is None or len(parts) < metadata.chunk_id:
            raise ChunkStartMissing(metadata.uuid)
        if len(parts) == metadata.chunk_id:
            parts.append(bytes(payload))
        if len(parts) < metadata.num_chunks_from_msg:
            return None
        payload_whole = b"".join(self._parts.pop(metadata.uuid))
        return Whole(payload_whole, self._first.pop(metadata.uuid))
