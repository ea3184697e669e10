"""Properties and clusters of a namespace, and what is done to all its topics."""

from __future__ import annotations

import pytest

from protocol.topic_name import TopicName

NS = "namespaces/public/default"
N = "persistent/public/default"


async def test_properties(http):
    url = f"{NS}/properties"
    assert await http("GET", url) == (200, {})
    assert await http("PUT", f"{NS}/property/a/b%2Fc") == (204, None)
    assert (await http.client.get(f"/admin/v2/{NS}/property/a")).text == "b/c"
    assert (await http.client.get(f"/admin/v2/{NS}/property/no")).text == ""
    assert await http("PUT", url, {"c": "d", "a": "e"}) == (204, None)
    assert await http("GET", url) == (200, {"a": "e", "c": "d"})
    assert (await http("GET", NS))[1]["properties"] == {"a": "e", "c": "d"}
    assert (await http.client.delete(f"/admin/v2/{NS}/property/a")).text == "e"
    assert (await http.client.delete(f"/admin/v2/{NS}/property/a")).text == ""
    assert await http("GET", url) == (200, {"c": "d"})
    assert await http("DELETE", url) == (204, None)
    assert await http("GET", url) == (200, {})
    for wrong in (None, {"a": [1]}, []):
        assert (await http("PUT", url, wrong))[0] == 400


async def test_clusters(http):
    assert await http("GET", f"{NS}/replication") == (200, ["standalone"])
    assert await http("POST", f"{NS}/replication", ["standalone", "standalone"]) == (200, None)
    assert await http("GET", f"{NS}/replication") == (200, ["standalone"])
    assert await http("GET", f"{NS}/allowedClusters") == (200, [])
    assert await http("POST", f"{NS}/allowedClusters", ["standalone"]) == (200, None)
    assert await http("GET", f"{NS}/allowedClusters") == (200, ["standalone"])


WRONG = [
    ("replication", [], 412, "ClusterIds should not be null or empty"),
    ("replication", None, 412, "ClusterIds should not be null or empty"),
    ("replication", ["global"], 412, "Cannot specify global in the list of replication clusters"),
    ("replication", ["other"], 403, "Invalid cluster id: other"),
    ("replication", ["standalone", "known"], 501, "leave out known"),
    ("replication", "standalone", 400, "must be an array of names"),
    ("allowedClusters", [], 400, "Allowed clusters do not contain the replication cluster"),
    ("allowedClusters", ["other"], 403, "Cluster [other] is not in the list of allowed clusters"),
    ("allowedClusters", {}, 400, "must be an array of names"),
]


@pytest.mark.parametrize(("path", "body", "status", "reason"), WRONG)
async def test_other_clusters_are_refused(http, path, body, status, reason):
    await http("PUT", "clusters/known", {"serviceUrl": "http://known:8080"})
    told = await http("POST", f"{NS}/{path}", body)
    assert (told[0], reason in told[1]) == (status, True), told


async def test_what_is_done_to_all_topics_of_a_namespace(http, broker):
    for topic in ("a", "b"):
        await http("PUT", f"{N}/{topic}")
        for subscription in ("s", "t"):
            await http("PUT", f"{N}/{topic}/subscription/{subscription}")
        loaded = await broker.service.get_or_load_topic(TopicName.parse(topic), create=False)
        assert set(loaded.subscriptions) == {"s", "t"}
    await http("PUT", f"{N}/c")
    await broker.service.unload_topic(TopicName.parse("b"))
    for path in (f"{NS}/clearBacklog", f"{NS}/clearBacklog/s", f"{NS}/unsubscribe/s"):
        assert await http("POST", path) == (204, None)
    for topic in ("a", "b"):
        assert await http("GET", f"{N}/{topic}/subscriptions") == (200, ["t"])
    _, told = await http("GET", f"{NS}/0x00000000_0xffffffff/topicHashPositions")
    assert "Invalid upper boundary" in told
    for path in ("clearBacklog", "clearBacklog/s", "unsubscribe/s"):
        assert (await http("POST", f"namespaces/public/no/{path}"))[0] == 404


async def test_a_bundle_is_cleared_alone(http, broker):
    for number in range(6):
        await http("PUT", f"{N}/t{number}")
        await http("PUT", f"{N}/t{number}/subscription/s")
    bundle = f"{NS}/0x40000000_0x80000000"
    inside = set((await http("GET", f"{bundle}/topicHashPositions"))[1]["topicHashPositions"])
    assert await http("POST", f"{bundle}/clearBacklog/s") == (204, None)
    assert await http("POST", f"{bundle}/unsubscribe/s") == (204, None)
    for number in range(6):
        _, left = await http("GET", f"{N}/t{number}/subscriptions")
        assert left == ([] if f"persistent://public/default/t{number}" in inside else ["s"])
