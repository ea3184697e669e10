"""One message to a strip of consumers, and its acknowledgements, from the extension where it was
built."""

from __future__ import annotations

try:
    from native._extension import ack_table, message_frames, message_heads, update_slots
except ImportError:
    from native.pure.broadcast import ack_table, message_frames, message_heads, update_slots

from native.pure.broadcast import AckTable

__all__ = ["AckTable", "ack_table", "message_frames", "message_heads", "update_slots"]
