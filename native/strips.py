"""The frames of a strip of consumers, sent from one block of heads and one payload, from the
extension where it was built."""

from __future__ import annotations

try:
    from native._extension import send_strip, strip_place
except ImportError:
    from native.pure.strips import send_strip, strip_place

__all__ = ["send_strip", "strip_place"]
