"""The frames of one message for a strip of consumers, as the block of their heads and the payload
that they share. Pure, except that `send_strip` sends.

A place in a strip is `at`, where the head of a frame begins in the block, and `offset`, the bytes
of that frame that have been sent. A head gives its own size, so a strip keeps no list of frames.
"""

from __future__ import annotations

import os
from typing import Final

PARTS_MAX: Final = 1024
"""IOV_MAX of Linux."""
_COMMAND_AT: Final = 8


def send_strip(
    descriptor: int, heads: bytes, at: int, offset: int, payload: bytes, bytes_max: int
) -> int:
    """Send the next frames of a strip to a socket that does not block: at most 512 frames, and at
    most `bytes_max` bytes. Returns the number of bytes taken.

    Raises: BlockingIOError: the kernel takes none now. OSError: the other side is gone.
        ValueError: that is no place in this strip.
    """
    buffers = strip_buffers(heads, at, offset, payload, bytes_max)
    return os.writev(descriptor, buffers) if buffers else 0


def strip_place(
    heads: bytes, at: int, offset: int, payload_size: int, count: int
) -> tuple[int, int]:
    """The place that is `count` bytes after that of `at` and `offset`.

    Raises: ValueError: the strip ends before, or that is no place in it.
    """
    _check_place(heads, at, offset)
    if count < 0 or payload_size < 0:
        raise ValueError("no number of bytes")
    offset += count
    while at < len(heads):
        size = _head_size(heads, at)
        if offset < size + payload_size:
            break
        offset -= size + payload_size
        at += size
    if at == len(heads) and offset:
        raise ValueError("a strip has not so many bytes")
    return at, offset


def strip_buffers(
    heads: bytes, at: int, offset: int, payload: bytes, bytes_max: int
) -> list[bytes | memoryview]:
    """What `send_strip` sends. None is empty. Only here: for transports that are no sockets.

    Raises: ValueError: that is no place in this strip.
    """
    _check_place(heads, at, offset)
    view = memoryview(payload)
    buffers: list[bytes | memoryview] = []
    while at < len(heads) and bytes_max > 0 and len(buffers) + 2 <= PARTS_MAX:
        size = _head_size(heads, at)
        head = heads[at + offset : at + min(size, offset + bytes_max)]
        if offset < size:
            buffers.append(head)
            bytes_max -= len(head)
        sent = max(0, offset - size)
        if bytes_max > 0 and sent < len(payload):
            part = view[sent : sent + bytes_max] if sent or bytes_max < len(payload) else payload
            buffers.append(part)
            bytes_max -= len(part)
        at += size
        offset = 0
    return buffers


def _check_place(heads: bytes, at: int, offset: int) -> None:
    if not 0 <= at <= len(heads) or offset < 0:
        raise ValueError("no place in a strip")


def _head_size(heads: bytes, at: int) -> int:
    size = _COMMAND_AT + int.from_bytes(heads[at + 4 : at + 8], "big")
    if at + _COMMAND_AT > len(heads) or at + size > len(heads):
        raise ValueError("a strip has no whole head there")
    return size
