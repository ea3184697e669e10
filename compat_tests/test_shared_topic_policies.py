"""Policies of topics in a cluster of real Pulsar and Vela: what is set through a broker of one make
is read by one of the other, which keeps what it does not change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat_tests.oracle.redirects import ask
from compat_tests.oracle.shared_cluster import shared_cluster
from compat_tests.oracle.steady_load import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.oracle.shared_cluster import Broker

NAMESPACE = "public/policies"
KEYS = {
    "systemTopicEnabled": "true",
    "topicLevelPoliciesEnabled": "true",
    "loadBalancerBrokerOverloadedThresholdPercentage": "1000",
    "loadBalancerSheddingEnabled": "false",
    "bookkeeperClientTimeoutInSeconds": "5",
}
RATE = {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": 1000}
COPIES = {
    "bookkeeperEnsemble": 1,
    "bookkeeperWriteQuorum": 1,
    "bookkeeperAckQuorum": 1,
    "managedLedgerMaxMarkDeleteRate": 2.5,
}


def policy(broker: Broker, method: str, rest: str, body: Any = None) -> Any:
    status, answer = ask(broker, method, f"/admin/v2/persistent/{NAMESPACE}/{rest}", body)
    assert status in (200, 204), (broker.name, method, rest, status, answer)
    return answer


def check_seen(broker: Broker, expected: dict[str, Any]) -> None:
    for rest, value in expected.items():
        wait_until(lambda rest=rest, value=value: policy(broker, "GET", rest) == value)


def test_policies_of_topics_are_those_of_brokers_of_both_makes(tmp_path: Path) -> None:
    with shared_cluster(tmp_path, KEYS, bookies=("vela",), quorums="1/1/1") as cluster:
        real = cluster.start_broker("pulsar", 0)
        path = f"/admin/v2/namespaces/{NAMESPACE}"
        assert ask(real, "PUT", path, {"bundles": {"numBundles": 4}})[0] == 204
        topics = [f"t{number}" for number in range(6)]
        for topic in topics:
            policy(real, "PUT", topic)
            policy(real, "POST", f"{topic}/maxProducers", 5)
        policy(real, "POST", "t0/persistence", COPIES)
        policy(real, "POST", "t0/compactionThreshold", 4096)
        policy(real, "POST", "t0/maxConsumers?isGlobal=true", 9)
        seen: dict[str, Any] = {f"{topic}/maxProducers": 5 for topic in topics}
        seen |= {"t0/persistence": COPIES, "t0/maxConsumers?isGlobal=true": 9}

        vela = cluster.start_broker("vela", 1)
        assert ask(real, "PUT", f"{path}/unload")[0] == 204
        for broker in (vela, real):
            check_seen(broker, seen)
        for number, topic in enumerate(topics):  # whichever owns it
            asked = (vela, real)[number % 2]
            policy(asked, "POST", f"{topic}/maxProducers", number + 1)
            policy(asked, "POST", f"{topic}/publishRate", RATE)
            seen |= {f"{topic}/maxProducers": number + 1, f"{topic}/publishRate": RATE}
        for broker in (vela, real):
            check_seen(broker, seen)

        real.stop()
        check_seen(vela, seen)
        policy(vela, "DELETE", "t1/maxProducers")
        policy(vela, "POST", "t2/maxConsumers", 3)
        policy(vela, "POST", "t3/maxConsumers?isGlobal=true", 4)
        policy(vela, "DELETE", "t4?force=true")
        policy(vela, "PUT", "t4")
        seen |= {
            "t1/maxProducers": None,
            "t2/maxConsumers": 3,
            "t3/maxConsumers?isGlobal=true": 4,
            "t4/maxProducers": None,
            "t4/publishRate": None,
        }
        check_seen(vela, seen)

        real = cluster.start_broker("pulsar", 0)
        vela.stop()
        check_seen(real, seen | {"t0/compactionThreshold": 4096})
        schemas = ask(real, "GET", f"/admin/v2/schemas/{NAMESPACE}/__change_events/schemas")
        assert len(schemas[1]["getSchemaResponses"]) == 1
        policy(real, "POST", "t5/maxProducers", 8)

        vela = cluster.start_broker("vela", 1)
        real.stop()
        check_seen(vela, seen | {"t5/maxProducers": 8})
