"""Ledgers with isolation groups of their own: at their making, after a failure, in a recovery."""

from __future__ import annotations

import json

import pytest
import trio

from bookie.api import Status
from ledgers.awaited_ledger import AwaitedLedger
from ledgers.client import LedgerClient, LedgerClientConfig
from ledgers.cluster import FixedCluster
from ledgers.errors import NotEnoughBookies
from ledgers.placement import (
    GROUPS_KEY,
    BookieGroups,
    PlacementRules,
    RackMap,
    encode_groups,
    groups_of,
    parse_groups,
)
from ledgers.replication import Replication
from ledgers.tests.fake_bookie import FakeBookie
from metadata.memory_store import MemoryStore

G1 = BookieGroups(frozenset({"g1"}))
RACKS = RackMap({}, {"g1": frozenset("abc"), "g2": frozenset("de")})


class Clock:
    def now(self):
        return trio.current_time()

    def wall_ms(self):
        return 1_700_000_000_000


class World:
    def __init__(self, nursery):
        self.bookies = {name: FakeBookie() for name in "abcde"}
        rules = PlacementRules(is_rack_aware=False)
        cluster = FixedCluster(self.bookies, nursery.start_soon, rules, RACKS)
        self.client = LedgerClient(
            MemoryStore(), self.bookies, LedgerClientConfig(), Clock(), cluster
        )

    async def ledger(self, replication):
        maker = _With(self.client, replication)
        return await AwaitedLedger.create(maker, {"k": b"v"}, "ledger")


class _With:
    def __init__(self, client, replication):
        self.client = client
        self.replication = replication

    async def create_ledger(self, custom_metadata, listener):
        return await self.client.create_ledger(custom_metadata, listener, self.replication)


def test_pulsars_record_is_read_and_written():
    pulsars = (
        b'{\n  "policyClass" : "org.apache.pulsar.bookie.rackawareness.'
        b'IsolatedBookieEnsemblePlacementPolicy",\n  "properties" : {\n    '
        b'"isolationBookieGroups" : "g1,g3",\n    "secondaryIsolationBookieGroups" : "g2"\n  }\n}'
    )
    groups = BookieGroups(frozenset({"g1", "g3"}), frozenset({"g2"}))
    assert groups_of({GROUPS_KEY: pulsars}) == groups
    assert json.loads(encode_groups(groups)) == json.loads(pulsars)
    assert groups_of({}) is None
    for other in (b"", b"[]", b'{"properties":[]}', b'{"properties":{}}', b"\xff"):
        assert groups_of({GROUPS_KEY: other}) is None
    assert parse_groups(" a , b,", None) == BookieGroups(frozenset({"a", "b"}))
    assert parse_groups("", "b") is None


async def test_every_bookie_of_a_ledger_is_of_its_groups(autojump_clock):
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        for _attempt in range(10):
            ledger = await world.ledger(Replication(3, 2, 2, G1))
            assert set(ledger.writer.metadata.last_ensemble[1]) == set("abc")
        with pytest.raises(NotEnoughBookies):
            await world.ledger(Replication(4, 2, 2, G1))
        with_secondary = BookieGroups(frozenset({"g2"}), frozenset({"g1"}))
        ledger = await world.ledger(Replication(3, 2, 2, with_secondary))
        assert set("de") < set(ledger.writer.metadata.last_ensemble[1])
        assert ledger.writer.metadata.custom_metadata["k"] == b"v"


async def test_a_failed_bookie_is_replaced_by_one_of_the_same_groups(autojump_clock):
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        for _attempt in range(5):
            ledger = await world.ledger(Replication(2, 2, 2, G1))
            failed = ledger.writer.metadata.last_ensemble[1][0]
            world.bookies[failed].add_status = lambda ledger_id, entry_id: Status.IO_ERROR
            await ledger.append([b"entry"])
            members = set(ledger.writer.metadata.last_ensemble[1])
            assert members == set("abc") - {failed}
            world.bookies[failed].add_status = lambda ledger_id, entry_id: Status.OK


async def test_a_recovery_takes_other_bookies_of_the_same_groups(autojump_clock):
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        ledger = await world.ledger(Replication(2, 2, 1, G1))
        one, other = ledger.writer.metadata.last_ensemble[1]
        world.bookies[other].is_holding = True
        await ledger.append([b"entry"])
        world.bookies[other].add_status = lambda ledger_id, entry_id: Status.IO_ERROR
        world.bookies[other].is_holding = False
        metadata = await world.client.recover(ledger.ledger_id)
        assert metadata.last_entry_id == 0
        assert set(metadata.ensembles[0]) == set("abc") - {other}
        assert one in metadata.ensembles[0]
