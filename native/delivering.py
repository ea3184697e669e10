"""Frames of messages to be delivered, from the extension where it was built."""

from __future__ import annotations

try:
    from native._extension import message_run
except ImportError:
    from native.pure.delivering import message_run

__all__ = ["message_run"]
