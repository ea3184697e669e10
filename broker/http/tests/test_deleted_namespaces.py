"""A namespace that is deleted while clients use it: all of it goes, or nothing."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio
from structlog.testing import capture_logs

from broker.tenancy.namespaces.names import policies_path
from broker.topics.broadcast.tests.peer import peer
from protocol.errors import BrokerError, ServiceNotReady
from protocol.topic_name import TopicName

NS = "namespaces/public/busy"
TOPIC = TopicName.parse("persistent://public/busy/t")
PART = TopicName.parse("persistent://public/busy/p-partition-1")
VOLATILE = TopicName.parse("non-persistent://public/busy/n")


@pytest.fixture
async def busy(http):
    await http("PUT", NS)
    await http("POST", "brokers/configuration/forceDeleteNamespaceAllowed/true")
    await http("PUT", "persistent/public/busy/p/partitions", 3)


@asynccontextmanager
async def returning_clients(broker, names):
    """Clients that open these topics again and again, as producers do."""
    refused = []

    async def return_to(name):
        while True:
            try:
                await broker.service.get_or_load_topic(name, create=True)
            except BrokerError as error:
                refused.append(error)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(return_to, name)
        yield refused
        nursery.cancel_scope.cancel()


async def left_of(broker, name):
    """What the metadata store has of a namespace."""
    store = broker.admin.store
    roots = (f"/managed-ledgers/{name}/persistent", f"/schemas/{name}")
    found = [f"{root}/{each}" for root in roots for each in await store.children(root)]
    return found + [policies_path(name)] * await store.exists(policies_path(name))


async def test_a_namespace_is_force_deleted_while_clients_come_back(http, broker, busy):
    async with (
        peer(broker, producer=True, topic=TOPIC.full) as one,
        peer(broker, producer=True, topic=PART.full) as two,
        returning_clients(broker, [TOPIC, PART, VOLATILE]),
    ):
        await one.publish(b"1")
        await two.publish(b"2")
        schema = {"type": "STRING", "schema": "", "properties": {}}
        assert (await http("POST", "schemas/public/busy/p/schema", schema))[0] == 200
        assert await http("DELETE", f"{NS}?force=true") == (204, None)
        assert await left_of(broker, "public/busy") == []
        assert (await http("GET", NS))[0] == 404


async def test_a_namespace_in_use_is_not_deleted_without_force_and_goes_on(http, broker, busy):
    async with peer(broker, producer=True, topic=TOPIC.full) as producer:
        await producer.publish(b"1")
        with capture_logs() as lines:
            assert (await http("DELETE", NS))[0] == 409
        assert [line for line in lines if line["log_level"] == "warning"] == []
        await producer.publish(b"2", first=1)
    assert broker.service.topics[TOPIC.full].ledger.entries == 2
    await broker.service.get_or_load_topic(VOLATILE, create=True)
    assert (await http("GET", NS))[1]["deleted"] is False


async def test_nothing_is_made_in_a_namespace_that_is_being_deleted(http, broker, busy):
    await broker.service.get_or_load_topic(TOPIC, create=True)
    namespaces = broker.admin.namespaces
    await namespaces.mark_deleted("public/busy", deleted=True)
    for name in (VOLATILE, TopicName.parse("persistent://public/busy/new"), PART):
        with pytest.raises(ServiceNotReady, match="delete it again"):
            await broker.service.get_or_load_topic(name, create=True)
        with pytest.raises(ServiceNotReady, match="delete it again"):
            await namespaces.resolve_for_lookup(name, True)
    for method, path, body in (
        ("PUT", "persistent/public/busy/new", ...),
        ("PUT", "persistent/public/busy/new/partitions", 2),
        ("POST", "persistent/public/busy/p/partitions", 5),
    ):
        status, reason = await http(method, path, body)
        assert (status, "is being deleted" in reason) == (409, True), path
    assert await http("DELETE", f"{NS}?force=true") == (204, None)
    assert await left_of(broker, "public/busy") == []


async def test_a_deletion_that_was_interrupted_is_completed_by_another(
    http, broker, busy, monkeypatch
):
    await broker.service.get_or_load_topic(TOPIC, create=True)
    service = broker.service
    with monkeypatch.context() as patched:

        async def fail(name, *, force=False):
            raise ServiceNotReady("the owner does not answer")

        patched.setattr(type(service), "delete_topic", lambda _self, name, force: fail(name))
        assert (await http("DELETE", f"{NS}?force=true"))[0] == 503
    with pytest.raises(ServiceNotReady, match="delete it again"):
        await service.get_or_load_topic(VOLATILE, create=True)
    assert await http("DELETE", f"{NS}?force=true") == (204, None)
    assert await left_of(broker, "public/busy") == []


async def test_a_new_namespace_cannot_be_one_that_is_being_deleted(http):
    assert (await http("PUT", "namespaces/public/new", {"deleted": True}))[0] == 501
    assert await http("PUT", "namespaces/public/new", {"deleted": False}) == (204, None)
