"""The stored boundaries of namespaces while others change them."""

import json

import pytest

from broker.cluster.namespace_bundles import NamespaceBundles
from broker.ground.config import BrokerConfig
from broker.peers.broker_address import BrokerAddress
from broker.tenancy.namespaces.names import local_policies_path
from broker.tenancy.namespaces.namespaces import Namespaces
from metadata.memory_store import MemoryStore
from protocol.errors import MetadataError

NAMESPACE = "public/default"
PATH = local_policies_path(NAMESPACE)


@pytest.fixture
async def tree():
    tree = MemoryStore()
    await Namespaces(tree, BrokerConfig()).bootstrap(
        BrokerAddress("pulsar://b0:6650", "http://b0:8080")
    )
    return tree


class Contended:
    """A session of a tree in which another writes the node of the boundaries, and none into it,
    after each look at it."""

    def __init__(self, tree):
        self._tree = tree
        self._other = tree.another_session()
        self.looks = 0

    def __getattr__(self, name):
        return getattr(self._tree, name)

    async def get(self, path):
        found = await self._tree.get(path)
        if path == PATH:
            self.looks += 1
            await self._other.put(path, json.dumps({"migrated": False}).encode(), None)
        return found


async def test_boundaries_are_made_from_the_policies(tree):
    bundles = NamespaceBundles(tree, Namespaces(tree, BrokerConfig()))
    boundaries = await bundles.of(NAMESPACE)
    assert json.loads((await tree.get(PATH))[0])["bundles"]["boundaries"] == boundaries.texts
    assert bundles.in_memory(NAMESPACE) is boundaries


async def test_a_node_that_others_change_all_the_time_is_refused(tree):
    store = Contended(tree.another_session())
    bundles = NamespaceBundles(store, Namespaces(tree, BrokerConfig()))
    with pytest.raises(MetadataError, match="changed by others all the time"):
        await bundles.of(NAMESPACE)
    assert store.looks < 1_000
