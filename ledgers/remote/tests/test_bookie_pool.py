"""Bookies by their registrations: addresses, changes, racks, quarantine."""

from __future__ import annotations

import json
import random
from contextlib import asynccontextmanager

import pytest
import trio

from bookie.adds import NoTurn
from bookie.api import BookieError, Status
from bookie.tests.conftest import RecordingSink, wait_until
from ledgers.errors import NotEnoughBookies
from ledgers.placement import PlacementRules
from ledgers.remote.bookie_pool import BookiePool
from ledgers.remote.tests.test_remote_bookie import CALM, add
from ledgers.tests.nodes import running_nodes
from metadata.memory_store import MemoryStore
from metadata.store import MetadataUnavailable, SessionState
from protocol.bookkeeper import data_formats_pb2 as formats
from protocol.bookkeeper.addresses import address_of_id, address_of_registration
from protocol.bookkeeper.paths import available_path, read_only_path


def registration(host, port, protocol="bookie-rpc"):
    info = formats.BookieServiceInfoFormat()
    info.endpoints.add(id="http", port=8000, host=host, protocol="http")
    info.endpoints.add(id="bookie", port=port, host=host, protocol=protocol)
    return info.SerializeToString()


@asynccontextmanager
async def running_pool(store, rules=None, config=CALM):
    pool = BookiePool(store, NoTurn(), config, rules, order=random.Random(1))
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.run)
        yield pool
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("bookie_id", "address"),
    [
        ("h:3181", ("h", 3181)),
        ("10.0.0.1:1", ("10.0.0.1", 1)),
        ("[::1]:3181", ("::1", 3181)),
        ("bookie-1", None),
        ("h:0", None),
        ("h:65536", None),
        ("a:b:1", None),
        ("", None),
    ],
)
def test_an_id_may_be_an_address(bookie_id, address):
    assert address_of_id(bookie_id) == address


def test_a_registration_gives_the_address_or_leaves_it_to_the_id():
    assert address_of_registration("name", registration("h", 5)) == ("h", 5)
    assert address_of_registration("name", registration("h", 5, "other")) is None
    assert address_of_registration("h:1", registration("h", 5, "other")) == ("h", 1)
    assert address_of_registration("h:1", b"") == ("h", 1)
    assert address_of_registration("h:1", b"\xff\xff") == ("h", 1)
    assert address_of_registration("name", b"\xff\xff") is None


def test_a_registration_may_name_the_path_of_a_socket():
    at_path = registration("/run/b.sock", 0, "bookie-rpc+unix")
    assert address_of_registration("name", at_path) == ("/run/b.sock", 0)
    assert address_of_registration("name", registration("run", 0, "bookie-rpc+unix")) is None
    assert address_of_registration("name", registration("/run/b.sock", 0)) is None


async def test_bookies_come_and_go():
    store = MemoryStore()
    other = store.another_session()
    await store.put_ephemeral(available_path("a:1"), b"")
    await store.put(available_path("readonly"), b"", None)
    async with running_pool(store, PlacementRules(is_rack_aware=False)) as pool:
        assert pool.writable == ("a:1",)
        with pytest.raises(NotEnoughBookies):
            pool.choose(2, 2)
        await other.put_ephemeral(available_path("b:1"), b"")
        await other.put_ephemeral(available_path("named"), registration("127.0.0.1", 7))
        await other.put_ephemeral(available_path("nowhere"), b"")
        await other.put_ephemeral(read_only_path("c:1"), b"")
        await wait_until(lambda: pool.read_only)
        await wait_until(lambda: pool.writable == ("a:1", "b:1", "named"))
        assert set(pool.choose(3, 2)) == {"a:1", "b:1", "named"}
        assert sorted(pool.bookies) == ["a:1", "b:1", "c:1", "named"]
        assert pool.bookies.get("not:1") is not None
        assert pool.bookies.get("nowhere") is None
        assert pool.replace(("a:1", "b:1"), {0}, 2, frozenset()) == ("named", "b:1")
        with pytest.raises(NotEnoughBookies):
            pool.replace(("a:1", "b:1"), {0}, 2, {"named"})
        other.become(SessionState.LOST)
        await wait_until(lambda: pool.writable == ("a:1",) and not pool.read_only)


async def test_racks_are_those_of_the_store():
    store = MemoryStore()
    ids = [f"b{number}:1" for number in range(4)]
    for each in ids:
        await store.put_ephemeral(available_path(each), b"")
    racks = {each: {"rack": f"/r{number // 2}"} for number, each in enumerate(ids)}
    async with running_pool(store) as pool:
        await store.put("/bookies", json.dumps({"default": racks}).encode(), None)
        await wait_until(lambda: pool.racks.rack_of("b3:1") == "/r1")
        for _ in range(20):
            first, second = pool.choose(2, 2)
            assert pool.racks.rack_of(first) != pool.racks.rack_of(second)
        await store.put("/bookies", b"damaged", None)
        await trio.testing.wait_all_tasks_blocked()
        assert pool.racks.rack_of("b3:1") == "/r1"


async def test_a_store_out_of_reach_changes_nothing(autojump_clock):
    store = MemoryStore()
    await store.put_ephemeral(available_path("a:1"), b"")
    async with running_pool(store) as pool:
        children = store.children

        async def unreachable(path):
            await trio.lowlevel.checkpoint()
            raise MetadataUnavailable("away")

        store.children = unreachable
        await store.put_ephemeral(available_path("b:1"), b"")
        await trio.sleep(10)
        assert pool.writable == ("a:1",)
        store.children = children
        await trio.sleep(10)
        assert pool.writable == ("a:1", "b:1")


async def test_a_bookie_that_fails_often_is_avoided(autojump_clock):
    store = MemoryStore()
    for each in ("a:1", "b:1", "c:1"):
        await store.put_ephemeral(available_path(each), b"")
    async with running_pool(store, PlacementRules(is_rack_aware=False)) as pool:
        for _ in range(5):
            pool.on_bookie_failed("b:1", "for the test")
            await trio.sleep(1)
        assert pool.avoided == {"b:1"}
        assert all("b:1" not in pool.choose(2, 2) for _ in range(20))
        assert set(pool.choose(3, 2)) == {"a:1", "b:1", "c:1"}
        await trio.sleep(1800)
        assert pool.avoided == frozenset()


async def test_a_registered_name_is_spoken_to_where_it_is():
    store = MemoryStore()
    async with running_nodes(1) as (node,):
        await store.put_ephemeral(available_path("name"), registration("127.0.0.1", node.port))
        async with running_pool(store) as pool:
            sink = RecordingSink()
            add(pool.bookies["name"], 7, 0, 3, sink)
            await sink.wait_for(3)
            assert set(sink.statuses()) == {0}
            assert pool.bytes_in_flight == 0
            with pytest.raises(BookieError) as refused:
                await pool.bookies["127.0.0.1:1"].read_entry(7, 0)
            assert refused.value.status == Status.UNREACHABLE
