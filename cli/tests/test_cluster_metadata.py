"""The metadata of a new cluster, made once, twice, by halves, and for the wrong store."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from broker.cluster.cluster_metadata import Initialization, NewCluster, WrongCluster
from cli.cluster_command import command
from metadata.memory_store import MemoryStore
from metadata.store import MetadataUnavailable

URLS = {"serviceUrl": "http://h:8080", "brokerServiceUrl": "pulsar://h:6650"}
TREE = {
    "/admin/clusters/c1",
    "/admin/clusters/global",
    "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign",
    "/admin/policies/public",
    "/admin/policies/public/default",
    "/admin/policies/pulsar",
    "/admin/policies/pulsar/system",
    "/bookies",
    "/ledgers/INSTANCEID",
    "/ledgers/LAYOUT",
    "/ledgers/available",
    "/ledgers/available/readonly",
    "/ledgers/cookies",
}


async def tree(store, path="/"):
    """Path -> value of all nodes."""
    found = {}
    for name in await store.children(path):
        below = f"{path.rstrip('/')}/{name}"
        stored = await store.get(below)
        if stored is not None:
            found[below] = stored[0]
        found |= await tree(store, below)
    return found


async def initialize(local, configuration=None, name="c1", data=URLS, **more):
    configuration = configuration or local
    made = Initialization(NewCluster(name=name, data=data, **more))
    await made.check(local, configuration)
    await made.make_ledgers(local)
    await made.make_local(local)
    await made.make_configuration(configuration)
    return made.made


async def test_everything_is_made_once():
    store = MemoryStore()
    assert await initialize(store) > 0
    made = await tree(store)
    assert set(made) == TREE
    cluster = json.loads(made["/admin/clusters/c1"])
    assert {key: cluster[key] for key in URLS} == URLS
    policies = json.loads(made["/admin/policies/public/default"])
    assert policies["replication_clusters"] == ["c1"]
    assert policies["bundles"]["numBundles"] == 16

    assert await initialize(store) == 0
    assert await tree(store) == made


async def test_what_pulsar_made_stays_as_it_is():
    store = MemoryStore()
    await initialize(store)
    policies = b'{"replication_clusters":["c1"],"bundles":{},"of":"pulsar"}'
    await store.put("/admin/policies/public/default", policies, None)
    before = await tree(store)
    assert await initialize(store) == 0
    assert await tree(store) == before


class Failing:
    """A store that is out of reach after some writes."""

    def __init__(self, store, writes):
        self._store = store
        self._writes = writes

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def put(self, *arguments):
        if not self._writes:
            raise MetadataUnavailable("gone")
        self._writes -= 1
        return await self._store.put(*arguments)


@pytest.mark.parametrize("writes", range(13))
async def test_a_run_that_was_interrupted_is_completed_by_the_next(writes):
    store = MemoryStore()
    with pytest.raises(MetadataUnavailable):
        await initialize(Failing(store, writes))
    # A broker starts when it finds the record of its cluster: nothing is missing then.
    assert await store.get("/admin/clusters/c1") is None
    assert await initialize(store) > 0
    assert set(await tree(store)) == TREE


async def test_clusters_share_the_configuration_store_only():
    configuration, first, second = MemoryStore(), MemoryStore(), MemoryStore()
    await initialize(first, configuration)
    await initialize(second, configuration, "c2")
    shared = await tree(configuration)
    assert json.loads(shared["/admin/policies/public"])["allowedClusters"] == ["c1", "c2"]
    policies = json.loads(shared["/admin/policies/public/default"])
    assert policies["replication_clusters"] == ["c1", "c2"]
    assert "clusterThatCanDeleteNamespace" not in policies
    assert "/ledgers/INSTANCEID" in await tree(first)
    assert not [path for path in shared if path.startswith("/ledgers")]


async def test_the_store_of_another_cluster_is_refused():
    store = MemoryStore()
    await initialize(store)
    before = await tree(store)
    with pytest.raises(WrongCluster, match=r"that of another cluster \(c1\)"):
        await initialize(store, name="c2")
    with pytest.raises(WrongCluster, match="serviceUrl='http://h:8080', not 'http://x:1'"):
        await initialize(store, data={"serviceUrl": "http://x:1"})
    for name in ("global", "a/b", ""):
        with pytest.raises(WrongCluster, match="cannot be the name"):
            await initialize(store, name=name)
    assert await tree(store) == before


@pytest.fixture
def unchanged_logging(monkeypatch):
    """Loggers that are used while logs go to stderr would keep that for all later tests."""
    monkeypatch.setattr("cli.cluster_command.log_to_stderr", lambda _level: None)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-c", "c1", "-md", "memory:"], "needs --web-service-url"),
        (["-md", "memory:", "-uw", "http://h:1"], "need --cluster"),
        (["-c", "c1"], "--metadata-store"),
        (["-md", "etcd:h"], "has no etcd store"),
        (
            [*("-c", "c1", "-md", "memory:", "-uw", "http://h:1")]
            + ["--existing-bk-metadata-service-uri", "metadata-store:memory:"],
            "memory:",
        ),
    ],
)
def test_a_mistake_is_told(arguments, complaint, unchanged_logging):
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code != 0
    assert complaint in done.output


def test_the_command_says_what_it_did(unchanged_logging):
    done = CliRunner().invoke(command, ["-c", "c1", "-md", "memory:", "-uw", "http://h:1"])
    assert (done.exit_code, done.output) == (0, "initialized\n")
