"""Real Pulsar and Vela's registry keep schemas in the same ZooKeeper and bookie."""

from __future__ import annotations

import base64
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from google.protobuf import descriptor_pb2

from bookie.adds import NoTurn
from broker.ground.config import DEFAULT_CONFIG
from broker.http.topics.schemas import _answer
from broker.tenancy.schemas.conversion import SchemaConversion
from broker.tenancy.schemas.registry import SchemaRegistry
from broker.tenancy.schemas.schema_info import SchemaInfo
from compat_tests.oracle.apache_bookie import ApacheBookie
from compat_tests.oracle.pulsar_broker import PulsarBroker, initialise_cluster
from compat_tests.oracle.zookeeper_server import ZooKeeperServer
from ledgers.client import LedgerClient, LedgerClientConfig
from ledgers.placement import PlacementRules
from ledgers.remote.bookie_pool import BookiePool
from ledgers.remote.config import RemoteConfig
from metadata.ledger_list import live_ledgers
from metadata.zookeeper_address import ZooKeeperAddress
from metadata.zookeeper_store import ZooKeeperStore
from protocol.topic_name import TopicName
from runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

WAIT_SECONDS_MAX = 60.0
FREE = "ALWAYS_COMPATIBLE"
PRIMITIVES = [
    *("STRING", "BOOLEAN", "INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE", "NONE"),
    *("DATE", "TIME", "TIMESTAMP", "INSTANT", "LOCAL_DATE", "LOCAL_TIME", "LOCAL_DATE_TIME"),
]


def record(*names: str) -> str:
    fields = [{"name": name, "type": ["null", "int"], "default": None} for name in names]
    return json.dumps({"type": "record", "name": "A", "fields": fields}, indent=1)


def native(*names: str) -> str:
    """What the Java client makes of a generated message."""
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="a", syntax="proto3")
    message = file.message_type.add(name="A")
    for number, name in enumerate(names, 1):
        message.field.add(
            name=name,
            number=number,
            type=descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
            label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
        )
    files = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    return json.dumps(
        {
            "fileDescriptorSet": base64.b64encode(files).decode(),
            "rootMessageTypeName": "a.A",
            "rootFileDescriptorName": "a.proto",
        }
    )


def body(kind: str, *names: str) -> dict[str, Any]:
    """A schema as REST takes it; `names` tells versions apart where a definition can."""
    properties = {"of": "test", "empty": ""}
    if kind == "PROTOBUF_NATIVE":
        return {"type": kind, "schema": native(*names), "properties": properties}
    if kind == "KEY_VALUE":
        parts = {"key": "", "value": json.loads(record(*names))}
        properties |= {
            "key.schema.name": "",
            "key.schema.type": "STRING",
            "key.schema.properties": "{}",
            "value.schema.name": "",
            "value.schema.type": "AVRO",
            "value.schema.properties": "{}",
            "kv.encoding.type": "INLINE",
        }
        return {"type": kind, "schema": json.dumps(parts), "properties": properties}
    definition = "" if kind in PRIMITIVES else record(*names)
    return {"type": kind, "schema": definition, "properties": properties}


KINDS = ["AVRO", "JSON", "PROTOBUF", "PROTOBUF_NATIVE", "KEY_VALUE", *PRIMITIVES]


class Cluster:
    """The processes."""

    def __init__(self, directory) -> None:
        for name in ("zookeeper", "bookie", "broker"):
            (directory / name).mkdir()
        self.zookeeper = ZooKeeperServer(directory / "zookeeper")
        self.zookeeper.start()
        initialise_cluster(directory, self.zookeeper.hosts)
        self.bookie = ApacheBookie(directory / "bookie", self.zookeeper.hosts)
        self.bookie.start()
        self.broker = PulsarBroker(directory / "broker", self.zookeeper.hosts)
        self.broker.start()
        strategy = "/admin/v2/namespaces/public/default/schemaCompatibilityStrategy"
        status, _ = self.broker.http("PUT", strategy, FREE)
        assert status == 204

    def kill(self) -> None:
        for server in (self.broker, self.bookie, self.zookeeper):
            server.kill()

    def schemas(self, method: str, name: str, what: str = "schema", body: Any = None):
        path = f"/admin/v2/schemas/public/default/{name}/{what}"
        return self.broker.http(method, path, body)

    def post(self, name: str, body: dict[str, Any]) -> int:
        status, answer = self.schemas("POST", name, body=body)
        assert status == 200, answer
        return answer["version"]["version"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("shared-schemas"))
    yield cluster
    cluster.kill()


