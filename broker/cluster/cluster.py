"""The ownership of topics by several brokers, as in a cluster of Pulsar 4.0.8.

A topic belongs to a bundle, and a bundle to the broker whose node names it. A bundle without an
owner gets one when a client asks for it: the leader chooses a broker, sends the client there, and
that broker takes the bundle. The choice is authoritative: the chosen broker does not ask again. Any
other broker sends the client to the leader. Without a leader every broker chooses by itself; the
node decides which choice wins.

The broker follows the boundaries of its bundles. A bundle that is not one any more, because its
namespace was deleted or somebody else changed the boundaries, is given up.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from broker.cluster.bundle_owners import BundleOwners, FormerSession
from broker.cluster.bundles import Bundle, NotABundle
from broker.cluster.choosing import HOT, LARGEST, hottest, largest
from broker.cluster.config import ConfigInForce
from broker.cluster.heartbeat import heartbeat_broker
from broker.cluster.heartbeat_bundles import HeartbeatBundles
from broker.cluster.isolation import Standing
from broker.cluster.load import Identity, report_of
from broker.cluster.members import Members
from broker.cluster.namespace_bundles import NamespaceBundles
from broker.cluster.non_persistent_topics import NonPersistentTopics
from broker.cluster.peers import Peers
from broker.cluster.placement import Placement
from broker.cluster.session import ClusterSession
from broker.cluster.splitter import ALGORITHMS, Splitter
from broker.ground.operations import run_owned
from broker.ground.refusal import not_found, precondition_failed
from broker.peers.broker_client import ANONYMOUS
from broker.peers.ownership import Whereabouts
from protocol.errors import MetadataError, ServiceNotReady, TopicNotFound
from runtime.locks import KeyedLocks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.cluster.bundle_owners import OpenTopics
    from broker.cluster.config import ClusterConfig
    from broker.cluster.health_check import HealthCheck
    from broker.cluster.load import LoadSource
    from broker.cluster.records import BrokerReport, Owner
    from broker.peers.broker_address import BrokerAddress
    from broker.peers.broker_client import BrokerClient
    from broker.tenancy.namespaces.namespaces import Namespaces
    from metadata.store import MetadataStore
    from protocol.topic_name import TopicName
    from runtime.clock import Clock

log = structlog.get_logger()

_RETRY_SECONDS: Final = 1.0


@final
class ClusterOwnership:
    """`Ownership` and `Cluster` of broker/peers/ownership.py. Run it with `nursery.start(run)`: it
    is a member of the cluster when that returns."""

    def __init__(
        self,
        store: MetadataStore,
        namespaces: Namespaces,
        this_broker: BrokerAddress,
        *,
        config: ClusterConfig,
        clock: Clock,
        process_name: str,
        topics: OpenTopics,
        load: LoadSource,
        version: str,
        health_check: HealthCheck | None = None,
        client: BrokerClient = ANONYMOUS,
    ) -> None:
        """`process_name` is different for every process that ever used the store; `version` is
        Pulsar's. `health_check` None: this broker cannot store messages. `client`: how other
        brokers are reached."""
        self.this_broker = this_broker
        self.here = Whereabouts(this_broker)
        self.in_force = ConfigInForce(config)
        self._store = store
        self._namespaces = namespaces
        self._clock = clock
        self._load = load
        self._identity = Identity(address=this_broker, started_ms=clock.wall_ms(), version=version)
        self.session = ClusterSession(store, process_name)
        self._owners = BundleOwners(
            store,
            self.session,
            this_broker,
            topics,
            doubt_seconds_max=config.doubt_seconds_max,
            close_seconds_max=config.namespaceBundleUnloadingTimeoutMs / 1000,
            on_change=self._owner_changed,
        )
        self._bundles = NamespaceBundles(store, namespaces, self._boundaries_changed)
        self.members = Members(store, self.session, this_broker, self._report, self.in_force, clock)
        self.placement = Placement(store, self._bundles, self.members, self.in_force, clock)
        self._heartbeats = HeartbeatBundles(
            self._owners, self.session, config.clusterName, self.members.broker_id
        )
        self._splitter = Splitter(
            self._bundles, self._owners, self.session, load, self._boundaries_changed
        )
        self._health_check = health_check
        self._peers = Peers(this_broker, config.namespaceBundleUnloadingTimeoutMs / 1000, client)
        self._non_persistent = NonPersistentTopics(self._bundles, self._peers.ask)
        self._changed_namespaces: set[str] = set()
        self._boundaries_moved = trio.Event()
        self._changing: KeyedLocks[str] = KeyedLocks()
        """Held while bundles of a namespace are split, or compared with the boundaries."""
        self._nursery: trio.Nursery | None = None
        self._joined = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be a member of the cluster until cancelled. Call `leave` first for a clean end. Started
        when it can be asked for owners; `wait_joined` returns when it is a member."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                await nursery.start(self._owners.run)
                nursery.start_soon(self._follow_boundaries)
                nursery.start_soon(self._heartbeats.run)
                task_status.started()
                await nursery.start(self.members.run)
                self._joined.set()
        finally:
            self._nursery = None
            self._bundles.close()
            self.placement.close()
            self.session.close()

    async def wait_joined(self) -> None:
        """Return when this broker is a member. That waits for the end of an earlier session of the
        same broker."""
        await self._joined.wait()

    def _owner_changed(self, bundle: Bundle) -> None:
        self.placement.changed(bundle)
        self._heartbeats.owner_changed(bundle)

    async def leave(self) -> None:
        """Hand everything over: be assigned nothing more, close all topics, free their bundles.
        Call it while the ports are still open, so that clients hear where their topics went."""
        self._heartbeats.stop()
        await self.members.leave()
        await self._owners.leave()

    async def _report(self) -> BrokerReport:
        return await report_of(
            self._identity,
            self._load,
            self._reported,
            self.session.name,
            self._clock.wall_ms(),
        )

    @property
    def _reported(self) -> dict[Bundle, bool]:
        """The bundles of this broker except its heartbeat namespaces, and whether it serves them
        now."""
        return {
            bundle: is_active
            for bundle, is_active in self._owners.bundles.items()
            if not heartbeat_broker(bundle.namespace_name)
        }

    # --- Ownership ----------------------------------------------------------------------

    def serves(self, topic: TopicName) -> bool:
        """See Ownership."""
        return self._owners.serves(topic)

    async def owner_of(self, topic: TopicName, *, authoritative: bool = False) -> Whereabouts:
        """See Ownership."""
        boundaries = await self._bundles.of(topic.namespace_name)
        return await self._locate(boundaries.bundle_of(topic), authoritative)

    async def settle(self, topic: TopicName) -> None:
        """See Ownership. The topics of an earlier session of this broker become those of this
        session, unless another broker is faster: a client that knows this broker as their owner
        asks for them here, and has no other place to ask."""
        boundaries = await self._bundles.of(topic.namespace_name)
        bundle = boundaries.bundle_of(topic)
        if not self.session.is_live:
            return
        owner = await self._owners.find(bundle)
        if owner is not None and self._is_former(owner):
            await self._locate(bundle, authoritative=True)

    def _is_former(self, owner: Owner) -> bool:
        """Whether the owner is an earlier session of this broker."""
        return (
            owner.address.broker_id == self.this_broker.broker_id
            and owner.session != self.session.name
        )

    async def _locate(self, bundle: Bundle, authoritative: bool) -> Whereabouts:
        """The answer is held while the bundle is owned by an earlier session of this broker. Some
        clients never ask again after a refusal.

        Raises: BrokerError.
        """
        with trio.move_on_after(self.in_force.now.former_session_seconds_max):
            while True:
                try:
                    return await self._locate_now(bundle, authoritative)
                except FormerSession:
                    seen = await self._owners.find(bundle)
                    if seen is not None and self._is_former(seen):
                        await self._owners.wait_for_change(bundle, seen)
        raise FormerSession(bundle)

    async def _locate_now(self, bundle: Bundle, authoritative: bool) -> Whereabouts:
        """Raises: FormerSession, BrokerError."""
        if self._owners.holds(bundle):
            return self.here
        session = self.session.check_live()
        owner = await self._owners.find(bundle)
        if owner is None:
            return await self._assign(bundle, authoritative)
        if owner.session == session:
            return await self._acquire(bundle)
        if self._is_former(owner):
            raise FormerSession(bundle)
        _refuse_unloading(bundle, owner)
        return Whereabouts(owner.address)

    async def _assign(self, bundle: Bundle, authoritative: bool) -> Whereabouts:
        """Find an owner for a bundle that has none."""
        members = self.members
        if heartbeat := heartbeat_broker(bundle.namespace_name):
            await members.refresh()
            return await self._send_to(heartbeat, bundle, authoritative=self.is_leader)
        if authoritative:
            await self.placement.check_may_own(bundle)
            return await self._acquire(bundle)
        await members.refresh()
        leader = members.leader
        if leader is not None and leader.broker_id in self._others:
            address = members.reports[leader.broker_id].address
            return Whereabouts(address, is_redirect=True, authoritative=False)
        chosen = await self.placement.choose(bundle)
        return await self._send_to(chosen, bundle, authoritative=True)

    async def _send_to(self, broker_id: str, bundle: Bundle, *, authoritative: bool) -> Whereabouts:
        """Own the bundle, if it is to be at this broker; else the other broker is asked next."""
        if broker_id == self.members.broker_id:
            return await self._acquire(bundle)
        report = self.members.reports.get(broker_id)
        if report is None:
            raise ServiceNotReady(f"Broker {broker_id} is not a member of the cluster now")
        return Whereabouts(report.address, is_redirect=True, authoritative=authoritative)

    @property
    def _others(self) -> set[str]:
        return self.members.reports.keys() - {self.members.broker_id}

    async def _acquire(self, bundle: Bundle) -> Whereabouts:
        owner = await self._owners.acquire(bundle, partial(self._is_bundle, bundle))
        return Whereabouts(owner.address)

    async def _is_bundle(self, bundle: Bundle) -> bool:
        """Read from the store."""
        try:
            return bundle in (await self._bundles.read(bundle.namespace_name)).boundaries
        except TopicNotFound:
            return False

    # --- Cluster ------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """See Cluster."""
        return self.members.is_leader

    @property
    def brokers(self) -> Mapping[str, BrokerAddress]:
        """See Cluster."""
        return {name: report.address for name, report in self.members.reports.items()}

    @property
    def leader(self) -> tuple[str, str] | None:
        """See Cluster."""
        leader = self.members.leader
        return None if leader is None else (leader.broker_id, leader.web_service_url)

    @property
    def owned_bundles(self) -> Mapping[str, bool]:
        """See Cluster."""
        return {bundle.name: is_active for bundle, is_active in self._reported.items()}

    async def ownership_status(self) -> dict[str, dict[str, str | bool]]:
        """Pulsar's NamespaceOwnershipStatus by the name of each bundle of this broker, those of its
        heartbeat namespaces included. Raises: MetadataError."""
        policies = await self.placement.policies()
        return {
            bundle.name: {
                "broker_assignment": (
                    policies.standing_of(bundle.namespace_name, self.members.broker_id)
                    or Standing.SHARED
                ).value,
                "is_controlled": policies.policy_of(bundle.namespace_name) is not None,
                "is_active": is_active,
            }
            for bundle, is_active in self._owners.bundles.items()
        }

    async def check_health(self, *, as_pulsar_1: bool) -> None:
        """Store a message in a heartbeat namespace of this broker, and read it.

        Raises: BrokerError: that is not possible now.
        """
        of_pulsar_1, of_pulsar_2 = self._heartbeats.bundles
        bundle = of_pulsar_1 if as_pulsar_1 else of_pulsar_2
        if self._health_check is None or not self._owners.holds(bundle):
            raise ServiceNotReady(f"{bundle.namespace_name} is not owned by this broker now")
        await self._health_check.run(bundle.namespace_name)

    async def boundaries(self, namespace_name: str) -> list[str]:
        """See Cluster."""
        return (await self._bundles.of(namespace_name)).texts

    async def owner_of_bundle(
        self, namespace_name: str, range_text: str, *, authoritative: bool = False
    ) -> Whereabouts:
        """See Cluster."""
        return await self._locate(await self._find(namespace_name, range_text), authoritative)

    async def owner_if_any(self, namespace_name: str, range_text: str) -> Whereabouts | None:
        """See Cluster. An earlier session of this broker is no owner: the topics that it had in
        memory are gone."""
        bundle = await self._find(namespace_name, range_text)
        if self._owners.holds(bundle):
            return self.here
        session = self.session.check_live()
        owner = await self._owners.find(bundle)
        if owner is None or self._is_former(owner):
            return None
        if owner.session == session:  # being acquired or given up
            return self.here
        _refuse_unloading(bundle, owner)
        return Whereabouts(owner.address)

    async def non_persistent_topics(
        self, namespace_name: str, range_text: str = ""
    ) -> Sequence[str]:
        """See Cluster."""
        return await self._non_persistent.of(namespace_name, range_text)

    async def _find(self, namespace_name: str, range_text: str) -> Bundle:
        """Raises: Refusal, BrokerError."""
        _refuse_heartbeat(namespace_name)
        boundaries = await self._bundles.of(namespace_name)
        try:
            return boundaries.find(range_text)
        except NotABundle as error:
            raise precondition_failed(str(error)) from None

    async def chosen_range(self, namespace_name: str, text: str) -> str:
        """See Cluster."""
        if text not in (LARGEST, HOT):
            return text
        _refuse_heartbeat(namespace_name)
        boundaries = await self._bundles.of(namespace_name)
        if text == LARGEST:
            names = await self._namespaces.topics(namespace_name, "persistent")
            bundle = await largest(boundaries, names)
        else:
            bundle = await hottest(boundaries, self._store)
        if bundle is None:
            raise not_found(f"Bundle range {text} not found")
        return bundle.range_text

    async def unload_bundle(self, namespace_name: str, range_text: str) -> None:
        """See Cluster."""
        bundle = await self._find(namespace_name, range_text)
        self.placement.free(bundle)
        await self._owners.release(bundle)

    async def unload_namespace(self, namespace_name: str) -> None:
        """See Cluster."""
        _refuse_heartbeat(namespace_name)
        boundaries = await self._bundles.of(namespace_name)
        for bundle in boundaries.bundles:
            await self.unload_anywhere(bundle)

    async def unload_anywhere(self, bundle: Bundle) -> None:
        """Have the owner of a bundle give it up, if it has one. Raises: BrokerError."""
        self.placement.free(bundle)
        if self._owners.holds(bundle):
            await self._owners.release(bundle)
            return
        owner = await self._owners.find(bundle)
        if owner is None or owner.address.broker_id == self.this_broker.broker_id:
            return
        await self._peers.change_bundle(owner.address, bundle, "unload")

    async def split_anywhere(self, bundle: Bundle) -> None:
        """Have the owner of a bundle split it by the default algorithm. Raises: BrokerError,
        Refusal."""
        unload = self.in_force.now.loadBalancerAutoUnloadSplitBundlesEnabled
        if self._owners.holds(bundle):
            await self.split_bundle(bundle.namespace_name, bundle.range_text, "", unload=unload)
            return
        owner = await self._owners.find(bundle)
        if owner is not None:
            flag = "true" if unload else "false"
            await self._peers.change_bundle(owner.address, bundle, f"split?unload={flag}")

    async def ask(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """See Cluster."""
        return await self._peers.ask(method, path, body)

    async def split_bundle(
        self, namespace_name: str, range_text: str, algorithm: str, *, unload: bool
    ) -> None:
        """See Cluster."""
        _refuse_heartbeat(namespace_name)
        algorithm = algorithm or self.in_force.now.defaultNamespaceBundleSplitAlgorithm
        if algorithm not in ALGORITHMS:
            raise precondition_failed(
                "Unsupported namespace bundle split algorithm, supported algorithms are "
                f"[{', '.join(ALGORITHMS)}]"
            )
        await self._bundles.of(namespace_name)
        assert self._nursery is not None
        split = partial(self._split, namespace_name, range_text, algorithm, unload)
        await run_owned(self._nursery, split)

    async def _split(
        self, namespace_name: str, range_text: str, algorithm: str, unload: bool
    ) -> None:
        async with self._changing.hold(namespace_name):
            parts = await self._splitter.split(namespace_name, range_text, algorithm)
        if unload:
            for part in parts:
                await self._owners.release(part)

    # --- boundaries ---------------------------------------------------------------------

    def _boundaries_changed(self, namespace_name: str) -> None:
        changed = [namespace_name] if namespace_name else self._owners.namespaces
        self._changed_namespaces.update(changed)
        self._boundaries_moved.set()

    async def _follow_boundaries(self) -> None:
        """Give up bundles that are none any more."""
        while True:
            await self._boundaries_moved.wait()
            self._boundaries_moved = trio.Event()
            changed, self._changed_namespaces = self._changed_namespaces, set()
            for namespace_name in sorted(changed):
                try:
                    await self._compare(namespace_name)
                except MetadataError as error:
                    log.warning("cannot read bundles", namespace=namespace_name, reason=str(error))
                    await trio.sleep(_RETRY_SECONDS)
                    self._boundaries_changed(namespace_name)

    async def _compare(self, namespace_name: str) -> None:
        """Raises: MetadataError."""
        async with self._changing.hold(namespace_name):
            owned = self._owners.of_namespace(namespace_name)
            if not owned:
                return
            try:
                boundaries = (await self._bundles.read(namespace_name)).boundaries
            except TopicNotFound:
                boundaries = None
            for bundle in owned:
                if boundaries is None or bundle not in boundaries:
                    log.info("giving up what is no bundle any more", bundle=bundle.name)
                    await self._owners.release(bundle)


def _refuse_unloading(bundle: Bundle, owner: Owner) -> None:
    """Raises: ServiceNotReady."""
    if owner.is_disabled:
        raise ServiceNotReady(f"Namespace bundle {bundle.name} is being unloaded")


def _refuse_heartbeat(namespace_name: str) -> None:
    """Raises: Refusal."""
    if heartbeat_broker(namespace_name):
        raise precondition_failed(
            f"{namespace_name} is the heartbeat namespace of a broker: it is not moved or split"
        )
