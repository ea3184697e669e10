"""One message to a strip of consumers, and its acknowledgements, from the extension where it was
built."""

from __future__ import annotations

try:
    from native._extension import message_frames, take_acks, update_slots
except ImportError:
    from native.pure.broadcast import message_frames, take_acks, update_slots

__all__ = ["message_frames", "take_acks", "update_slots"]
