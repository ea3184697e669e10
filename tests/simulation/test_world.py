"""What a simulated process may do while it is paused, and what it knows afterwards."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio

from metadata.store import MetadataUnavailable, SessionState
from tests.simulation.coordination import SESSION_SECONDS, Service, SessionStore
from tests.simulation.network import Network
from tests.simulation.world import current_host, put_back, run


@pytest.fixture
def simulated(from_sources):
    """Runs a scenario that is given a network."""

    def simulate(scenario):
        async def with_network(world):
            await scenario(world, Network(world.chance("network"), world.events, put_back))

        run(with_network, 1)

    return simulate


def test_a_paused_process_does_nothing_and_its_clocks_go_on(simulated):
    async def scenario(_world, network):
        host, seen = network.host("a"), []

        async def process():
            current_host.set(host)
            while True:
                await trio.sleep(1)
                seen.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(process)
            await trio.sleep(1.5)
            host.pause()
            await trio.sleep(5)
            assert seen == [1.0]
            host.resume()
            await trio.sleep(0.5)
            assert seen == [1.0, 6.5]
            await trio.sleep(1)
            assert seen == [1.0, 6.5, 7.5]
            nursery.cancel_scope.cancel()

    simulated(scenario)


@asynccontextmanager
async def session_of_a_process(world, network):
    """The host of a process, and its session with a service that answers."""
    service, host = Service(network), network.host("a")

    async def process(store):
        current_host.set(host)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.run)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.run)
        store = await SessionStore(service, host, world.chance("a")).open()
        nursery.start_soon(process, store)
        yield host, store
        nursery.cancel_scope.cancel()


def test_a_process_that_was_paused_beyond_its_session_knows_that_at_once(simulated):
    async def scenario(world, network):
        async with session_of_a_process(world, network) as (host, store):
            await trio.sleep(3 * SESSION_SECONDS)
            assert store.session_state is SessionState.LIVE
            host.pause()
            await trio.sleep(SESSION_SECONDS + 0.1)
            host.resume()
            assert store.session_state is SessionState.LOST
            with pytest.raises(MetadataUnavailable):
                await store.put("/a", b"", None)
            await trio.sleep(3)
            assert store.session_state is SessionState.LIVE

    simulated(scenario)


@pytest.mark.parametrize("is_resumed_between", [False, True])
def test_a_clock_stands_still_only_as_long_as_its_machine(simulated, is_resumed_between):
    async def scenario(world, network):
        async with session_of_a_process(world, network) as (host, store):
            await trio.sleep(1)
            host.pause()
            paused_at = host.paused_at
            await trio.sleep(1)
            if is_resumed_between:
                host.resume()
                await trio.sleep(SESSION_SECONDS)
                host.pause()
            await trio.sleep(SESSION_SECONDS + 0.1)
            store.stand_still_since(paused_at)
            host.resume()
            expected = SessionState.LOST if is_resumed_between else SessionState.LIVE
            assert store.session_state is expected

    simulated(scenario)
