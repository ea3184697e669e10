"""Whether a shadow may have the messages of its source: asked where its record takes effect."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
import trio.testing

from broker.managed_ledger.ledger_table import LedgerRow
from broker.topics.follow.followed_ledger import FollowedLedger
from broker.topics.follow.tests.cluster import SHADOW, SOURCE, Cluster, peer, settled
from protocol import pulsar_api_pb2 as pb
from protocol.errors import AuthorizationError
from protocol.topic_name import TopicName
from runtime.testing.conditions import eventually
from web.client import fetch

COPY = "persistent://mine/ns/copy"
SAME = "persistent://public/default/copy"
EARLIEST = {"initialPosition": pb.CommandSubscribe.Earliest}
RULES = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "anonymousUserRole": "root",
    "superUserRoles": ("root",),
}


@asynccontextmanager
async def two_tenants(**settings):
    """A cluster whose broker `a` owns a topic of `public` and `b` one of the tenant `mine`, which
    the role `boss` administers."""
    cluster = Cluster()
    cluster.owners = {SOURCE: "a", COPY: "b", SAME: "b", SHADOW: "b"}
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(cluster.broker("a", **settings))
        b = await stack.enter_async_context(cluster.broker("b", **settings))
        publisher = await stack.enter_async_context(peer(a, producer=True, topic=SOURCE))
        urls = {"serviceUrl": b.web_service_url, "brokerServiceUrl": b.broker_service_url}
        assert await asked(b, "PUT", "clusters/standalone", urls) == 200
        info = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
        assert await asked(b, "PUT", "tenants/mine", info) == 204
        assert await asked(b, "PUT", "namespaces/mine/ns") == 204
        await publisher.publish(b"0", b"1")
        yield cluster, a, b, publisher


async def asked(broker, method, path, body=None):
    data = b"" if body is None else json.dumps(body).encode()
    url = f"{broker.web_service_url}/admin/v2/{path}"
    answer = await fetch(method, url, 10, body=data, body_bytes_max=10_000)
    return answer.status


def opened(broker, topic):
    return broker.service.get_or_load_topic(TopicName.parse(topic), create=False)


def of_topic(topic, rest):
    return f"{topic.replace('://', '/')}/{rest}"


async def test_a_record_of_another_tenant_gives_no_right_to_read_its_source():
    async with two_tenants(**RULES) as (cluster, a, b, _):
        await cluster.make_shadow(COPY, SOURCE)
        with pytest.raises(AuthorizationError, match="no role that administers the tenant mine"):
            await opened(b, COPY)
        assert "all" not in a.service.topics[SOURCE].subscriptions
        permission = "namespaces/public/default/permissions/boss"
        assert await asked(a, "POST", permission, ["produce"]) == 204
        with pytest.raises(AuthorizationError):
            await opened(b, COPY)
        assert await asked(a, "POST", permission, ["consume"]) == 204
        assert (await opened(b, COPY)).name.full == COPY


async def test_a_shadow_is_closed_when_its_source_may_not_be_read_any_more():
    async with two_tenants(**RULES) as (cluster, a, b, _):
        await cluster.make_shadow(COPY, SOURCE)
        permission = "namespaces/public/default/permissions/boss"
        assert await asked(a, "POST", permission, ["consume"]) == 204
        async with peer(b) as here:
            await here.subscribe((1, "one"), topic=COPY, **EARLIEST)
            await here.until(lambda: here.payloads(1) == [b"0", b"1"])
            assert await asked(a, "DELETE", permission) == 204
            await settled(lambda: COPY not in b.service.topics)
            assert here.closed == [1]
            [answer] = await here.subscribe((2, "one"), topic=COPY)
            assert "no role that administers" in answer.error.message


async def test_a_grant_that_is_revoked_while_the_shadow_opens_opens_nothing(monkeypatch):
    async with two_tenants(**RULES) as (cluster, a, b, _):
        await cluster.make_shadow(COPY, SOURCE)
        permission = "namespaces/public/default/permissions/boss"
        assert await asked(a, "POST", permission, ["consume"]) == 204
        open_ledger = FollowedLedger.open

        async def open_slowly(self):
            await open_ledger(self)
            assert await asked(a, "DELETE", permission) == 204
            policies = (await b.service.namespaces.get("public/default")).policies
            await eventually(lambda: "boss" not in policies.grants.namespace)
            await trio.testing.wait_all_tasks_blocked()  # who is open already has been asked about

        monkeypatch.setattr(FollowedLedger, "open", open_slowly)
        with pytest.raises(AuthorizationError, match="no role that administers the tenant mine"):
            await opened(b, COPY)
        assert COPY not in b.service.topics
        monkeypatch.undo()
        assert await asked(a, "POST", permission, ["consume"]) == 204
        assert (await opened(b, COPY)).name.full == COPY


async def test_a_shadow_in_the_tenant_of_its_source_needs_no_grant():
    async with two_tenants(**RULES) as (cluster, _, b, _):
        await cluster.make_shadow(SAME, SOURCE)
        assert (await opened(b, SAME)).name.full == SAME


async def test_without_authorization_a_shadow_needs_no_grant():
    async with two_tenants() as (cluster, _, b, _):
        await cluster.make_shadow(COPY, SOURCE)
        assert (await opened(b, COPY)).name.full == COPY


async def test_a_change_of_properties_cannot_make_what_creation_refuses():
    async with two_tenants(**RULES) as (cluster, _, b, _):
        properties = of_topic(COPY, "properties")
        assert await asked(b, "PUT", COPY.replace("://", "/")) == 204
        for source, status in (
            (SOURCE, 401),
            ("persistent://mine/ns/absent", 404),
            (COPY, 405),
            ("non-persistent://mine/ns/x", 405),
            ("x", 401),
            ("a/b", 412),
        ):
            assert await asked(b, "PUT", properties, {"PULSAR.SHADOW_SOURCE": source}) == status
        await b.service.unload_topic(TopicName.parse(COPY))
        assert await asked(b, "GET", of_topic(COPY, "stats")) == 200
        assert (await cluster.record_of(COPY)).properties == {}
        permission = "namespaces/public/default/permissions/boss"
        assert await asked(b, "POST", permission, ["consume"]) == 204
        given = {"PULSAR.SHADOW_SOURCE": SOURCE}
        assert await asked(b, "PUT", properties, given) == 204
        assert await asked(b, "DELETE", permission) == 204
        # A tool may put back what it got.
        assert await asked(b, "PUT", properties, {**given, "other": "1"}) == 204


@pytest.mark.parametrize("source", [SOURCE, "persistent://mine/ns/gone", "a/b", "x://a/b/c"])
async def test_a_shadow_that_cannot_be_opened_becomes_an_ordinary_topic_again(source):
    async with two_tenants(**RULES) as (cluster, _, b, _):
        assert await asked(b, "PUT", COPY.replace("://", "/")) == 204
        async with peer(b, producer=True, topic=COPY) as owner:
            await owner.publish(b"own")
        topic = await opened(b, COPY)
        given = {"PULSAR.SHADOW_SOURCE": source, "kept": "1"}
        await topic.ledger.change_properties(lambda old: {**old, **given})
        await b.service.unload_topic(topic.name)
        assert await asked(b, "GET", of_topic(COPY, "stats")) >= 400
        key = "properties?key=PULSAR.SHADOW_SOURCE"
        assert await asked(b, "DELETE", of_topic(COPY, key)) == 204
        async with peer(b) as here:
            await here.subscribe((1, "one"), topic=COPY, **EARLIEST)
            await here.until(lambda: here.payloads(1) == [b"own"])
        assert (await cluster.record_of(COPY)).properties == {"kept": "1"}


@pytest.mark.parametrize("source", [SOURCE, "persistent://mine/ns/gone", "a/b"])
async def test_a_shadow_that_cannot_be_opened_is_deleted_with_force(source):
    async with two_tenants(**RULES) as (cluster, a, b, _):
        await cluster.make_shadow(COPY, source)
        path = COPY.replace("://", "/")
        assert await asked(b, "DELETE", path) >= 400
        assert await asked(b, "DELETE", f"{path}?force=true") == 204
        assert await cluster.record_of(COPY) is None
        assert await asked(a, "GET", of_topic(SOURCE, "internalStats")) == 200


async def test_a_shadow_that_ends_leaves_the_ledgers_and_the_backlog_to_its_source():
    async with two_tenants() as (cluster, a, b, publisher):
        source = await cluster.record_of(SOURCE)
        # Pulsar's brokers list the ledgers of the source in the record of a shadow.
        await cluster.make_shadow(COPY, SOURCE, [LedgerRow(row.ledger_id) for row in source.rows])
        async with peer(a) as there, peer(b) as here:
            there.acks = True
            await there.subscribe((1, "owners"), topic=SOURCE)
            await here.subscribe((1, "one"), topic=COPY)
            await publisher.publish(b"2", b"3", first=2)
            await here.until(lambda: here.payloads(1) == [b"2", b"3"])
            owners = a.service.topics[SOURCE].subscriptions["all"]
            assert owners.backlog_entries == 2
            key = "properties?key=PULSAR.SHADOW_SOURCE"
            assert await asked(b, "DELETE", of_topic(COPY, key)) == 204
            assert here.closed == [1]
            await settled(lambda: len(owners.cursors) == 1)
            await settled(lambda: owners.backlog_entries == 0)
            topic = await opened(b, COPY)
            assert not topic.subscriptions
            assert topic.ledger.entries == 0
            await publisher.publish(b"4", first=4)
            await there.until(lambda: there.payloads(1) == [b"2", b"3", b"4"])
