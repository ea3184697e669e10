"""Keys of the load balancer that are changed at one broker of a cluster hold at all of them."""

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import trio

from broker.assembly.broker import assembled_broker
from broker.assembly.cluster_config import ClusterBrokerConfig
from broker.assembly.replicated import Replicated
from broker.cluster.cluster_metadata import Initialization, NewCluster
from broker.ground.config import DEFAULT_CONFIG
from broker.http.clusters.dynamic_configuration import dynamic_keys, with_dynamic
from metadata.memory_store import MemoryStore
from protocol.topic_name import TopicName
from runtime.testing.conditions import SECONDS_MAX, eventually
from web.client import fetch

CONFIG = ClusterBrokerConfig(
    brokerServicePort=0,
    webServicePort=0,
    bindAddress="127.0.0.1",
    advertisedAddress="127.0.0.1",
    clusterName="c",
    metadataStoreUrl="zk:not-used:2181",
)
SHEDDING = "loadBalancerSheddingEnabled"


def test_only_brokers_of_a_cluster_have_the_keys_of_the_load_balancer():
    keys = dynamic_keys(CONFIG)
    assert sum(key.startswith("loadBalancer") for key in keys) == 18
    assert keys == sorted(keys)
    assert not [key for key in dynamic_keys(DEFAULT_CONFIG) if key.startswith("loadBalancer")]


def test_values_are_typed_and_a_wrong_one_has_no_effect():
    values = {
        SHEDDING: "false",
        "loadBalancerSheddingIntervalMinutes": "5",
        "loadBalancerBrokerMaxTopics": "-3",
        "defaultNamespaceBundleSplitAlgorithm": "no such",
        "loadBalancerEnabled": "false",
        "maxProducersPerTopic": "7",
    }
    assert with_dynamic(CONFIG, values) == replace(
        CONFIG,
        loadBalancerSheddingEnabled=False,
        loadBalancerSheddingIntervalMinutes=5.0,
        maxProducersPerTopic=7,
    )


@asynccontextmanager
async def two_brokers(**settings):
    """Of one cluster without bookies, the leader first."""
    config, tree = replace(CONFIG, **settings), MemoryStore()
    new = Initialization(NewCluster(name="c", data={}, bundles=4, coordinators=0))
    await new.make_ledgers(tree)
    await new.make_configuration(tree)

    async def open_store(_nursery):
        await trio.lowlevel.checkpoint()
        return tree.another_session()

    async with AsyncExitStack() as stack:
        brokers = [
            await stack.enter_async_context(
                assembled_broker(config, Replicated(config, open_store, "zk:not-used"))
            )
            for _ in range(2)
        ]
        yield brokers


async def set_key(broker, key, value):
    url = f"{broker.web_service_url}/admin/v2/brokers/configuration/{key}/{value}"
    answer = await fetch("POST", url, SECONDS_MAX, body=b"", body_bytes_max=1000)
    assert answer.status in (200, 204), answer.body


async def test_splitting_that_is_turned_on_at_one_broker_is_done_by_the_leader():
    off = {"loadBalancerAutoBundleSplitEnabled": False, "loadBalancerSplitIntervalMinutes": 0.001}
    async with two_brokers(**off) as (leader, other):
        owners = leader.service.ownership
        assert owners.is_leader
        for number in range(20):
            name = TopicName.parse(f"non-persistent://public/default/t{number}")
            if not (await owners.owner_of(name, authoritative=True)).is_redirect:
                await leader.service.get_or_load_topic(name, create=True)
        before = len(await owners.boundaries("public/default"))
        await set_key(other, "loadBalancerNamespaceBundleMaxTopics", 1)
        await set_key(other, "loadBalancerReportUpdateMinIntervalMillis", 20)
        await trio.sleep(0.2)
        assert len(await owners.boundaries("public/default")) == before
        await set_key(other, "loadBalancerAutoBundleSplitEnabled", "true")
        boundaries = before
        with trio.fail_after(SECONDS_MAX):
            while boundaries == before:
                await trio.sleep(0.01)
                boundaries = len(await owners.boundaries("public/default"))
        assert boundaries > before
        await set_key(other, SHEDDING, "false")
        await eventually(lambda: not owners.in_force.now.loadBalancerSheddingEnabled)
