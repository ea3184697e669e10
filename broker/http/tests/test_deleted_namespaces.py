"""A namespace that is deleted while clients use it: all of it goes, or nothing."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio
from structlog.testing import capture_logs

from broker.managed_ledger.ledger_record import LedgerRecord, encode_ledger_record
from broker.tenancy.namespaces.names import policies_path
from broker.topics.broadcast.tests.peer import peer
from protocol.errors import BrokerError, ServiceNotReady
from protocol.topic_name import TopicName
from runtime.testing.conditions import eventually

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


@asynccontextmanager
async def held(monkeypatch, owner, name, is_held):
    """Calls of a method for which `is_held(arguments)` wait at its beginning until the event that
    is given is set. Gives the event, and the arguments of those that wait or waited."""
    released, waited = trio.Event(), []
    method = getattr(owner, name)

    async def wait_first(*arguments, **named):
        if is_held(arguments):
            waited.append(arguments)
            await released.wait()
        return await method(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, wait_first)
        yield released, waited


async def test_a_topic_that_is_being_made_keeps_its_namespace_from_a_deletion_without_force(
    http, broker, monkeypatch
):
    await http("PUT", NS)
    statuses = []
    factory = type(broker.service.factory)
    async with (
        held(monkeypatch, factory, "open", lambda given: given[1] == TOPIC.managed_ledger_name) as (
            released,
            waited,
        ),
        trio.open_nursery() as nursery,
    ):

        async def make():
            await broker.service.get_or_load_topic(TOPIC, create=True)

        async def delete():
            statuses.append((await http("DELETE", NS))[0])

        nursery.start_soon(make)
        await eventually(lambda: waited)
        nursery.start_soon(delete)
        namespace = await broker.admin.namespaces.get("public/busy")
        await eventually(lambda: namespace.is_being_deleted or statuses)
        released.set()
    assert statuses == [409]
    assert TOPIC.full in broker.service.topics
    assert (await http("GET", NS))[1]["deleted"] is False


async def test_topics_that_are_found_late_are_not_deleted_without_force(http, broker, monkeypatch):
    await http("PUT", NS)
    namespaces = broker.admin.namespaces
    checks = []
    check_empty = type(namespaces).check_empty

    async def pass_twice(self, name):
        checks.append(name)
        if len(checks) == 2:
            await broker.admin.store.put(
                f"/managed-ledgers/{TOPIC.managed_ledger_name}",
                encode_ledger_record(LedgerRecord((), None, {})),
                None,
            )
        elif len(checks) > 2:
            await check_empty(self, name)

    monkeypatch.setattr(type(namespaces), "check_empty", pass_twice)
    assert (await http("DELETE", NS))[0] == 409
    assert len(checks) == 2
    assert await namespaces.topics("public/busy", "persistent") == [TOPIC.full]
    assert (await http("GET", NS))[1]["deleted"] is False


async def test_a_refused_deletion_leaves_the_mark_of_a_forced_one_that_began_meanwhile(
    http, broker, busy, monkeypatch
):
    await broker.service.get_or_load_topic(TOPIC, create=True)
    namespaces, service = broker.admin.namespaces, broker.service
    namespace = await namespaces.get("public/busy")
    answers, marks, checks, released = {}, [], [], trio.Event()
    check_empty, delete_topic = type(namespaces).check_empty, type(service).delete_topic

    async def refuse_late(self, name):
        checks.append(name)
        if len(checks) == 2:
            await released.wait()
        if len(checks) > 1:
            await check_empty(self, name)

    async def see_mark(self, name, **named):
        await eventually(lambda: NS in answers)
        marks.append(namespace.is_being_deleted)
        await delete_topic(self, name, **named)

    async def delete(path):
        answers[path] = (await http("DELETE", path))[0]

    monkeypatch.setattr(type(namespaces), "check_empty", refuse_late)
    monkeypatch.setattr(type(service), "delete_topic", see_mark)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(delete, NS)
        await eventually(lambda: len(checks) == 2)
        nursery.start_soon(delete, f"{NS}?force=true")
        await eventually(lambda: namespace.deleting.statistics().tasks_waiting)
        released.set()
    assert answers == {NS: 409, f"{NS}?force=true": 204}
    assert marks
    assert all(marks)


async def test_a_forced_deletion_marks_a_namespace_again_that_another_broker_took_its_mark_from(
    http, broker, busy, monkeypatch
):
    await broker.service.get_or_load_topic(TOPIC, create=True)
    namespaces, service = broker.admin.namespaces, broker.service
    delete_topic, delete = type(service).delete_topic, type(namespaces).delete
    marks = []

    async def take_mark_back(self, name, **named):
        await namespaces.mark_deleted("public/busy", deleted=False)
        await delete_topic(self, name, **named)

    async def see_mark(self, name):
        marks.append((await namespaces.get(name)).is_being_deleted)
        await delete(self, name)

    monkeypatch.setattr(type(service), "delete_topic", take_mark_back)
    monkeypatch.setattr(type(namespaces), "delete", see_mark)
    assert await http("DELETE", f"{NS}?force=true") == (204, None)
    assert marks == [False, True]
    assert await left_of(broker, "public/busy") == []


async def test_a_namespace_whose_policies_change_while_it_is_deleted_is_looked_at_again(
    http, broker, busy, monkeypatch
):
    """The change may be that it is not marked any more, and somebody may have made a topic."""
    namespaces = broker.admin.namespaces
    check_empty = type(namespaces).check_empty
    checks = []

    async def change_after(self, name):
        await check_empty(self, name)
        checks.append(name)
        if len(checks) == 1:
            await namespaces.mark_deleted(name, deleted=False)
            await broker.service.get_or_load_topic(TOPIC, create=True)

    monkeypatch.setattr(type(namespaces), "check_empty", change_after)
    assert await http("DELETE", f"{NS}?force=true") == (204, None)
    assert len(checks) == 2
    assert await left_of(broker, "public/busy") == []
