"""The owners of topics. The seam between look-ups, code that works on stored topics, and a cluster
that distributes topics over brokers.

A broker serves a topic only while it owns it. `serves` is for code that cannot wait, and is checked
before any change of a topic. `owner_of` finds the owner, which may take a while.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, final

import trio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.topic_name import TopicName


@final
@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The addresses of a broker for clients."""

    broker_service_url: str
    web_service_url: str
    advertised_listeners: Mapping[str, str] = field(default_factory=dict)
    """Broker service URLs by the name of a listener."""

    def url(self, listener: str) -> str:
        """The broker service URL for clients that asked for this listener."""
        return self.advertised_listeners.get(listener, self.broker_service_url)


class Ownership(Protocol):
    """See the module docstring."""

    @property
    def this_broker(self) -> BrokerAddress:
        """The addresses reported for topics that this broker serves."""

    def serves(self, topic: TopicName) -> bool:
        """Whether this broker owns the topic now."""

    async def owner_of(self, topic: TopicName) -> BrokerAddress:
        """The topic's owner, assigned if necessary.

        Raises: BrokerError: there is none at the moment.
        """


@final
class SoleBroker:
    """The ownership of a broker that shares nothing: every topic is its own."""

    def __init__(self, address: BrokerAddress) -> None:
        self.this_broker = address

    def serves(self, topic: TopicName) -> bool:
        """Always."""
        del topic
        return True

    async def owner_of(self, topic: TopicName) -> BrokerAddress:
        """This broker."""
        del topic
        await trio.lowlevel.checkpoint()
        return self.this_broker
