"""Recovery of a ledger whose bookies have entries that were copied to them.

BookKeeper's LedgerFragmentReplicator does not copy an entry as it is stored. It writes the head
again, with the last entry that is confirmed when it copies, which is mostly a later one.
"""

from __future__ import annotations

import pytest

from bookie.api import FLAG_RECOVERY_ADD
from ledgers.client import LedgerClient, LedgerClientConfig
from ledgers.tests.fake_bookie import FakeBookie
from ledgers.tests.lying_bookie import restated
from ledgers.tests.test_ledgers import Recorder, settle
from metadata.memory_store import MemoryStore
from protocol.bookkeeper.digests import master_key
from protocol.bookkeeper.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from protocol.bookkeeper.paths import ledger_path
from runtime.clock import SystemClock

COUNT = 10


class Taken:
    def on_add_replies(self, *reply):
        pass

    def on_replies_end(self):
        pass


@pytest.mark.parametrize("unconfirmed", [0, 3])
@pytest.mark.parametrize("copies", [1, 2])
async def test_a_ledger_whose_bookies_have_copied_entries_is_recovered(copies, unconfirmed):
    ids = [f"b{number}" for number in range(copies)]
    fresh = [f"c{number}" for number in range(copies)]
    bookies = {each: FakeBookie() for each in ids + fresh}
    store = MemoryStore()
    config = LedgerClientConfig(
        ensemble_size=copies, write_quorum_size=copies, ack_quorum_size=copies
    )
    client = LedgerClient(store, {each: bookies[each] for each in ids}, config, SystemClock())
    writer = await client.create_ledger({}, Recorder())
    writer.add_run([b"%d" % number for number in range(COUNT + unconfirmed)])
    await settle()

    # The first segment was copied from `ids` to `fresh`, which then took the next entries, too.
    password = (await client.metadata_of(writer.ledger_id)).password
    path, key = ledger_path(writer.ledger_id), master_key(password)
    for old, new in zip(ids, fresh, strict=True):
        for entry_id, body in bookies[old].ledgers[writer.ledger_id].items():
            copied = restated(body, confirmed=COUNT - 1) if entry_id < COUNT else body
            parts = (copied[:36], copied[36:])
            bookies[new].add_entry(
                writer.ledger_id, entry_id, parts, key, FLAG_RECOVERY_ADD, Taken()
            )
    await settle()
    stored, version = await store.get(path)
    moved = decode_ledger_metadata(stored).with_ensemble(0, tuple(fresh))
    moved = moved.with_ensemble(COUNT, tuple(fresh))
    await store.put(path, encode_ledger_metadata(moved), version)

    left = {each: bookies[each] for each in fresh}
    client = LedgerClient(store, left, config, SystemClock())
    closed = await client.recover(writer.ledger_id)
    assert closed.last_entry_id == COUNT + unconfirmed - 1
    reader = client.reader_of(writer.ledger_id, closed)
    found = []
    while len(found) <= closed.last_entry_id:
        found += await reader.read(len(found), closed.last_entry_id)
    assert found == [b"%d" % number for number in range(COUNT + unconfirmed)]
