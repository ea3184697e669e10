"""Bookies whose names are not their addresses."""

import pickle
import threading
from contextlib import contextmanager

import pytest
import trio

from metadata.memory_store import MemoryStore
from metadata.socket_server import SocketServer
from pipeline.bookies.addresses import BY_ID, BookieAddresses, parse_bookie_addresses
from pipeline.bookies.errors import BookiesNotReachable
from pipeline.bookies.layouts import ledger_layouts
from pipeline.bookies.reader import BookieReader
from pipeline.bookies.registrations import (
    RegistrationsNotRead,
    addresses_in,
    registered_addresses,
)
from pipeline.bookies.tests.fake_bookie import FakeBookie, payload_of
from protocol.bookkeeper import data_formats_pb2 as formats
from protocol.bookkeeper.paths import available_path, read_only_path

LEDGER_ID = 5
# What the standalone server of Pulsar 5.0.1 has at /ledgers/available/bk-0.
OF_PULSAR = bytes.fromhex(
    "32230a06626f6f6b6965109ae2011a093132372e302e302e31220a626f6f6b69652d727063"
)
TEXT = (
    "LedgerMetadata{formatVersion=3, ensembleSize=1, writeQuorumSize=1, ackQuorumSize=1, "
    "state=CLOSED, length=180, lastEntryId=8, digestType=CRC32C, password=OMITTED, "
    "ensembles={0=[bk-0]}, customMetadata={}}"
)
STATS = {"ledgers": [{"ledgerId": LEDGER_ID, "offloaded": False, "metadata": TEXT}]}


def registration(host, port):
    info = formats.BookieServiceInfoFormat()
    info.endpoints.add(id="bookie", host=host, port=port, protocol="bookie-rpc")
    return info.SerializeToString()


@pytest.fixture
def bookie():
    made = FakeBookie()
    made.fill(LEDGER_ID, 9)
    yield made
    made.close()


def test_a_bookie_with_a_name_is_read_at_its_known_address(bookie):
    host, _, port = bookie.bookie_id.rpartition(":")
    addresses = BookieAddresses({"bk-0": (host, int(port))})
    layout = ledger_layouts(STATS, addresses)[LEDGER_ID]
    with BookieReader(addresses=pickle.loads(pickle.dumps(addresses))) as reader:
        runs = list(reader.read(layout, 0, 8))
    assert [body for _, run in runs for body in run] == [payload_of(n, 20) for n in range(9)]


def test_a_bookie_with_a_name_that_nobody_knows_is_told_what_to_set():
    with pytest.raises(BookiesNotReachable, match=r"'bk-0'.*metadataStoreUrl or bookieAddresses"):
        ledger_layouts(STATS)


def test_what_is_known_comes_before_what_the_name_says():
    addresses = BookieAddresses({"old:3181": ("new", 3182)})
    assert addresses.of("old:3181") == ("new", 3182)
    assert addresses.of("other:3181") == BY_ID.of("other:3181") == ("other", 3181)


async def test_registrations_of_both_kinds_give_addresses():
    store = MemoryStore()
    await store.put_ephemeral(available_path("bk-0"), OF_PULSAR)
    await store.put_ephemeral(read_only_path("bk-1"), registration("::1", 5))
    await store.put_ephemeral(available_path("h:3181"), b"")
    await store.put_ephemeral(available_path("silent"), b"")
    info = formats.BookieServiceInfoFormat()
    info.endpoints.add(id="bookie", host="/run/b.sock", port=0, protocol="bookie-rpc+unix")
    await store.put_ephemeral(available_path("at-a-path"), info.SerializeToString())
    assert await addresses_in(store) == {
        "bk-0": ("127.0.0.1", 28954),
        "bk-1": ("::1", 5),
        "h:3181": ("h", 3181),
    }
    assert await addresses_in(MemoryStore()) == {}


@contextmanager
def served(path, records):
    """A store of another process, which is a thread here because the reader blocks."""
    is_up, tokens = threading.Event(), []

    async def serve():
        store = MemoryStore()
        for node, record in records.items():
            await store.put_ephemeral(node, record)
        async with trio.open_nursery() as nursery:
            await nursery.start(SocketServer(store).run, path)
            tokens.append((trio.lowlevel.current_trio_token(), nursery.cancel_scope))
            is_up.set()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    assert is_up.wait(60)
    yield
    token, scope = tokens[0]
    token.run_sync_soon(scope.cancel)
    thread.join(60)


def test_a_store_that_processes_share_is_read(tmp_path):
    path = str(tmp_path / "store.sock")
    with served(path, {available_path("bk-0"): OF_PULSAR}):
        assert registered_addresses(f"unix:{path}") == {"bk-0": ("127.0.0.1", 28954)}


@pytest.mark.parametrize("url", ["rocksdb:/var/lib/pulsar", "memory:local"])
def test_a_store_inside_a_server_is_not_opened(url):
    with pytest.raises(RegistrationsNotRead, match=r"cannot share.*bookieAddresses"):
        registered_addresses(url)


def test_addresses_are_given_in_one_line():
    given = "bk-0=127.0.0.1:3181, bk-1=[::1]:3182,"
    assert parse_bookie_addresses(given) == {"bk-0": ("127.0.0.1", 3181), "bk-1": ("::1", 3182)}
    assert parse_bookie_addresses("") == {}
    for wrong in ("bk-0", "bk-0=", "=h:1", "bk-0=h", "bk-0=h:0"):
        with pytest.raises(ValueError, match="id=host:port"):
            parse_bookie_addresses(wrong)
