"""The owners of topics. The seam between look-ups, code that works on stored topics, and a cluster
that distributes topics over brokers.

A broker serves a topic only while it owns it. `serves` is for code that cannot wait, and is checked
before a topic is loaded. `owner_of` finds the owner, which may take a while.

Topics are owned in bundles: ranges of hashes of a namespace. Administrators see and move these
through `Cluster`; a broker that shares nothing has none to show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, final

import trio

from protocol.errors import MetadataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.peers.broker_address import BrokerAddress
    from protocol.topic_name import TopicName


@final
@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The answer to the question for an owner."""

    address: BrokerAddress
    is_redirect: bool = False
    """This broker is not known to be the owner: ask it the same question."""
    authoritative: bool = True
    """With a redirect: the broker that is asked next becomes the owner if there is none yet, and
    does not ask another broker."""
    through_service_url: bool = False
    """The client stays with the URL that it was configured with, which leads to this broker."""


class NoBundles(MetadataError):
    """The policies of a namespace have invalid boundaries, so no broker can own its topics."""

    def __init__(self, reason: str) -> None:
        """`reason` begins with the name of the namespace."""
        super().__init__(
            f"The bundles in the policies of {reason}. Delete the namespace, and create it with "
            "such boundaries or none"
        )


class Ownership(Protocol):
    """See the module docstring."""

    @property
    def this_broker(self) -> BrokerAddress:
        """The addresses reported for topics that this broker serves."""

    @property
    def here(self) -> Whereabouts:
        """The answer for these topics."""

    def serves(self, topic: TopicName) -> bool:
        """Whether this broker owns the topic now."""

    async def settle(self, topic: TopicName) -> None:
        """Wait, for a bounded time, while it is undecided whether this broker owns the topic.
        Clients ask for topics here that this broker owned before it was started again.

        Raises: BrokerError.
        """

    async def owner_of(self, topic: TopicName, *, authoritative: bool = False) -> Whereabouts:
        """The topic's owner, assigned if necessary, or the broker to ask for it.

        `authoritative` is what the request says: the broker that sent the client here chose this
        one as the owner.

        Raises: BrokerError: there is none at the moment.
        """


class Cluster(Protocol):
    """The distribution of topics, for administrators. Ranges of bundles are texts
    like `0x00000000_0x40000000`; a wrong one is refused with 412 and Pulsar's text.
    """

    @property
    def is_leader(self) -> bool:
        """Whether this broker assigns bundles."""

    @property
    def brokers(self) -> Mapping[str, BrokerAddress]:
        """The brokers of the cluster by their ids (host and port of the web service)."""

    @property
    def leader(self) -> tuple[str, str] | None:
        """Id and web service URL of the leader."""

    @property
    def owned_bundles(self) -> Mapping[str, bool]:
        """Names of the bundles of this broker, and whether it serves them now."""

    async def ownership_status(self) -> Mapping[str, Mapping[str, str | bool]]:
        """Pulsar's NamespaceOwnershipStatus by the name of each bundle of this broker, those of its
        heartbeat namespaces included. Raises: BrokerError."""

    async def check_health(self, *, as_pulsar_1: bool) -> None:
        """Store a message in a heartbeat namespace of this broker, and read it. Raises:
        BrokerError: that is not possible now."""

    async def boundaries(self, namespace_name: str) -> list[str]:
        """The boundaries of the bundles of a namespace. Raises: BrokerError."""

    async def owner_of_bundle(
        self, namespace_name: str, range_text: str, *, authoritative: bool = False
    ) -> Whereabouts:
        """As `Ownership.owner_of`. Raises: Refusal, BrokerError."""

    async def owner_if_any(self, namespace_name: str, range_text: str) -> Whereabouts | None:
        """The owner of a bundle; None: there is none, and none is assigned. Raises: Refusal,
        BrokerError."""

    async def non_persistent_topics(
        self, namespace_name: str, range_text: str = ""
    ) -> Sequence[str]:
        """Full names, in order, of the non-persistent topics of an existing namespace that any
        broker has loaded, those that are reserved for brokers included. With `range_text` those of
        this bundle, written as in `Bundle.range_text`; [] if it is none.

        Raises: BrokerError: also if the topics of one bundle are not known.
        """

    async def ask(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """The status and body of the answer to an administrative request, given by the broker that
        it belongs to. `path` includes the query.

        Raises: ServiceNotReady: there is none, or it does not answer.
        """

    async def unload_bundle(self, namespace_name: str, range_text: str) -> None:
        """Close the topics of a bundle and give it up, if this broker owns it.

        Raises: Refusal, BrokerError.
        """

    async def unload_namespace(self, namespace_name: str) -> None:
        """The same for all bundles of a namespace, whichever brokers own them. Raises:
        BrokerError."""

    async def chosen_range(self, namespace_name: str, text: str) -> str:
        """The range that a text of a request to split stands for: `LARGEST` for that of the bundle
        with most topics, `HOT` for that with the highest throughput, any other for itself.

        Raises: Refusal: 404, there is no such bundle. BrokerError, MetadataError.
        """

    async def split_bundle(
        self, namespace_name: str, range_text: str, algorithm: str, *, unload: bool
    ) -> None:
        """Cut a bundle of this broker in two; with `unload` both are given up afterwards.

        Raises: Refusal, BrokerError.
        """


@final
class SoleBroker:
    """The ownership of a broker that shares nothing: every topic is its own."""

    def __init__(self, address: BrokerAddress) -> None:
        self.this_broker = address
        self.here = Whereabouts(address, through_service_url=True)

    def serves(self, topic: TopicName) -> bool:
        """Always."""
        del topic
        return True

    async def settle(self, topic: TopicName) -> None:
        """Nothing is undecided."""
        del topic
        await trio.lowlevel.checkpoint()

    async def owner_of(self, topic: TopicName, *, authoritative: bool = False) -> Whereabouts:
        """This broker."""
        del topic, authoritative
        await trio.lowlevel.checkpoint()
        return self.here
