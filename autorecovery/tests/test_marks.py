"""Marks while others change them."""

import pytest

from autorecovery.marks import Marks
from metadata.memory_store import MemoryStore
from metadata.store import MetadataUnavailable


class Contended:
    """A store in which others change a node after each look at it, for the first `times`."""

    def __init__(self, times):
        self._tree = MemoryStore()
        self._others = self._tree.another_session()
        self._times = times
        self.looks = 0

    async def get(self, path):
        found = await self._tree.get(path)
        self.looks += 1
        if self.looks <= self._times:
            await self._others.put(path, b"" if found is None else found[0], None)
        return found

    async def put(self, path, value, expected_version):
        return await self._tree.put(path, value, expected_version)


async def test_a_mark_is_added_though_others_change_it():
    store = Contended(times=20)
    marks = Marks(store, "here")
    await marks.add(7, ["b1:3181"], 0)
    mark = await marks.get(7)
    assert mark.replicas == ("b1:3181",)


async def test_a_mark_that_others_change_all_the_time_is_given_up():
    store = Contended(times=10**9)
    with pytest.raises(MetadataUnavailable, match="changed by others all the time"):
        await Marks(store, "here").add(7, ["b1:3181"], 0)
    assert store.looks < 1_000
