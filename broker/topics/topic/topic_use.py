"""Whether a topic is open, and when it was last used: the ground of both kinds of topics.

A topic is either open, or closing (unload, delete), when it refuses every request with a retryable
error.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, ClassVar, Final

import structlog

from broker.ground.operations import Operations
from broker.topics.topic.failures import told
from broker.topics.topic.storage import TopicStorage
from protocol.errors import ServiceNotReady

if TYPE_CHECKING:
    from broker.tenancy.policies.scopes import TopicPolicies
    from broker.topics.topic.services import TopicServices
    from protocol.topic_name import TopicName

log = structlog.get_logger()

ATTENDED: Final = -1.0
AT_REST: Final = inf
PRODUCERS: Final = ()
"""The key of producer openings and schema registrations among the operations of a topic."""


class TopicUse(TopicStorage):
    """What all parts of a topic use: its name, its policies, the order of its operations."""

    __slots__ = (
        "active_at",
        "closing",
        "created_ms",
        "name",
        "operations",
        "policies",
        "services",
        "unattended_since",
    )
    persistent: ClassVar[bool]

    def __init__(self, services: TopicServices, name: TopicName, policies: TopicPolicies) -> None:
        self.services = services
        self.name = name
        self.policies = policies
        self.closing = ""
        """Why the topic takes no new producers and consumers; empty while it is open."""
        self.created_ms = services.clock.wall_ms()
        self.active_at = services.clock.now()
        """Time of the last use, for idle-topic collection."""
        self.unattended_since = ATTENDED
        """Since when it has had no client, as far as the timer of rest has seen."""
        self.operations = Operations(services.nursery_of)
        """Operations of subscriptions, by name, and of producers and schemas, by `PRODUCERS`."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name.full})"

    @property
    def partition(self) -> int:
        """Index of the partition, -1 when the topic is not partitioned."""
        return self.name.partition_index

    def is_internal_cursor(self, name: str) -> bool:
        """Whether no subscription may have this name, because a part of the topic has the cursor.
        A topic that stores nothing has none."""
        del name
        return False

    def check_open(self) -> None:
        """Raises: BrokerError ServiceNotReady: the client shall look up again and retry."""
        if self.closing:
            raise ServiceNotReady(
                f"Topic is temporarily unavailable: {self.closing}; look up again"
            )

    def touch(self) -> None:
        """The topic is used now."""
        self.active_at = self.services.clock.now()
        self.unattended_since = ATTENDED

    async def _unload_failed(self) -> None:
        try:
            await self.services.unload(self.name)
        except Exception as error:
            log.error("cannot unload failed topic", topic=self.name.full, **told(error))
