"""A topic whose broadcast is shared by followers, in one round: its shadows and all consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from tests.cluster_faults.broadcast_checks import (
    again_of,
    check_consumer,
    check_kept,
    lacking_of,
)
from tests.cluster_faults.broadcast_load import SUBSCRIPTION, BroadcastLoad
from tests.cluster_faults.load import wait_until

if TYPE_CHECKING:
    from tests.cluster_faults.broadcast_checks import Place
    from tests.cluster_faults.checks import TopicHistory
    from tests.cluster_faults.cluster import FaultCluster
    from tests.cluster_faults.plan import Plan


@final
class Followed:
    """Use `start`, then `read_back`, then `close`."""

    def __init__(self, cluster: FaultCluster, plan: Plan, source: str, log: TopicHistory) -> None:
        """`log`: what the producers of the source know, and later what the source holds."""
        self._cluster = cluster
        self._plan = plan
        self._source = source
        self._history = log
        self._load: BroadcastLoad | None = None
        self._is_over = False
        self.shadows: list[str] = []
        self.violations: list[str] = []

    @property
    def shadow(self) -> str:
        """The one whose follower is hit."""
        return self.shadows[self._plan.topic % len(self.shadows)]

    def start(self) -> None:
        """Make the topic and its shadows, each on a broker of its own. Return when all consumers
        are subscribed. Raises: Stuck."""
        self.shadows = self._cluster.make_shadows(self._source)
        self._load = BroadcastLoad(
            [broker.service_url for broker in self._cluster.brokers],
            [self._source, *self.shadows],
            self._plan.holes_at,
        )
        self._load.start()

    @property
    def _consumers(self) -> BroadcastLoad:
        assert self._load is not None, "not started"
        return self._load

    def wait_for_more(self, what: str, *, at: str = "", only_impatient: bool = False) -> None:
        """Return when everybody has got what has its receipt now. `at`: only consumers of this
        topic. Raises: Stuck."""
        newest = max(
            position[:2]
            for producer in self._history.producers.values()
            for position in list(producer.receipts.values())
        )
        self._consumers.wait_for(what, newest, at=at, only_impatient=only_impatient)

    # --- the end ------------------------------------------------------------------------

    @property
    def _log(self) -> list[Place]:
        return sorted({(position[0], position[1]) for position, *_ in self._history.log})

    def read_back(self) -> None:
        """Have everything delivered; then have everybody subscribe again, which brings the holes;
        then leave none. In the end the owner holds nothing back any more. Raises: Stuck."""
        consumers, log = self._consumers, self._log
        self._wait_for_all("everything that was published", log)
        self._check_kept(log)
        consumers.come_again()
        self._wait_for_all("what was not acknowledged, after a new subscription", log)
        self._check_kept(log)
        consumers.ask(lambda: [each.stop_leaving() for each in consumers.consumers])
        consumers.come_again()
        self._wait_for_all("what was left unacknowledged to the end", log)
        wait_until("the owner's news of all acknowledgements", lambda: self._backlog() == 0)
        self._is_over = True

    def _wait_for_all(self, what: str, log: list[Place]) -> None:
        self._consumers.wait_for(what, log[-1])
        self._consumers.wait(what, lambda each: not lacking_of(each.history, log))
        self._consumers.wait(f"receipts after {what}", lambda each: not each.history.unanswered)

    def _check_kept(self, log: list[Place]) -> None:
        """The owner must not delete what somebody has not acknowledged."""
        cursors: dict[str, Any] = {}

        def is_known() -> bool:
            statistics = self._cluster.statistics_of(self._source, "internalStats")
            cursors.update(statistics.get("cursors", {}))
            return SUBSCRIPTION in cursors

        wait_until("statistics of the source", is_known)
        ledger_id, entry_id = cursors[SUBSCRIPTION]["markDeletePosition"].split(":")
        # Looked at afterwards: what is acknowledged meanwhile does no harm.
        mark_delete = (int(ledger_id), int(entry_id))
        histories = [each.history for each in self._consumers.consumers]
        self.violations += self._consumers.ask(lambda: check_kept(mark_delete, histories, log))

    def _backlog(self) -> int:
        statistics = self._cluster.statistics_of(self._source, "stats")
        subscription = statistics.get("subscriptions", {}).get(SUBSCRIPTION, {})
        return int(subscription.get("msgBacklog", -1))

    def close(self) -> None:
        """End the consumers, and judge what they got if the log of the source was read."""
        if self._load is None:
            return
        self._load.close()
        self.violations += self._load.errors
        log = self._log
        if log:
            for consumer in self._load.consumers:
                self.violations += check_consumer(consumer.history, log, is_over=self._is_over)

    def notes(self) -> dict[str, Any]:
        """For the results."""
        if self._load is None:
            return {}
        histories = [each.history for each in self._load.consumers]
        return {
            "holes_at": self._plan.holes_at,
            "consumers": len(histories),
            "stays": sum(len(each.stays) for each in histories),
            "deliveries": sum(len(stay) for each in histories for stay in each.stays),
            "receipts": sum(len(each.receipts) for each in histories),
            "again_after_receipt": sum(again_of(each) for each in histories),
        }
