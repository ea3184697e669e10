"""Frames of messages, from the extension where it was built: runs of SENDs as columns, and
deliveries."""

from __future__ import annotations

from native.pure.sends import (
    ARE_CONSECUTIVE,
    ARE_SINGLE,
    PAYLOAD_BYTES_MAX,
    PAYLOAD_BYTES_MIN,
    RUN_BYTES_MAX,
    RUN_MESSAGES_MAX,
)

try:
    from native._extension import message_run, read_sends
except ImportError:
    from native.pure.delivering import message_run
    from native.pure.sends import read_sends

__all__ = [
    "ARE_CONSECUTIVE",
    "ARE_SINGLE",
    "PAYLOAD_BYTES_MAX",
    "PAYLOAD_BYTES_MIN",
    "RUN_BYTES_MAX",
    "RUN_MESSAGES_MAX",
    "message_run",
    "read_sends",
]
