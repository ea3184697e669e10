"""A log of topic policies that a broker of one make has compacted is read by one of the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.topics.topic.log_compaction import ENTRIES_MIN
from compat_tests.oracle.redirects import ask
from compat_tests.oracle.shared_cluster import shared_cluster
from compat_tests.oracle.steady_load import wait_until
from compat_tests.test_shared_topic_policies import KEYS, NAMESPACE, check_seen, policy

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.oracle.shared_cluster import Broker

LOG = "__change_events"


def compacted_entries(broker: Broker) -> int:
    stats = policy(broker, "GET", f"{LOG}/internalStats")
    return int(stats["cursors"]["__compaction"]["properties"].get("CompactedTopicLedger", -1))


def compact(real: Broker) -> None:
    """It may be at it by itself, and refuses then."""
    path = f"/admin/v2/persistent/{NAMESPACE}/{LOG}/compaction"
    wait_until(lambda: ask(real, "PUT", path)[0] == 204)
    wait_until(lambda: policy(real, "GET", f"{LOG}/compaction")["status"] == "SUCCESS")


@pytest.mark.slow
def test_compacted_policies_are_read_by_brokers_of_the_other_make(tmp_path: Path) -> None:
    keys = KEYS | {
        "brokerServiceCompactionMonitorIntervalInSeconds": "1",
        "defaultRetentionTimeInMinutes": "0",
        "managedLedgerMaxEntriesPerLedger": "10",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    }
    with shared_cluster(tmp_path, keys, bookies=("vela",), quorums="1/1/1") as cluster:
        real = cluster.start_broker("pulsar", 0)
        path = f"/admin/v2/namespaces/{NAMESPACE}"
        assert ask(real, "PUT", path, {"bundles": {"numBundles": 4}})[0] == 204
        for topic in ("t0", "t1", "t2"):
            policy(real, "PUT", topic)
            for value in range(1, 9):
                policy(real, "POST", f"{topic}/maxProducers", value)
        policy(real, "POST", "t0/maxConsumers?isGlobal=true", 9)
        policy(real, "DELETE", "t2/maxProducers")
        compact(real)
        first = compacted_entries(real)
        assert first >= 0
        real.stop()

        vela = cluster.start_broker("vela", 0)
        seen = {
            "t0/maxProducers": 8,
            "t1/maxProducers": 8,
            "t2/maxProducers": None,
            "t0/maxConsumers?isGlobal=true": 9,
        }
        check_seen(vela, seen)
        number = 0
        while compacted_entries(vela) == first:
            assert number < 4 * ENTRIES_MIN
            for _ in range(100):
                number += 1
                policy(vela, "POST", "t1/maxProducers", number)
        policy(vela, "DELETE", "t0/maxConsumers?isGlobal=true")
        seen |= {"t1/maxProducers": number, "t0/maxConsumers?isGlobal=true": None}
        check_seen(vela, seen)
        vela.stop()

        real = cluster.start_broker("pulsar", 0)
        check_seen(real, seen)
        policy(real, "POST", "t2/maxProducers", 5)
        compact(real)
        real.stop()
        vela = cluster.start_broker("vela", 0)
        check_seen(vela, seen | {"t2/maxProducers": 5})
