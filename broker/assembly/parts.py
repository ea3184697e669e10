"""The parts in which brokers differ: storage, the owners of topics, and open ports of bookies.

A `Deployment` supplies these parts, and `assembled_broker` puts a broker together from them. All
other parts are the same for a broker with a bookie of its own and for one of a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, final

import trio

from broker.peers.broker_client import ANONYMOUS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AsyncExitStack

    from bookie.bookie import Bookie
    from bookie.net.server import BookieServer
    from broker.ground.config import BrokerConfig
    from broker.ground.turn import Turns
    from broker.http.context import StorageHealth
    from broker.peers.broker_address import BrokerAddress
    from broker.peers.broker_client import BrokerClient
    from broker.peers.ownership import Cluster, Ownership
    from broker.tenancy.authorization.authorizer import Authorizer
    from broker.topics.follow.following_factory import FollowingFactory
    from broker.topics.service import BrokerService
    from broker.topics.topic.topic_ledger import TopicLedgers
    from ledgers.client import LedgerClient
    from metadata.store import MetadataStore
    from runtime.clock import Clock
    from runtime.readers import Readers
    from security.authentication.service import Authentication


class StartError(Exception):
    """The broker cannot start. The text is one line for the user."""


async def shielded(close: Callable[[], Awaitable[None]]) -> None:
    """For the callbacks of a stack: what is opened is closed, also after a cancellation."""
    with trio.CancelScope(shield=True):
        await close()


def _nothing() -> None:
    """There is nothing to hand over at the end of a turn."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Everything below topics, running."""

    store: MetadataStore
    ledgers: LedgerClient
    factory: TopicLedgers
    health: StorageHealth
    bookie: Bookie | None = None
    """The bookie of this process, if it has one."""
    kick: Callable[[], None] = _nothing
    """Hands all added entries to the bookies: part of the end of a turn."""
    metadata_url: str = ""
    """Where other processes find the metadata; empty: in this process only."""
    broker_client: BrokerClient = ANONYMOUS
    """How other brokers are reached."""
    shadows: FollowingFactory
    """Topics that have the messages of others."""


@final
@dataclass(frozen=True, slots=True)
class BookiePorts:
    """Where processes that bypass the broker read entries."""

    addresses: Mapping[str, str] = field(default_factory=dict)
    """Bookie id, as in ledger metadata -> `host:port`."""
    own: str = ""
    """`host:port` of this process's bookie; empty: none."""
    server: BookieServer | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A broker whose ports are known and that serves nothing yet."""

    config: BrokerConfig
    address: BrokerAddress
    storage: Storage
    service: BrokerService
    clock: Clock
    version: str
    """The version of Pulsar that is reported to clients."""
    authentication: Authentication | None = None
    """None: every client is served."""
    authorizer: Authorizer | None = None
    """None: every caller may do everything."""


class Owners(Protocol):
    """The owners of topics, and this broker's part in it."""

    @property
    def ownership(self) -> Ownership:
        """For lookups, and before a topic is loaded."""

    @property
    def cluster(self) -> Cluster | None:
        """For administrators. None: this broker has all topics."""

    async def prepare(self) -> None:
        """Make sure that what clients expect in a new cluster is there. No client is connected.

        Raises: StartError, MetadataUnavailable.
        """

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Take part until cancelled. Started when it can be asked for owners."""

    def use(self, config: BrokerConfig) -> None:
        """This configuration is in force now, of the class that the broker was started with."""

    async def wait_joined(self) -> None:
        """Return when topics may be assigned to this broker."""

    async def leave(self) -> None:
        """Hand all topics over while the ports are still open."""


class Deployment(Protocol):
    """See the module docstring."""

    async def open_storage(
        self,
        stack: AsyncExitStack,
        nursery: trio.Nursery,
        turns: Turns,
        readers: Readers,
        clock: Clock,
    ) -> Storage:
        """Open everything below topics; `stack` closes it in reverse order. Tasks run in `nursery`.
        A bookie of this process works in `turns`, and its journals wake `readers`.

        Raises: StartError, bookie.errors.StorageError, MetadataUnavailable.
        """

    def owners(self, broker: Served) -> Owners:
        """The owners of topics, as this broker sees them."""

    async def open_bookie_ports(
        self, front: trio.Nursery, storage: Storage, host: str
    ) -> BookiePorts:
        """Serve reads of bookies. `host` is the broker's in URLs. Raises: StartError."""
