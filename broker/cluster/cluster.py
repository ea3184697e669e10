"""The ownership of topics by several brokers, as in a cluster of Pulsar 4.0.8.

A topic belongs to a bundle, and a bundle to the broker whose node names it. A bundle without an
owner gets one when somebody asks: the leader chooses a broker, sends the client there, and that
broker takes the bundle. The choice is authoritative: the chosen broker asks nobody. Any other
broker sends the client to the leader. Without a leader every broker chooses by itself; the node
decides who wins.

The broker follows the boundaries of its bundles. A bundle that is not one any more, because its
namespace was deleted or somebody else changed the boundaries, is given up.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from broker.cluster.bundle_owners import BundleOwners
from broker.cluster.bundles import (
    Bundle,
    NotABundle,
    middle_of_range,
    middle_of_topics,
    topic_hash,
)
from broker.cluster.decisions import Assignments, PlacementLimits
from broker.cluster.load import Identity, report_of
from broker.cluster.members import Members
from broker.cluster.namespace_bundles import NamespaceBundles
from broker.cluster.session import ClusterSession
from broker.operations import run_owned
from broker.ownership import Whereabouts
from broker.refusal import precondition_failed
from metadata.store import VersionConflict
from protocol.errors import MetadataError, ServiceNotReady, TopicNotFound
from web.client import CallFailed, call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.broker_address import BrokerAddress
    from broker.cluster.bundle_owners import CloseTopics
    from broker.cluster.config import ClusterConfig
    from broker.cluster.load import LoadSource
    from broker.cluster.namespace_bundles import StoredBoundaries
    from broker.cluster.records import BrokerReport, BundleHistory
    from broker.namespaces.namespaces import Namespaces
    from metadata.store import MetadataStore
    from protocol.topic_name import TopicName
    from runtime.clock import Clock

log = structlog.get_logger()

_RETRY_SECONDS: Final = 1.0
_ATTEMPTS_MAX: Final = 10
RANGE_EQUALLY: Final = "range_equally_divide"
TOPIC_COUNT_EQUALLY: Final = "topic_count_equally_divide"
_PULSARS_ALGORITHMS: Final = (
    RANGE_EQUALLY,
    TOPIC_COUNT_EQUALLY,
    "specified_positions_divide",
    "flow_or_qps_equally_divide",
)


@final
class ClusterOwnership:
    """`Ownership` and `Cluster` of broker/ownership.py. Run it with `nursery.start(run)`: it is a
    member of the cluster when that returns."""

    def __init__(
        self,
        store: MetadataStore,
        namespaces: Namespaces,
        this_broker: BrokerAddress,
        *,
        config: ClusterConfig,
        clock: Clock,
        process_name: str,
        close_topics: CloseTopics,
        load: LoadSource,
        version: str,
    ) -> None:
        """`process_name` is different for every process that ever used the store; `version` is
        Pulsar's."""
        self.this_broker = this_broker
        self.config = config
        self._clock = clock
        self._load = load
        self._identity = Identity(address=this_broker, started_ms=clock.wall_ms(), version=version)
        self.session = ClusterSession(store, process_name)
        self._owners = BundleOwners(
            store,
            self.session,
            this_broker,
            close_topics,
            doubt_seconds_max=config.doubt_seconds_max,
            close_seconds_max=config.namespaceBundleUnloadingTimeoutMs / 1000,
        )
        self._bundles = NamespaceBundles(store, namespaces, self._boundaries_changed)
        self.members = Members(store, self.session, this_broker, self._report, config)
        self._assignments = Assignments()
        self.histories: dict[str, BundleHistory] = {}
        """The load of bundles over time by name, kept while this broker is the leader."""
        self._changed_namespaces: set[str] = set()
        self._boundaries_moved = trio.Event()
        self._changing: dict[str, trio.Lock] = {}
        """Held while bundles of a namespace are split, or compared with the boundaries."""
        self._nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be a member of the cluster until cancelled. Call `leave` first for a clean end."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                await nursery.start(self._owners.run)
                nursery.start_soon(self._follow_boundaries)
                await nursery.start(self.members.run)
                task_status.started()
        finally:
            self._bundles.close()
            self.session.close()

    async def leave(self) -> None:
        """Hand everything over: be assigned nothing more, close all topics, free their bundles.
        Call it while the ports are still open, so that clients hear where their topics went."""
        await self.members.leave()
        await self._owners.leave()

    async def _report(self) -> BrokerReport:
        return await report_of(
            self._identity,
            self._load,
            self._owners.bundles,
            self.session.name,
            self._clock.wall_ms(),
        )

    # --- Ownership ----------------------------------------------------------------------

    def serves(self, topic: TopicName) -> bool:
        """See Ownership."""
        return self._owners.serves(topic)

    async def owner_of(self, topic: TopicName, *, authoritative: bool = False) -> Whereabouts:
        """See Ownership."""
        boundaries = await self._bundles.of(topic.namespace_name)
        return await self._locate(boundaries.bundle_of(topic), authoritative)

    async def _locate(self, bundle: Bundle, authoritative: bool) -> Whereabouts:
        """Raises: BrokerError."""
        if self._owners.holds(bundle):
            return Whereabouts(self.this_broker)
        session = self.session.check_live()
        owner = await self._owners.find(bundle)
        if owner is None:
            return await self._assign(bundle, authoritative)
        if owner.session == session:
            return await self._acquire(bundle)
        if owner.is_disabled:
            raise ServiceNotReady(f"Namespace bundle {bundle.name} is being unloaded")
        if owner.address.web_service_url == self.this_broker.web_service_url:
            raise ServiceNotReady(
                f"{bundle.name} is still owned by an earlier session of this broker; try again"
            )
        return Whereabouts(owner.address)

    async def _assign(self, bundle: Bundle, authoritative: bool) -> Whereabouts:
        """Find an owner for a bundle that has none."""
        if authoritative:
            return await self._acquire(bundle)
        members = self.members
        await members.refresh()
        leader = members.leader
        if leader is not None and leader.broker_id in self._others:
            address = members.reports[leader.broker_id].address
            return Whereabouts(address, is_redirect=True, authoritative=False)
        limits = PlacementLimits(
            self.config.loadBalancerBrokerOverloadedThresholdPercentage / 100,
            self.config.loadBalancerBrokerMaxTopics,
        )
        chosen = self._assignments.assign(
            bundle, members.reports, self.histories, limits, self._clock.now()
        )
        if chosen is None:
            raise ServiceNotReady(f"No broker was available to own {bundle.name}")
        if chosen == members.broker_id:
            return await self._acquire(bundle)
        return Whereabouts(members.reports[chosen].address, is_redirect=True, authoritative=True)

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
        return {bundle.name: is_active for bundle, is_active in self._owners.bundles.items()}

    async def boundaries(self, namespace_name: str) -> list[str]:
        """See Cluster."""
        return (await self._bundles.of(namespace_name)).texts

    async def owner_of_bundle(
        self, namespace_name: str, range_text: str, *, authoritative: bool = False
    ) -> Whereabouts:
        """See Cluster."""
        return await self._locate(await self._find(namespace_name, range_text), authoritative)

    async def _find(self, namespace_name: str, range_text: str) -> Bundle:
        """Raises: Refusal, BrokerError."""
        boundaries = await self._bundles.of(namespace_name)
        try:
            return boundaries.find(range_text)
        except NotABundle as error:
            raise precondition_failed(str(error)) from None

    async def unload_bundle(self, namespace_name: str, range_text: str) -> None:
        """See Cluster."""
        bundle = await self._find(namespace_name, range_text)
        self._assignments.free(bundle)
        await self._owners.release(bundle)

    async def unload_namespace(self, namespace_name: str) -> None:
        """See Cluster."""
        boundaries = await self._bundles.of(namespace_name)
        for bundle in boundaries.bundles:
            await self.unload_anywhere(bundle)

    async def unload_anywhere(self, bundle: Bundle) -> None:
        """Have the owner of a bundle give it up, if it has one. Raises: BrokerError."""
        self._assignments.free(bundle)
        if self._owners.holds(bundle):
            await self._owners.release(bundle)
            return
        owner = await self._owners.find(bundle)
        if owner is None or owner.address.web_service_url == self.this_broker.web_service_url:
            return
        await self._ask(owner.address, bundle, "unload")

    async def split_anywhere(self, bundle: Bundle) -> None:
        """Have the owner of a bundle split it by the default algorithm. Raises: BrokerError,
        Refusal."""
        unload = self.config.loadBalancerAutoUnloadSplitBundlesEnabled
        if self._owners.holds(bundle):
            await self.split_bundle(bundle.namespace_name, bundle.range_text, "", unload=unload)
            return
        owner = await self._owners.find(bundle)
        if owner is not None:
            flag = "true" if unload else "false"
            await self._ask(owner.address, bundle, f"split?unload={flag}")

    async def _ask(self, address: BrokerAddress, bundle: Bundle, what: str) -> None:
        """Have another broker do something with its bundle. Raises: ServiceNotReady."""
        url = f"{address.web_service_url}/admin/v2/namespaces/{bundle.name}/{what}"
        try:
            status = await call("PUT", url, self.config.namespaceBundleUnloadingTimeoutMs / 1000)
        except CallFailed as error:
            raise ServiceNotReady(f"The owner of {bundle.name} does not answer: {error}") from None
        if status >= 300 and status != 307:  # 307: it owns the bundle no more
            raise ServiceNotReady(f"The owner of {bundle.name} answered {status} to {what}")

    async def split_bundle(
        self, namespace_name: str, range_text: str, algorithm: str, *, unload: bool
    ) -> None:
        """See Cluster."""
        algorithm = algorithm or self.config.defaultNamespaceBundleSplitAlgorithm
        if algorithm not in (RANGE_EQUALLY, TOPIC_COUNT_EQUALLY):
            raise precondition_failed(
                "Unsupported namespace bundle split algorithm, supported algorithms are "
                f"[{', '.join(_PULSARS_ALGORITHMS[:2])}]"
            )
        await self._bundles.of(namespace_name)
        assert self._nursery is not None
        split = partial(self._split, namespace_name, range_text, algorithm, unload)
        await run_owned(self._nursery, split)

    async def _split(
        self, namespace_name: str, range_text: str, algorithm: str, unload: bool
    ) -> None:
        async with self._alone(namespace_name):
            for _attempt in range(_ATTEMPTS_MAX):
                stored = await self._bundles.read(namespace_name)
                try:
                    bundle = stored.boundaries.find(range_text)
                except NotABundle as error:
                    raise precondition_failed(str(error)) from None
                place = self._place_of_split(bundle, algorithm)
                if place is None:
                    raise precondition_failed(
                        f"Bundle {bundle.name} cannot be split by {algorithm}"
                    )
                parts = [
                    Bundle(namespace_name, bundle.lower, place),
                    Bundle(namespace_name, place, bundle.upper),
                ]
                if await self._split_at(stored, bundle, parts, place):
                    break
            else:
                raise ServiceNotReady(f"The bundles of {namespace_name} change all the time")
        if unload:
            for part in parts:
                await self._owners.release(part)

    def _place_of_split(self, bundle: Bundle, algorithm: str) -> int | None:
        if algorithm == RANGE_EQUALLY:
            return middle_of_range(bundle)
        inside = [
            topic_hash(topic) for topic, _load in self._load.topics() if bundle.contains(topic)
        ]
        return middle_of_topics(bundle, inside)

    async def _split_at(
        self, stored: StoredBoundaries, bundle: Bundle, parts: list[Bundle], place: int
    ) -> bool:
        """Own the parts, store the boundaries, give up the whole: in this order, so that no other
        broker can own a part before. False: the boundaries have changed meanwhile.

        Raises: BrokerError: the outcome is learned by `_follow_boundaries`.
        """
        session = self.session.check_live()
        if not self._owners.holds(bundle):
            raise ServiceNotReady(f"{bundle.name} is not owned by this broker; look up again")
        try:
            for part in parts:
                owner = await self._owners.acquire(part, _yes)
                if owner.session != session:
                    raise ServiceNotReady(f"{part.name} is owned by another broker; try again")
            # From here to the request no other task runs: the request belongs to this session.
            if not (self.session.is_still(session) and self._owners.holds(bundle)):
                raise ServiceNotReady(f"{bundle.name} is not owned by this broker any more")
            await self._bundles.replace(stored, stored.boundaries.split(bundle, [place]))
        except VersionConflict:
            for part in parts:
                await self._owners.release(part, close=False)
            return False
        except BaseException:
            self._boundaries_changed(bundle.namespace_name)
            raise
        await self._owners.release(bundle, close=False)
        return True

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
        async with self._alone(namespace_name):
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

    def _alone(self, namespace_name: str) -> trio.Lock:
        return self._changing.setdefault(namespace_name, trio.Lock())


async def _yes() -> bool:
    await trio.lowlevel.checkpoint()
    return True
