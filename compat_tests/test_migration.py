"""Topics go from real Pulsar to Vela and back, on the same ZooKeeper and the same bookies.

The measure is a control: the same topics, written by real Pulsar and continued by it after its own
restart. The bookies are of both makes, with a copy of every entry on each, so either is read.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.migration.broadcast import Everybody
from compat_tests.migration.governed import (
    OF_REAL_PULSAR,
    POLICIES,
    Policies,
    Schemas,
    SequenceIds,
)
from compat_tests.migration.site import Site, site
from compat_tests.migration.topics import (
    Batches,
    Delayed,
    Holes,
    Keys,
    Partitions,
    Trace,
    WrittenTopic,
)
from compat_tests.oracle.shared_cluster import Make, SharedCluster, shared_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

KEYS = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "brokerDeduplicationEntriesInterval": "8",
    # A topic gets several ledgers.
    "managedLedgerMaxEntriesPerLedger": "500",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "brokerDeleteInactiveTopicsEnabled": "false",
    # As the distribution has them; the start of the oracle for other tests leaves them out.
    "systemTopicEnabled": "true",
    "topicLevelPoliciesEnabled": "true",
}
KINDS: tuple[type[WrittenTopic], ...] = (
    *(Holes, Batches, Delayed, Keys, Partitions),
    *(Schemas, SequenceIds),
)
SESSION_MS = "10000"
"""How long a broker that was killed keeps its topics, where brokers are killed."""
CONSUMED_BY_PULSAR = 25
"""How far real Pulsar consumes the broadcast subscription."""


class Copy:
    """All kinds of topics in one namespace."""

    def __init__(self, name: str, *, is_exact: bool) -> None:
        self.namespace = f"public/{name}"
        self.topics = [kind(self.namespace, is_exact=is_exact) for kind in KINDS]

    def _all(self, act: Callable[[WrittenTopic], Any]) -> dict[str, Any]:
        """At the same time, because each waits for silence."""
        with ThreadPoolExecutor(len(self.topics)) as pool:
            done = {topic.name: pool.submit(act, topic) for topic in self.topics}
        failed = {name: error for name, each in done.items() if (error := each.exception())}
        for name, error in failed.items():
            raise AssertionError(f"{name} of {self.namespace}") from error
        return {name: each.result() for name, each in done.items()}

    def write(self, here: Site) -> None:
        """Make the namespace, and write every topic."""
        here.ask("PUT", f"/namespaces/{self.namespace}")
        here.ask("POST", f"/namespaces/{self.namespace}/deduplication", True)
        self._all(lambda topic: topic.written(here))

    def load(self, here: Site) -> None:
        """Have the broker load every topic, and nothing else."""
        self._all(lambda topic: topic.check_backlogs(here.backlogs(topic.stats_path)))

    def taken_over(self, here: Site) -> dict[str, Trace]:
        """What is left of every topic."""
        traces: dict[str, Trace] = self._all(lambda topic: topic.taken_over(here))
        return traces

    def nothing_more(self, here: Site) -> None:
        """Nothing comes again."""
        self._all(lambda topic: topic.nothing_more(here))


def check_migration(
    cluster: SharedCluster, *, kill: bool = False, of_real: Mapping[str, str] | None = None
) -> None:
    """Real Pulsar, Vela, real Pulsar, Vela; `of_real`: keys of real Pulsar alone."""

    @contextmanager
    def running(cluster: SharedCluster, make: Make) -> Iterator[Site]:
        """A broker that ends, and a client."""
        more = dict(of_real or {}) if make == "pulsar" else {}
        broker = cluster.start_broker(make, **more)
        with site(broker) as here:
            yield here
        if kill:
            broker.kill()
        else:
            code = broker.stop()
            assert make == "pulsar" or code == 0

    control, onward, through, back = (
        Copy(name, is_exact=not kill) for name in ("control", "onward", "through", "back")
    )
    of_pulsar = Policies("public/policies-of-pulsar", POLICIES | OF_REAL_PULSAR)
    of_vela = Policies("public/policies-of-vela", POLICIES)
    # What a kill leaves of a broadcast is the subject of tests.crash.
    everybody = None if kill else Everybody(onward.namespace)
    with running(cluster, "pulsar") as here:
        for copy in (control, onward, through):
            copy.write(here)
        of_pulsar.write(here)
    with running(cluster, "vela") as here:
        of_pulsar.check(here)
        of_pulsar.change(here, minutes=700)
        through.load(here)
        seen_onward = onward.taken_over(here)
        back.write(here)
        of_vela.write(here)
        if everybody is not None:
            everybody.write(here)
    with running(cluster, "pulsar") as here:
        for policies in (of_pulsar, of_vela):
            policies.complete(here)
            policies.check(here)
        of_vela.change(here, minutes=800)
        seen_control = control.taken_over(here)
        assert seen_onward == seen_control
        assert through.taken_over(here) == seen_control
        assert back.taken_over(here) == seen_control
        onward.nothing_more(here)
        if everybody is not None:
            everybody.consume(here, CONSUMED_BY_PULSAR)
    with running(cluster, "vela") as here:
        of_pulsar.check(here)
        of_vela.check(here)
        if everybody is not None:
            everybody.check(here, CONSUMED_BY_PULSAR)
        for copy in (control, onward, through, back):
            copy.nothing_more(here)


@contextmanager
def cluster_on(directory: Path, *bookies: Make, **more: str) -> Iterator[SharedCluster]:
    """Storage with a copy of every entry on each bookie."""
    copies = f"{len(bookies)}/{len(bookies)}/{len(bookies)}"
    keys = KEYS | more
    with shared_cluster(directory, keys, bookies=bookies, quorums=copies) as cluster:
        yield cluster


@pytest.mark.slow
def test_topics_go_from_pulsar_to_vela_and_back(tmp_path: Path) -> None:
    with cluster_on(tmp_path, "pulsar", "vela") as cluster:
        check_migration(cluster)


@pytest.mark.slow
@pytest.mark.parametrize("make", ["pulsar", "vela"])
def test_bookies_of_one_make_are_enough(tmp_path: Path, make: Make) -> None:
    """Entries have a head of the broker that real Pulsar adds when it is told to."""
    interceptors = ",".join(
        f"org.apache.pulsar.common.intercept.{name}"
        for name in ("AppendBrokerTimestampMetadataInterceptor", "AppendIndexMetadataInterceptor")
    )
    with cluster_on(tmp_path, make, make) as cluster:
        check_migration(cluster, of_real={"brokerEntryMetadataInterceptors": interceptors})


@pytest.mark.slow
def test_topics_of_killed_brokers_lose_nothing(tmp_path: Path) -> None:
    with cluster_on(
        tmp_path, "pulsar", "vela", metadataStoreSessionTimeoutMillis=SESSION_MS
    ) as cluster:
        check_migration(cluster, kill=True)
