"""Reads while the network holds a bookie back: they go past it, and its connection is given up."""

from __future__ import annotations

import pytest
import trio

from bookie.adds import NoTurn
from bookie.api import LedgerProgress
from bookie.net.server import BookieServer, BookieServerConfig
from ledgers.client import LedgerClient, LedgerClientConfig
from ledgers.remote.channel import TICKS_PER_TIMEOUT
from ledgers.remote.config import RemoteConfig
from ledgers.remote.remote_bookie import AddEncoder, RemoteBookie
from ledgers.speculation import SpeculationRules
from ledgers.tests.fake_bookie import FakeBookie
from metadata.memory_store import MemoryStore
from runtime.transport import StreamTransports
from tests.simulation.network import Listener, Network
from tests.simulation.world import SimClock, current_host, put_back, run

PORT = 3181
BOOKIES = ("one", "two", "three")
READ_TIMEOUT_S = 5.0
TICK_S = READ_TIMEOUT_S / TICKS_PER_TIMEOUT
"""A read may fail by so much early."""
REMOTE = RemoteConfig(channels=2, add_timeout_s=5.0, read_timeout_s=READ_TIMEOUT_S)
PATIENT, SPECULATING = SpeculationRules(), SpeculationRules.every(0.5)


class ServedBookie(FakeBookie):
    """Has nothing in memory. Nobody waits for more of its ledgers."""

    def read_nowait(self, ledger_id, entry_id):
        return None

    def progress_of(self, ledger_id):
        return LedgerProgress(-1, b"", is_over=True)


class Recorder:
    def __init__(self):
        self.all_here = trio.Event()

    def on_entries_confirmed(self, writer, entry_id, length):
        if entry_id == 9:
            self.all_here.set()


class World:
    def __init__(self, network, reader, first, failures):
        self.network = network
        self.reader = reader
        self.first = first
        """The bookie that is asked first."""
        self.failures = failures
        """(bookie, time) of what its client complained of."""

    async def read(self):
        """The seconds that a read takes."""
        start = trio.current_time()
        assert await self.reader.read(0, 9) == [b"%d" % number for number in range(10)]
        return trio.current_time() - start


async def served(network, nursery):
    """The connector of a client, and three bookies that serve."""
    for name in BOOKIES:
        server = BookieServer(ServedBookie(), BookieServerConfig(), StreamTransports())
        server.listen_on([Listener(network.host(name), PORT)])
        await nursery.start(server.run)
    current_host.set(network.host("client"))
    return network.host("client").connector()


async def world_of(network, nursery, rules):
    connect = await served(network, nursery)
    failures = []
    bookies = {}
    for name in BOOKIES:

        def failed(reason, name=name):
            failures.append((name, trio.current_time(), reason))

        bookies[name] = remote = RemoteBookie(
            name, lambda name=name: (name, PORT), REMOTE, NoTurn(), AddEncoder(), failed, connect
        )
        await nursery.start(remote.run)
    config = LedgerClientConfig(
        ensemble_size=3, write_quorum_size=3, ack_quorum_size=3, speculation=rules
    )
    client = LedgerClient(MemoryStore(), bookies, config, SimClock())
    recorder = Recorder()
    writer = await client.create_ledger({}, recorder)
    writer.add_run([b"%d" % number for number in range(10)])
    await recorder.all_here.wait()
    await writer.close()
    reader = client.reader_of(writer.ledger_id, writer.metadata)
    first = writer.metadata.last_ensemble[1][writer.ledger_id % 3]
    world = World(network, reader, first, failures)
    await world.read()  # connections for reads are open
    return world


@pytest.fixture
def simulated(from_sources):
    """Runs a scenario with a world that has these rules, from a few seeds."""

    def simulate(scenario, rules):
        async def with_world(simulation):
            network = Network(simulation.chance("network"), simulation.events, put_back)
            async with trio.open_nursery() as nursery:
                await scenario(await world_of(network, nursery, rules))
                nursery.cancel_scope.cancel()

        for seed in range(5):
            run(with_world, seed)

    return simulate


def test_a_read_goes_past_a_bookie_that_is_cut_off(simulated):
    async def scenario(world):
        heal = world.network.cut(world.first, "client")
        assert 0.5 <= await world.read() < 0.9
        heal()
        await trio.sleep(0.5)
        assert await world.read() < 0.5
        assert world.failures == []

    simulated(scenario, SPECULATING)


@pytest.mark.slow
def test_without_speculation_it_waits_for_the_timeout(simulated):
    async def scenario(world):
        world.network.cut(world.first, "client")
        assert READ_TIMEOUT_S - TICK_S <= await world.read() < READ_TIMEOUT_S + 1

    simulated(scenario, PATIENT)


def test_a_bookie_whose_reads_are_all_given_up_is_known_to_be_silent(simulated):
    """Nobody waits for its answers until the read timeout. Its connection ends then all the same,
    and reads go to the others at once."""

    async def scenario(world):
        world.network.cut("client", world.first)
        start = trio.current_time()
        while not world.failures:
            assert await world.read() < 0.9
            assert trio.current_time() - start < 2 * READ_TIMEOUT_S
        assert [name for name, _at, _reason in world.failures] == [world.first]
        assert world.failures[0][1] - start >= READ_TIMEOUT_S - TICK_S
        assert await world.read() < 0.5

    simulated(scenario, SPECULATING)
