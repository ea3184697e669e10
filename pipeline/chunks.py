"""Puts chunked messages together. Pure.

A producer cuts a large message into entries that share a `uuid` and count up `chunk_id`; entries of
other producers may lie between. The message belongs where its last chunk is, and has that id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from protocol import pulsar_api_pb2 as pb


class ChunkStartMissing(Exception):
    """A chunk came whose predecessors did not: they lie before the range that was read."""


@final
class ChunkBuffer:
    """Chunks of messages whose end has not come yet."""

    def __init__(self) -> None:
        self._parts: dict[str, list[bytes]] = {}

    def add(self, metadata: pb.MessageMetadata, payload: bytes | memoryview) -> bytes | None:
        """The whole (compressed) payload when this was the last chunk.

        Raises: ChunkStartMissing.
        """
        if metadata.chunk_id == 0:
            self._parts[metadata.uuid] = []
        parts = self._parts.get(metadata.uuid)
        if parts is None or len(parts) < metadata.chunk_id:
            raise ChunkStartMissing(metadata.uuid)
        if len(parts) == metadata.chunk_id:
            parts.append(bytes(payload))
        if len(parts) < metadata.num_chunks_from_msg:
            return None
        return b"".join(self._parts.pop(metadata.uuid))
