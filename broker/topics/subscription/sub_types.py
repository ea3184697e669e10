"""The types of subscriptions: the numbers of the protocol, and the names in statistics."""

from __future__ import annotations

EXCLUSIVE = 0
SHARED = 1
FAILOVER = 2
KEY_SHARED = 3
"""CommandSubscribe.SubType numbers."""

TYPE_NAMES = {
    EXCLUSIVE: "Exclusive",
    SHARED: "Shared",
    FAILOVER: "Failover",
    KEY_SHARED: "Key_Shared",
}
