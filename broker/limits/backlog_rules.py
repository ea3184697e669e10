"""When a backlog is over its quota, and how often to look. Pure.

Source: PersistentTopic.isSizeBacklogExceeded, checkTimeBacklogExceeded and BacklogQuotaManager of
Pulsar 4.0. Pulsar looks every backlogQuotaCheckIntervalInSeconds only, so that what a producer
sends in that time comes on top of the quota. Here the bytes that are published count as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.tenancy.policies.backlog_quotas import EVICT, EXCEPTION
from protocol.errors import BrokerError, ServerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.tenancy.policies.backlog_quotas import BacklogQuota

STEP_SHARE: Final = 0.02
"""A share of the quota. Positions may move backwards, so the backlog is looked at after so many
bytes even if it was far from its quota."""
STEP_BYTES_MIN: Final = 1024 * 1024
TURN_BYTES_MAX: Final = 4 * 1024 * 1024
"""About what one turn may bring in addition to a message of the largest size."""
LEFT_SHARE: Final = 0.9
"""The share of the quota that an eviction leaves."""


def is_over_size(quota: BacklogQuota, backlog_bytes: int) -> bool:
    """Whether the backlog has used up its quota."""
    return 0 <= quota.limit_bytes <= backlog_bytes


def is_over_age(quota: BacklogQuota, oldest_ms: int | None, now_ms: int) -> bool:
    """Whether the oldest message is older than the quota. None: its age is not known."""
    return 0 < quota.limit_seconds * 1000 < now_ms - (now_ms if oldest_ms is None else oldest_ms)


def step_bytes(quota: BacklogQuota) -> int:
    """Look at the backlog again after so many bytes."""
    return max(int(quota.limit_bytes * STEP_SHARE), STEP_BYTES_MIN)


def bytes_until_gate(room_bytes: int, message_size_bytes_max: int) -> int:
    """How much may be published before each message must be counted; 0 or less: now."""
    return room_bytes - message_size_bytes_max - TURN_BYTES_MAX


def refused(quota: BacklogQuota) -> BrokerError | None:
    """The answer to a new producer when this quota is used up; None: it may come."""
    if quota.action == EVICT:
        return None
    code = (
        ServerError.ProducerBlockedQuotaExceededException
        if quota.action == EXCEPTION
        else ServerError.ProducerBlockedQuotaExceededError
    )
    return BrokerError(code, "Cannot create producer on topic with backlog quota exceeded")


@final
class BacklogGate:
    """Counts the messages of a topic whose backlog is near its quota.

    Far from the quota there is no gate, and a message costs nothing. At the gate each one takes its
    bytes from the room that is left. The message that uses up the room still passes, as in Pulsar,
    so the quota is exceeded by one message at most.
    """

    __slots__ = ("_find_room", "room_bytes")

    def __init__(self, find_room: Callable[[], int]) -> None:
        """`find_room` returns how many bytes there is room for now. It is called when those found
        before are used up."""
        self._find_room = find_room
        self.room_bytes = 0

    def takes(self, size_bytes: int) -> bool:
        """Whether a message passes. One that does not is dropped: its producer is sent away, and
        its client sends it again."""
        if self.room_bytes <= 0:
            self.room_bytes = self._find_room()
            if self.room_bytes <= 0:
                return False
        self.room_bytes -= size_bytes
        return True
