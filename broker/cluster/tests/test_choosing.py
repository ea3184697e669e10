"""Bundles that a request names by what they have."""

import json

import pytest

from broker.cluster.tests.cluster_of import cluster_of, topic
from broker.ground.refusal import Refusal
from protocol.errors import TopicNotFound

NAMESPACE = "public/default"


def names_in(bundle):
    return [
        each for each in (topic(f"t{number}") for number in range(200)) if bundle.contains(each)
    ]


async def test_the_largest_bundle_has_most_topics():
    async with cluster_of(2) as (broker, other):
        boundaries = await other.ownership._bundles.of(NAMESPACE)
        with pytest.raises(Refusal, match="Bundle range LARGEST not found"):
            await other.ownership.chosen_range(NAMESPACE, "LARGEST")
        for bundle, count in zip(boundaries.bundles, (1, 3, 5, 2), strict=True):
            for name in names_in(bundle)[:count]:
                await broker.store.put(
                    f"/managed-ledgers/{NAMESPACE}/persistent/{name.local_name}", b"", None
                )
        expected = boundaries.bundles[2].range_text
        assert await other.ownership.chosen_range(NAMESPACE, "LARGEST") == expected


async def test_the_hot_bundle_has_the_highest_throughput_that_was_stored():
    async with cluster_of(1) as (broker,):
        bundles = (await broker.ownership._bundles.of(NAMESPACE)).bundles
        with pytest.raises(Refusal, match="Bundle range HOT not found"):
            await broker.ownership.chosen_range(NAMESPACE, "HOT")
        for bundle, throughput, topics in zip(
            bundles, (1.0, 50.0, 7.0, 90.0), (1, 1, 1, 0), strict=True
        ):
            record = {"longTermData": {"msgThroughputIn": throughput}, "topics": topics}
            path = f"/loadbalance/bundle-data/{bundle.name}"
            await broker.store.put(path, json.dumps(record).encode(), None)
        expected = bundles[1].range_text
        assert await broker.ownership.chosen_range(NAMESPACE, "HOT") == expected


async def test_any_other_text_is_left_to_those_who_read_ranges():
    async with cluster_of(1) as (broker,):
        assert await broker.ownership.chosen_range(NAMESPACE, "largest") == "largest"
        with pytest.raises(TopicNotFound):
            await broker.ownership.chosen_range("public/none", "LARGEST")