class Vela:
    """Our registry in the same cluster."""

    def __init__(self, store, registry) -> None:
        self.store = store
        self.registry = registry

    async def post(self, name: str, body: dict[str, Any]) -> int:
        schema = await self.registry.posted(body)
        assert isinstance(schema, SchemaInfo)
        return await self.registry.find_or_add(topic(name), schema, FREE)

    async def all(self, name: str) -> list[dict[str, Any]]:
        return [_answer(each) for each in await self.registry.all(topic(name))]


def topic(name: str) -> TopicName:
    return TopicName.parse(f"public/default/{name}")


@asynccontextmanager
async def vela(cluster: Cluster, **settings: Any) -> AsyncIterator[Vela]:
    address = ZooKeeperAddress(
        hosts=cluster.zookeeper.hosts, chroot="", session_timeout_seconds=10.0
    )
    store = await ZooKeeperStore.open(address)
    clock = SystemClock()
    try:
        async with trio.open_nursery() as nursery:
            config = RemoteConfig(add_timeout_s=10.0, read_timeout_s=10.0, back_off_max_s=0.5)
            pool = BookiePool(store, NoTurn(), config, PlacementRules(is_rack_aware=False))
            await nursery.start(pool.run)
            with trio.fail_after(WAIT_SECONDS_MAX):
                while not pool.writable:  # noqa: ASYNC110 - another process registers
                    await trio.sleep(0.1)
            client = LedgerClient(store, pool.bookies, LedgerClientConfig(**settings), clock, pool)
            registry = SchemaRegistry(store, client, clock, DEFAULT_CONFIG)
            await SchemaConversion(store, registry.ledgers).run()
            yield Vela(store, registry)
            nursery.cancel_scope.cancel()
    finally:
        await store.aclose()


async def real(cluster: Cluster, *request: Any) -> tuple[int, Any]:
    return await trio.to_thread.run_sync(lambda: cluster.schemas(*request))


async def until_real_says(cluster: Cluster, wanted: Any, *request: Any) -> None:
    """Real Pulsar hears of changes by watches, too."""
    answer: Any = None
    with trio.move_on_after(WAIT_SECONDS_MAX):
        while answer != wanted:
            answer = await real(cluster, *request)
            await trio.sleep(0.05)
    assert answer == wanted


def topic_of(cluster: Cluster, name: str) -> str:
    status, answer = cluster.broker.http("PUT", f"/admin/v2/persistent/public/default/{name}")
    assert status == 204, answer
    return name


@pytest.mark.parametrize("kind", KINDS)
async def test_schemas_of_real_pulsar_are_read_by_vela(cluster: Cluster, kind: str) -> None:
    name = topic_of(cluster, f"real-{kind}")
    assert cluster.post(name, body(kind, "a")) == 0
    if kind not in PRIMITIVES:
        assert cluster.post(name, body(kind, "a", "b")) == 1
    status, answer = cluster.schemas("GET", name, "schemas")
    assert status == 200
    async with vela(cluster) as ours:
        assert await ours.all(name) == answer["getSchemaResponses"]
        assert await ours.post(name, body(kind, "a")) == 0
        newest = await ours.registry.newest(topic(name))
        assert newest.version == len(answer["getSchemaResponses"]) - 1


