"""The health check stores a message and reads it, and says what hinders it."""

import pytest
import trio

from broker.cluster.health_check import HealthCheck
from broker.managed_ledger.tests.world import SettableClock, World
from protocol.errors import BrokerError, ServiceNotReady
from protocol.metadata import peek

NAMESPACE = "pulsar/b0:8080"


async def test_each_check_is_one_message_on_the_brokers_own_topic(autojump_clock):
    async with World().broker() as factory:
        check = HealthCheck(factory, SettableClock())
        await check.run(NAMESPACE)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(check.run, NAMESPACE)
        await check.run("pulsar/standalone/b0:8080")
        assert set(factory.ledgers) == {
            "pulsar/b0:8080/persistent/healthcheck",
            "pulsar/standalone/b0:8080/persistent/healthcheck",
        }
        ledger = factory.ledgers["pulsar/b0:8080/persistent/healthcheck"]
        entries = await ledger.read(ledger.first_position, 10, 1 << 20)
        assert [peek(entry.data).producer_name for entry in entries] == ["healthcheck"] * 4


async def test_a_bookie_that_does_not_answer_fails_the_check_in_time(autojump_clock):
    world = World()
    async with world.broker() as factory:
        check = HealthCheck(factory, SettableClock(), seconds_max=5.0)
        await check.run(NAMESPACE)
        world.bookie.is_holding = True
        begun = trio.current_time()
        with pytest.raises(ServiceNotReady, match="in 5 s"):
            await check.run(NAMESPACE)
        assert trio.current_time() - begun < 6
        world.bookie.is_holding = False
        world.bookie.release()
        await check.run(NAMESPACE)


async def test_a_topic_that_another_broker_took_over_is_opened_again(autojump_clock):
    world = World()
    async with world.broker() as first, world.broker() as second:
        await HealthCheck(first, SettableClock()).run(NAMESPACE)
        await HealthCheck(second, SettableClock()).run(NAMESPACE)
        check = HealthCheck(first, SettableClock())
        with pytest.raises(BrokerError):
            await check.run(NAMESPACE)
        await check.run(NAMESPACE)
