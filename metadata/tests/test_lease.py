"""One of several sessions holds a lease."""

import pytest

from metadata.lease import lease
from metadata.memory_store import MemoryStore
from metadata.store import VersionConflict

PATH = "/vela/something"


async def test_a_lease_is_held_by_one_and_given_back():
    store = MemoryStore()
    other = store.another_session()
    async with lease(store, PATH):
        with pytest.raises(VersionConflict):
            async with lease(other, PATH):
                pass
        assert await store.exists(PATH)
    assert not await store.exists(PATH)


async def test_a_lease_that_another_session_took_meanwhile_is_left_to_it():
    store = MemoryStore()
    other = store.another_session()
    async with lease(store, PATH):
        await store.delete(PATH)  # as the end of the session does
        async with lease(other, PATH):
            held = await other.get(PATH)
        await other.put_ephemeral(PATH, held[0] + b"another")
    assert await other.exists(PATH)


async def test_a_failure_of_the_work_gives_the_lease_back():
    store = MemoryStore()
    with pytest.raises(ZeroDivisionError):
        async with lease(store, PATH):
            raise ZeroDivisionError
    assert not await store.exists(PATH)