@pytest.mark.parametrize("kind", KINDS)
async def test_schemas_of_vela_are_read_by_real_pulsar(cluster: Cluster, kind: str) -> None:
    name = topic_of(cluster, f"vela-{kind}")
    # Real Pulsar knows no password for schemas, whatever that of messages is.
    async with vela(cluster, password=b"of messages") as ours:
        assert await ours.post(name, body(kind, "a")) == 0
        if kind not in PRIMITIVES:
            assert await ours.post(name, body(kind, "a", "b")) == 1
        stored = await ours.all(name)
        await until_real_says(cluster, (200, stored[-1]), "GET", name)
        for each in stored:
            answer = await real(cluster, "GET", name, f"schema/{each['version']}")
            assert answer == (200, each)
        status, answer = await real(cluster, "GET", name, "schemas")
        assert (status, answer) == (200, {"getSchemaResponses": stored})
        for number, names in enumerate([("a",), ("a", "b")][: len(stored)]):
            assert cluster.post(name, body(kind, *names)) == number


async def test_versions_and_deletions_of_both_follow_each_other(cluster: Cluster) -> None:
    name = topic_of(cluster, "both")
    missing = (404, {"reason": "Schema not found"})
    async with vela(cluster) as ours:
        before = await live_ledgers(ours.store)
        assert await ours.post(name, body("AVRO", "a")) == 0
        assert cluster.post(name, body("AVRO", "b")) == 1
        assert await ours.post(name, body("AVRO", "c")) == 2
        assert await ours.registry.delete(topic(name)) == 3
        await until_real_says(cluster, missing, "GET", name)
        assert cluster.post(name, body("JSON", "d")) == 4
        assert cluster.schemas("DELETE", name) == (200, {"version": 5})
        with trio.fail_after(WAIT_SECONDS_MAX):
            while await ours.registry.latest(topic(name)) is not None:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert await ours.post(name, body("STRING")) == 6
        stored = await ours.all(name)
        await until_real_says(
            cluster, (200, {"getSchemaResponses": stored}), "GET", name, "schemas"
        )
        assert len(await live_ledgers(ours.store) - before) == 7
        await ours.registry.delete(topic(name), force=True)
        await until_real_says(cluster, missing, "GET", name)
        assert await live_ledgers(ours.store) == before
        assert cluster.post(name, body("AVRO", "a")) == 0
        assert await ours.post(name, body("AVRO", "b")) == 1
        status, _ = await real(cluster, "DELETE", name, "schema?force=true")
        assert status == 200
        with trio.fail_after(WAIT_SECONDS_MAX):
            while await ours.registry.newest(topic(name)) is not None:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert await live_ledgers(ours.store) == before


async def test_a_version_of_real_pulsar_is_known_without_a_new_registry(cluster: Cluster) -> None:
    name = topic_of(cluster, "watched")
    async with vela(cluster) as ours:
        assert await ours.registry.latest(topic(name)) is None
        for number, names in enumerate([("a",), ("b",), ("c",)]):
            await trio.to_thread.run_sync(
                lambda names=names: cluster.post(name, body("AVRO", *names))
            )
            with trio.fail_after(WAIT_SECONDS_MAX):
                while len(await ours.registry.all(topic(name))) <= number:  # noqa: ASYNC110
                    await trio.sleep(0.01)


async def test_both_add_at_once_and_no_version_is_lost(cluster: Cluster) -> None:
    name = topic_of(cluster, "at-once")
    versions: dict[int, str] = {}

    async def by_real(names: str) -> None:
        status, answer = await real(cluster, "POST", name, "schema", body("AVRO", names))
        if status == 200:  # it gives up after conflicts
            note(answer["version"]["version"], names)

    async def by_vela(names: str) -> None:
        note(await ours.post(name, body("AVRO", names)), names)

    def note(version: int, names: str) -> None:
        assert version not in versions
        versions[version] = names

    async with vela(cluster) as ours:
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(by_real, f"r{number}")
                nursery.start_soon(by_vela, f"v{number}")
        await ours.store.sync()
        stored = {each["version"]: json.loads(each["data"]) for each in await ours.all(name)}
        assert len(versions) >= 10
        for version, names in versions.items():
            assert stored[version]["fields"][0]["name"] == names
