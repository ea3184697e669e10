"""The rack map and the groups of namespaces, as Pulsar answers, and their effect."""

from __future__ import annotations

import json

import pytest
import trio

from broker.http.tests.test_bundles import Several
from ledgers.client import LedgerClient, LedgerClientConfig
from ledgers.cluster import FixedCluster
from ledgers.placement import BookieGroups, PlacementRules, parse_rack_map
from ledgers.tests.fake_bookie import FakeBookie
from protocol.topic_name import TopicName

RACKS = "bookies/racks-info"
GROUPS = "namespaces/public/default/persistence/bookieAffinity"
LOCAL = "/admin/local-policies/public/default"


class SeveralWithRecord(Several):
    """Makes the record of a namespace's bundles, as the cluster does."""

    def __init__(self, broker):
        super().__init__(broker.admin.broker_id, broker.service.ownership.this_broker)
        self.store = broker.admin.store

    async def boundaries(self, namespace_name):
        if await self.store.get(LOCAL) is None:
            record = {"bundles": {"boundaries": await super().boundaries(namespace_name)}}
            await self.store.put(LOCAL, json.dumps(record).encode(), None)
        return await super().boundaries(namespace_name)


def use_bookies(broker, rules):
    bookies = {f"127.0.0.1:{port}": FakeBookie() for port in (3181, 3182)}
    cluster = FixedCluster(bookies, trio.lowlevel.spawn_system_task, rules)
    broker.admin.ledgers = LedgerClient(
        broker.admin.store, bookies, LedgerClientConfig(), broker.admin.clock, cluster
    )
    broker.admin.cluster = SeveralWithRecord(broker)


@pytest.fixture
def several(broker):
    use_bookies(broker, PlacementRules())


async def test_racks_are_set_moved_and_deleted(http, broker, several):
    assert await http("GET", RACKS) == (200, {})
    missing = (404, "Bookie rack placement configuration not found: b:1")
    assert await http("GET", f"{RACKS}/b:1") == missing
    assert await http("DELETE", f"{RACKS}/b:1") == missing
    info = {"rack": "/r1", "hostname": "h"}
    assert await http("POST", f"{RACKS}/b:1?group=g1", {**info, "x": 1}) == (204, None)
    assert await http("GET", f"{RACKS}/b:1") == (200, info)
    assert await http("POST", f"{RACKS}/b:2?group=default", {"rack": 5}) == (204, None)
    assert await http("POST", f"{RACKS}/b:1?group=g2", info) == (204, None)
    racks = {"default": {"b:2": {"rack": "5"}}, "g2": {"b:1": info}}
    assert await http("GET", RACKS) == (200, racks)
    stored = parse_rack_map((await broker.admin.store.get("/bookies"))[0])
    assert (stored.rack_of("b:1"), stored.members({"g2"})) == ("/r1", {"b:1"})
    assert await http("DELETE", f"{RACKS}/b:1") == (204, None)
    assert await http("GET", f"{RACKS}/b:1") == missing
    no_group = (412, "Bookie 'group' parameters is missing")
    assert await http("POST", f"{RACKS}/b:1", info) == no_group
    assert (await http("POST", f"{RACKS}/b:1?group=g", []))[0] == 400


@pytest.mark.parametrize(
    ("rules", "good", "wrong"),
    [
        (PlacementRules(), ("r", "/r/", None), ("/a/b", "a/b/c")),
        (PlacementRules(is_region_aware=True), ("/a/b", "a/b"), ("/r", "/a/b/c", None)),
        (PlacementRules(is_rack_aware=False), ("/a/b/c", "r", None), ()),
    ],
)
async def test_the_depth_of_a_rack_is_that_of_the_rules(http, broker, rules, good, wrong):
    use_bookies(broker, rules)
    for rack in good:
        assert await http("POST", f"{RACKS}/b:1?group=g", {"rack": rack}) == (204, None)
    for rack in wrong:
        status, reason = await http("POST", f"{RACKS}/b:1?group=g", {"rack": rack})
        assert (status, "Bookie 'rack' parameter is invalid" in reason) == (412, True)


async def test_all_bookies_that_ever_registered_are_listed(http, broker, several):
    await broker.admin.store.put("/ledgers/cookies/127.0.0.1:3999", b"", None)
    status, answer = await http("GET", "bookies/all")
    ports = [each["bookieId"].partition(":")[2] for each in answer["bookies"]]
    assert (status, ports) == (200, ["3181", "3182", "3999"])


async def test_groups_of_a_namespace_reach_its_loaded_topics(http, broker, several):
    await http("PUT", "persistent/public/default/a")
    topic = await broker.service.get_or_load_topic(TopicName.parse("a"), create=False)
    given = {
        "bookkeeperAffinityGroupPrimary": "g1,g3",
        "bookkeeperAffinityGroupSecondary": "g2",
    }
    assert await http("GET", GROUPS) == (204, None)
    assert await http("POST", GROUPS, given) == (204, None)
    assert await http("GET", GROUPS) == (200, given)
    wanted = BookieGroups(frozenset({"g1", "g3"}), frozenset({"g2"}))
    assert topic.ledger.policies.replication.groups == wanted
    stored = json.loads((await broker.admin.store.get(LOCAL))[0])
    assert stored["bundles"]["boundaries"][-1] == "0xffffffff"
    assert await http("POST", GROUPS, {"bookkeeperAffinityGroupPrimary": 5}) == (204, None)
    assert await http("GET", GROUPS) == (200, {"bookkeeperAffinityGroupPrimary": "5"})
    assert await http("DELETE", GROUPS) == (204, None)
    assert await http("GET", GROUPS) == (204, None)
    assert topic.ledger.policies.replication.groups is None
    assert "bundles" in json.loads((await broker.admin.store.get(LOCAL))[0])
    missing = (404, "Namespace not found")
    for method, body in (("GET", ...), ("POST", given), ("DELETE", ...)):
        path = "namespaces/public/no/persistence/bookieAffinity"
        assert await http(method, path, body) == missing


async def test_a_broker_with_one_bookie_refuses_racks_and_groups_by_name(http):
    for method, path, body in (
        ("POST", f"{RACKS}/b:1?group=g", {"rack": "/r"}),
        ("POST", GROUPS, {"bookkeeperAffinityGroupPrimary": "g"}),
        ("DELETE", GROUPS, ...),
    ):
        status, reason = await http(method, path, body)
        assert (status, "its own bookie" in reason) == (501, True)
    assert await http("GET", GROUPS) == (204, None)
    assert await http("GET", RACKS) == (200, {})
    status, answer = await http("GET", "bookies/all")
    assert (status, len(answer["bookies"])) == (200, 1)
