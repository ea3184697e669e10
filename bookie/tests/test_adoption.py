"""A bookie that had no metadata service, or was moved with it, becomes one of a cluster."""

from dataclasses import replace

import pytest

from bookie.bookie import Bookie
from bookie.cookie import adopt
from bookie.errors import BookieRefusesToStart
from bookie.tests.conftest import SMALL, Machine
from bookie.tests.test_recovery import Cookies


async def opened(machine, config=SMALL, store=None):
    bookie = await Bookie.open(
        config, machine.disk, open_index=machine.indexes.open, cookie_store=store
    )
    await bookie.aclose()


async def test_an_embedded_bookie_becomes_one_of_a_cluster_and_back():
    machine, store = Machine(), Cookies()
    await opened(machine)
    with pytest.raises(BookieRefusesToStart, match="instance id"):
        await opened(machine, store=store)
    for _ in range(2):
        await adopt(SMALL, machine.disk, store)
        await opened(machine, store=store)
    assert b"cluster-1" in store.stored["vela-embedded"]
    await opened(machine)
    await adopt(SMALL, machine.disk, store)
    await opened(machine, store=store)


async def test_an_interrupted_adoption_is_completed_by_the_next():
    machine, store = Machine(), Cookies()
    await opened(machine)

    class Gone(Exception):
        pass

    async def fail(bookie_id, cookie):
        raise Gone

    store.write_cookie, write_cookie = fail, store.write_cookie
    with pytest.raises(Gone):
        await adopt(SMALL, machine.disk, store)
    store.write_cookie = write_cookie
    await adopt(SMALL, machine.disk, store)
    await opened(machine, store=store)


async def test_a_lost_bookie_is_not_made_again():
    store = Cookies()
    machine = Machine()
    await opened(machine, store=store)
    wiped = Machine()
    await adopt(SMALL, wiped.disk, store)
    with pytest.raises(BookieRefusesToStart, match="decommissioned"):
        await opened(wiped, store=store)


async def test_a_bookie_of_another_name_is_not_adopted():
    machine = Machine()
    await opened(machine)
    with pytest.raises(BookieRefusesToStart, match="another bookie"):
        await adopt(replace(SMALL, bookieId="bookie-2"), machine.disk, Cookies())
