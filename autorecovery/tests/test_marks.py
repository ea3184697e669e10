"""Marks while others change them."""

import pytest

from autorecovery import records
from autorecovery.marks import Marks
from metadata.memory_store import MemoryStore
from metadata.store import MetadataUnavailable
from protocol.bookkeeper.paths import underreplicated_path


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


async def damage_nodes(store):
    return await store.children(records.DAMAGE_ROOT)


async def test_a_mark_that_is_gone_already_leaves_no_word_of_damage():
    """Another program's worker, which knows nothing of that word, deleted it."""
    store = MemoryStore()
    marks = Marks(store, "here")
    await marks.add_damaged(7, ["b1:3181"], 0)
    mark = await marks.get(7)
    await store.delete(underreplicated_path(7))
    assert await marks.remove(mark)
    assert await damage_nodes(store) == []


async def test_a_word_of_damage_that_names_nobody_goes_with_its_mark():
    store = MemoryStore()
    marks = Marks(store, "here")
    await marks.add(7, ["b1:3181"], 0)
    await store.put(records.damage_path(7), b"", None)
    assert await marks.remove(await marks.get(7))
    assert await damage_nodes(store) == []


async def test_a_word_of_damage_that_came_later_stays():
    store = MemoryStore()
    marks = Marks(store, "here")
    await marks.add(7, ["b1:3181"], 0)
    mark = await marks.get(7)
    await store.put(records.damage_path(7), records.encode_mark(("b2:3181",), 0), None)
    assert await marks.remove(mark)
    assert await damage_nodes(store) == ["7"]


async def test_a_word_of_damage_without_a_mark_gets_one():
    """Who marked the ledger, or took the mark away, may have ended between two writes."""
    store = MemoryStore()
    marks = Marks(store, "here")
    await marks.add_damaged(7, ["b1:3181"], 0)
    await marks.add_damaged(8, ["b1:3181"], 0)
    before = await marks.get(8)
    await store.delete(underreplicated_path(7))
    await store.put(f"{records.DAMAGE_ROOT}/no-number", b"", None)
    assert await marks.mark_damaged_again(0) == 1
    assert (await marks.get(7)).damaged == {"b1:3181"}
    assert await marks.get(8) == before
