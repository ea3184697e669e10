"""The brokers of the cluster: this one's registration, the others' reports, and the leader.

A broker is a member while its ephemeral node below `/loadbalance/brokers` exists. The node has its
load report, which is written again when the load changed by enough, or is old. The leader is the
broker that made `/loadbalance/leader`; when the node goes, every broker tries to make it.

One task brings everything in line with the store: it wakes when a node changes, when the session
does, and when a report is due.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from broker.cluster.records import (
    BROKERS_PATH,
    LEADER_PATH,
    BrokerReport,
    Leader,
    encode,
)
from metadata.store import MetadataUnavailable, NodeNotFound, VersionConflict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker.cluster.config import ConfigInForce
    from broker.cluster.session import ClusterSession
    from broker.peers.broker_address import BrokerAddress
    from metadata.store import MetadataStore
    from runtime.clock import Clock

log = structlog.get_logger()

_RETRY_SECONDS: Final = 1.0


@final
class Members:
    """See the module docstring. Run it with `nursery.start(run)`."""

    def __init__(
        self,
        store: MetadataStore,
        session: ClusterSession,
        this_broker: BrokerAddress,
        measure: Callable[[], Awaitable[BrokerReport]],
        in_force: ConfigInForce,
        clock: Clock,
    ) -> None:
        """`measure` gives this broker's load as of now."""
        self._store = store
        self._session = session
        self._measure = measure
        self._in_force = in_force
        self._clock = clock
        self._web_service_url = this_broker.preferred_web_url
        self.broker_id = this_broker.broker_id
        self.reports: dict[str, BrokerReport] = {}
        """The last report of every member by id."""
        self.leader: Leader | None = None
        """None: unknown."""
        self._registered = ""
        """The session whose node below BROKERS_PATH is this broker's."""
        self._version = 0
        self._reported: BrokerReport | None = None
        self._reported_at = 0.0
        """Monotonic."""
        self._stale: set[str] | None = None
        """Ids of members whose reports changed; None: any."""
        self._is_leader_stale = True
        self._is_leaving = False
        self._wake = trio.Event()
        self._refreshing = trio.Lock()
        self._writing = trio.Lock()
        """Held while this broker's nodes are made, or taken away for good."""
        session.watch(lambda _state: self._all_stale())
        in_force.watch(self._config_changed)
        self._end_watches = (
            store.watch(BROKERS_PATH, self._member_changed),
            store.watch(LEADER_PATH, self._leader_changed),
        )

    @property
    def is_leader(self) -> bool:
        """Whether this broker is the leader, under its live session."""
        return (
            self._session.is_live
            and self.leader is not None
            and self.leader.session == self._session.name
        )

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be a member until cancelled. Started when the members and the leader are known and this
        broker is one of them. `leave` comes first for a clean end."""
        is_started = False
        try:
            while True:
                self._wake = trio.Event()
                try:
                    await self._align()
                except MetadataUnavailable as error:
                    log.warning("cluster is not up to date", reason=str(error))
                    await trio.sleep(_RETRY_SECONDS)
                    continue
                if not is_started and self._registered == self._session.name:
                    is_started = True
                    task_status.started()
                interval = self._in_force.now.loadBalancerReportUpdateMinIntervalMillis / 1000
                with trio.move_on_after(interval):
                    await self._wake.wait()
        finally:
            for end in self._end_watches:
                end()

    def _config_changed(self) -> None:
        self._wake.set()

    async def leave(self) -> None:
        """Be no member any more: nothing new is assigned to this broker."""
        self._is_leaving = True
        async with self._writing:
            for path, is_ours in (
                (f"{BROKERS_PATH}/{self.broker_id}", self._is_our_report),
                (LEADER_PATH, self._is_our_leader),
            ):
                try:
                    found = await self._store.get(path)
                    if found is not None and self._session.is_live and is_ours(found[0]):
                        await self._store.delete(path, found[1])
                except (MetadataUnavailable, VersionConflict, NodeNotFound) as error:
                    log.warning("cannot leave in order", path=path, reason=str(error))

    def _is_our_report(self, data: bytes) -> bool:
        report = BrokerReport.parse(data)
        return report is not None and report.session == self._session.name

    def _is_our_leader(self, data: bytes) -> bool:
        leader = Leader.parse(data)
        return leader is not None and leader.session == self._session.name

    # --- what changed -------------------------------------------------------------------

    def _all_stale(self) -> None:
        self._stale = None
        self._is_leader_stale = True
        self._wake.set()

    def _member_changed(self, path: str) -> None:
        broker_id = path.removeprefix(f"{BROKERS_PATH}/")
        if path == BROKERS_PATH:
            self._stale = None
        elif self._stale is not None:
            self._stale.add(broker_id)
        self._wake.set()

    def _leader_changed(self, _path: str) -> None:
        self._is_leader_stale = True
        self._wake.set()

    async def refresh(self) -> None:
        """Read what changed since the last time. No await if nothing did.

        Raises: MetadataUnavailable.
        """
        while self._stale is None or self._stale or self._is_leader_stale:
            async with self._refreshing:
                await self._read_members()
                await self._read_leader()

    async def _read_members(self) -> None:
        stale, self._stale = self._stale, set()
        try:
            if stale is None:
                names = await self._store.children(BROKERS_PATH)
                self.reports = {
                    name: report for name, report in self.reports.items() if name in names
                }
                stale = set(names)
            for broker_id in sorted(stale):
                await self._read_member(broker_id)
                stale = stale - {broker_id}
        except BaseException:
            self._stale = None
            raise

    async def _read_member(self, broker_id: str) -> None:
        found = await self._store.get(f"{BROKERS_PATH}/{broker_id}")
        report = None if found is None else BrokerReport.parse(found[0])
        if found is not None and report is None:
            log.warning("registration of a broker cannot be read", broker=broker_id)
        if report is None:
            self.reports.pop(broker_id, None)
        else:
            self.reports[broker_id] = report

    async def _read_leader(self) -> None:
        if not self._is_leader_stale:
            return
        self._is_leader_stale = False
        try:
            found = await self._store.get(LEADER_PATH)
        except BaseException:
            self._is_leader_stale = True
            raise
        was = self.leader
        self.leader = None if found is None else Leader.parse(found[0])
        if self.leader != was and self.leader is not None:
            log.info("leader of the cluster", broker=self.leader.broker_id)

    # --- what this broker writes ----------------------------------------------------------

    async def _align(self) -> None:
        """Raises: MetadataUnavailable."""
        async with self._writing:
            if self._session.is_live and not self._is_leaving:
                await self._register()
            await self.refresh()
            if self.leader is None and self._session.is_live and not self._is_leaving:
                await self._become_leader()

    async def _register(self) -> None:
        report = await self._measure()
        session = self._session.name
        path = f"{BROKERS_PATH}/{self.broker_id}"
        value = encode(replace(report, session=session).record)
        try:
            if self._registered != session:
                await self._register_anew(path, value, session)
            elif self._is_due(report):
                self._version = await self._store.put(path, value, self._version)
            else:
                return
        except VersionConflict:
            # Another session's node is there, or ours is gone. The watch reports a change.
            self._registered = ""
            return
        self._reported = report
        self._reported_at = self._clock.now()

    async def _register_anew(self, path: str, value: bytes, session: str) -> None:
        """Raises: VersionConflict: the node is of another session."""
        try:
            await self._store.put_ephemeral(path, value)
            self._version = 0
        except VersionConflict:
            found = await self._store.get(path)
            if found is None or not self._is_our_report(found[0]):
                log.warning(
                    "this broker is registered by another process or an earlier session",
                    broker=self.broker_id,
                )
                raise
            self._version = found[1]
        self._registered = session

    def _is_due(self, report: BrokerReport) -> bool:
        last = self._reported
        if last is None or set(last.bundles) != set(report.bundles):
            return True
        config = self._in_force.now
        age_ms = (self._clock.now() - self._reported_at) * 1000
        if age_ms >= config.loadBalancerReportUpdateMaxIntervalMinutes * 60_000:
            return True
        if age_ms < config.loadBalancerReportUpdateMinIntervalMillis:
            return False
        threshold = config.loadBalancerReportUpdateThresholdPercentage / 100
        return abs(report.usage - last.usage) >= threshold or any(
            abs(new - old) > threshold * max(old, 1.0)
            for new, old in (
                (report.traffic.msg_rate, last.traffic.msg_rate),
                (report.traffic.throughput, last.traffic.throughput),
                (float(report.topics), float(last.topics)),
            )
        )

    async def _become_leader(self) -> None:
        record = Leader(self.broker_id, self._web_service_url, self._session.name).record
        try:
            await self._store.put_ephemeral(LEADER_PATH, encode(record))
        except VersionConflict:
            self._is_leader_stale = True
        await self.refresh()
