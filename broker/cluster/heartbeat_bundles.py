"""The heartbeat namespaces of this broker, owned as long as its session lives.

No client looks them up first, so they are acquired here: at the start, in every new
session, and when a node is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from broker.cluster.bundle_owners import certain
from broker.cluster.bundles import Boundaries
from broker.cluster.heartbeat import heartbeat_namespaces
from protocol.errors import BrokerError

if TYPE_CHECKING:
    from broker.cluster.bundle_owners import BundleOwners
    from broker.cluster.bundles import Bundle
    from broker.cluster.session import ClusterSession

log = structlog.get_logger()

_RETRY_SECONDS: Final = 1.0


@final
class HeartbeatBundles:
    """See the module docstring. Run it with `nursery.start_soon(run)`."""

    def __init__(
        self, owners: BundleOwners, session: ClusterSession, cluster: str, broker_id: str
    ) -> None:
        self._owners = owners
        self._session = session
        of_pulsar_1, of_pulsar_2 = heartbeat_namespaces(cluster, broker_id)
        self.bundles: tuple[Bundle, Bundle] = (
            Boundaries.whole(of_pulsar_1).bundles[0],
            Boundaries.whole(of_pulsar_2).bundles[0],
        )
        self._changed = trio.Event()
        self._is_told = False
        self._is_stopped = False
        session.watch(lambda _state: self._changed.set())

    def owner_changed(self, bundle: Bundle) -> None:
        """The node of a bundle may be another one."""
        if bundle in self.bundles:
            self._changed.set()

    def stop(self) -> None:
        """Acquire nothing any more."""
        self._is_stopped = True
        self._changed.set()

    async def run(self) -> None:
        """Until `stop`."""
        while not self._is_stopped:
            self._changed = trio.Event()
            if not self._session.is_live or await self._acquired():
                self._is_told = False
                await self._changed.wait()
            else:
                with trio.move_on_after(_RETRY_SECONDS):
                    await self._changed.wait()

    async def _acquired(self) -> bool:
        """Whether all are owned now, as far as was tried."""
        for bundle in self.bundles:
            reason = ""
            try:
                owner = await self._owners.acquire(bundle, certain)
                if not self._owners.holds(bundle):
                    reason = f"it is owned by {owner.address.broker_id}"
            except BrokerError as error:
                reason = error.message
            if reason:
                if not self._is_told:
                    log.info("heartbeat namespace not owned yet", bundle=bundle.name, reason=reason)
                self._is_told = True
                return False
        return True
