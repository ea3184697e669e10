"""The content of a message of a run: its run, its number, and its publish time.

Pure. The head of the payload is `run id (8) | sequence (4) | publish call, ns (8)`, big-endian; the
rest is the same pseudo-random bytes in every message, which no compression shortens. The time is
the machine's monotonic clock, which all processes share, taken right before the publish.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from protocol.errors import RemoteProtocolError
from protocol.metadata import peek_and_payload, verify_checksum

_HEAD: Final = Struct(">8sIQ")
SIZE_MIN: Final = _HEAD.size


class Published(NamedTuple):
    """The head of a payload."""

    sequence: int
    published_ns: int


def payload(run_id: bytes, sequence: int, published_ns: int, filler: bytes) -> bytes:
    """A payload of SIZE_MIN bytes and the filler."""
    return _HEAD.pack(run_id, sequence, published_ns) + filler


def read(body: bytes, run_id: bytes) -> Published | None:
    """The head of a message's payload; None if the message is not of this run.

    `body` is what follows the command: headers and payload.

    Raises: RemoteProtocolError: the checksum is wrong or the metadata cannot be read.
    """
    if not verify_checksum(body):
        raise RemoteProtocolError("a message with a wrong checksum")
    _, content = peek_and_payload(body)
    if len(content) < SIZE_MIN:
        return None
    found, sequence, published_ns = _HEAD.unpack_from(content)
    return Published(sequence, published_ns) if found == run_id else None
