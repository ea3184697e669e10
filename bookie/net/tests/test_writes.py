"""The TCP port of a bookie of its own: adds, fences, forces, explicit last-add-confirmed."""

import trio

from bookie.api import FLAG_RECOVERY_ADD
from bookie.net.server import BookieServerConfig
from bookie.net.tests.test_server import Peer, fill, peer_of, read, served_bookie
from bookie.tests.conftest import KEY, entry, wait_until, whole
from protocol.bookkeeper import messages as m
from protocol.bookkeeper import v2, v3

OTHER_KEY = b"another key, 20 byte"


def itself(bookie):
    return bookie


def add(ledger_id, entry_id, payload=b"hello", flags=0, key=KEY):
    body = whole(ledger_id, entry_id, payload)
    return v2.encode_add_request_head(len(body), key, flags) + body


def add_v3(ledger_id, entry_id, txn_id, body=None, key=KEY, flags=0):
    body = whole(ledger_id, entry_id) if body is None else body
    return v3.encode_request(m.AddRequest(ledger_id, entry_id, body, key, flags, txn_id))


def fenced_read(ledger_id, entry_id, key=KEY):
    return v2.encode_read_request(ledger_id, entry_id, m.FENCING, key)


async def answers(peer, count):
    return [await peer.answer() for _ in range(count)]


async def test_what_was_added_is_answered_and_can_be_read():
    async with served_bookie(served=itself) as (_, server), peer_of(server) as peer:
        await peer.send(*[add(7, entry_id) for entry_id in range(500)])
        assert await answers(peer, 500) == [m.AddResponse(m.OK, 7, number) for number in range(500)]
        assert await peer.ask(read(7, 499)) == m.ReadResponse(m.OK, 7, 499, whole(7, 499))
        assert server.statistics.adds == 500


async def test_what_was_answered_is_there_after_kill_9():
    async with served_bookie(served=itself) as (bookie, server), peer_of(server) as peer:
        await peer.send(add(7, 0), add(8, 0))
        await answers(peer, 2)
        assert bookie.statistics().journal_entries >= 4  # two keys, two entries


async def test_a_version_3_add_is_answered_with_its_transaction():
    async with served_bookie(served=itself) as (_, server), peer_of(server, 3) as peer:
        await peer.send(*[add_v3(7, entry_id, 1000 + entry_id) for entry_id in range(3)])
        assert await answers(peer, 3) == [
            m.AddResponse(m.OK, 7, entry_id, 1000 + entry_id) for entry_id in range(3)
        ]


async def test_two_version_3_adds_of_one_entry_are_both_answered():
    async with served_bookie(served=itself) as (_, server), peer_of(server, 3) as peer:
        await peer.send(add_v3(7, 0, 1), add_v3(7, 0, 2))
        assert await answers(peer, 2) == [m.AddResponse(m.OK, 7, 0, txn_id) for txn_id in (1, 2)]


async def test_a_body_with_other_ids_than_the_request_is_refused():
    async with served_bookie(served=itself) as (bookie, server), peer_of(server, 3) as peer:
        for body in (whole(7, 1), b"", b"short"):
            answer = await peer.ask(add_v3(7, 0, 5, body))
            assert answer == m.AddResponse(m.BAD_REQUEST, 7, 0, 5)
        assert bookie.ledger_ids() == []


async def test_a_fence_stops_plain_adds_and_lets_recovery_adds_pass():
    async with served_bookie(served=itself) as (_, server), peer_of(server) as peer:
        await peer.ask(add(7, 0))
        assert await peer.ask(fenced_read(7, -1)) == m.ReadResponse(m.OK, 7, -1, whole(7, 0))
        assert await peer.ask(add(7, 1)) == m.AddResponse(m.FENCED, 7, 1)
        recovery = add(7, 1, flags=FLAG_RECOVERY_ADD)
        assert await peer.ask(recovery) == m.AddResponse(m.OK, 7, 1)


async def test_a_fence_of_an_unknown_ledger_holds():
    async with served_bookie(served=itself) as (_, server), peer_of(server) as peer:
        assert (await peer.ask(fenced_read(7, -1))).status == m.NO_ENTRY
        assert await peer.ask(add(7, 0)) == m.AddResponse(m.FENCED, 7, 0)


async def test_a_fence_without_the_ledgers_key_is_refused():
    async with served_bookie(served=itself) as (_, server), peer_of(server) as peer:
        await peer.ask(add(7, 0))
        assert (await peer.ask(fenced_read(7, 0, OTHER_KEY))).status == m.UNAUTHORIZED
        assert await peer.ask(add(7, 1)) == m.AddResponse(m.OK, 7, 1)


async def test_an_add_with_another_key_is_refused():
    async with served_bookie(served=itself) as (_, server), peer_of(server) as peer:
        await peer.send(add(7, 0), add(7, 1, key=OTHER_KEY), add(7, 2))
        assert await answers(peer, 3) == [
            m.AddResponse(m.OK, 7, 0),
            m.AddResponse(m.UNAUTHORIZED, 7, 1),
            m.AddResponse(m.OK, 7, 2),
        ]
        assert (await peer.ask(read(7, 1))).status == m.NO_ENTRY


async def test_entries_of_many_ledgers_in_any_order_are_all_stored():
    async with served_bookie(served=itself) as (_, server), peer_of(server) as peer:
        wanted = [(ledger_id, entry_id) for entry_id in (3, 0, 2, 1) for ledger_id in range(20)]
        await peer.send(*[add(*ids) for ids in wanted])
        got = {(answer.ledger_id, answer.entry_id) for answer in await answers(peer, len(wanted))}
        assert got == set(wanted)
        for ids in wanted:
            assert (await peer.ask(read(*ids))).body == whole(*ids)


async def test_an_explicit_last_add_confirmed_is_kept_and_given():
    body = bytes.fromhex("0000000000000001000000000000000762842849")
    async with served_bookie(served=itself) as (bookie, server), peer_of(server, 3) as peer:
        await fill(bookie, 1, 2)
        answer = await peer.ask(v3.encode_request(m.WriteLacRequest(1, 7, body, KEY, 9)))
        assert answer == m.WriteLacResponse(m.OK, 1, 9)
        answer = await peer.ask(v3.encode_request(m.ReadLacRequest(1, 10)))
        assert answer == m.ReadLacResponse(m.OK, 1, 10, body, whole(1, 1))
        refused = await peer.ask(v3.encode_request(m.WriteLacRequest(1, 7, body, OTHER_KEY, 11)))
        assert refused.status == m.UNAUTHORIZED
        refused = await peer.ask(v3.encode_request(m.WriteLacRequest(1, 7, body * 99, KEY, 12)))
        assert refused.status == m.BAD_REQUEST


async def test_a_force_is_answered_for_a_ledger_that_is_here():
    async with served_bookie(served=itself) as (bookie, server), peer_of(server, 3) as peer:
        await fill(bookie, 1, 1)
        answer = await peer.ask(v3.encode_request(m.ForceLedgerRequest(1, 5)))
        assert answer == m.ForceLedgerResponse(m.OK, 1, 5)
        answer = await peer.ask(v3.encode_request(m.ForceLedgerRequest(2, 6)))
        assert answer == m.ForceLedgerResponse(m.NO_LEDGER, 2, 6)


async def test_a_peer_that_has_closed_its_side_gets_the_answers_to_its_adds():
    async with served_bookie(served=itself) as (_, server):
        stream = await trio.open_tcp_stream("127.0.0.1", server.port)
        async with stream:
            peer = Peer(stream, 2)
            await peer.send(*[add(7, entry_id, b"x" * 1000) for entry_id in range(300)])
            await stream.send_eof()
            assert len(await answers(peer, 300)) == 300
            assert await peer.answer() is None


class HeldCalls:
    """Keeps back what journal threads have called in the event loop."""

    def __init__(self):
        self._token = trio.lowlevel.current_trio_token()
        self._held = []
        self._is_holding = True

    def on_running(self, call):
        pass

    def run_sync_soon(self, call, *arguments):
        self._token.run_sync_soon(self._take, call, arguments)

    def _take(self, call, arguments):
        if self._is_holding:
            self._held.append((call, arguments))
        else:
            call(*arguments)

    def release(self):
        self._is_holding = False
        for call, arguments in self._held:
            call(*arguments)


async def test_adds_that_wait_for_their_answers_are_bounded_in_bytes():
    config = BookieServerConfig(add_bytes_pending_max=100_000)
    async with served_bookie(config, served=itself) as (bookie, server), peer_of(server) as peer:
        answers_of_journal = HeldCalls()
        bookie.use_readers(answers_of_journal)
        async with trio.open_nursery() as nursery:
            packets = [add(7, entry_id, b"x" * 10_000) for entry_id in range(1_000)]
            nursery.start_soon(peer.send, *packets)
            await wait_until(lambda: server.add_bytes._bytes > 100_000)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert server.add_bytes._bytes < 100_000 + 2 * 256 * 1024
            answers_of_journal.release()
            assert len(await answers(peer, 1_000)) == 1_000
        assert server.add_bytes._bytes == 0


async def test_a_lost_connection_gives_its_pending_bytes_back():
    async with served_bookie(served=itself) as (_, server):
        async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
            await stream.send_all(b"".join(add(7, number, b"x" * 9_000) for number in range(100)))
        await wait_until(lambda: not (server.statistics.connections or server.add_bytes._bytes))


async def test_an_add_does_not_wait_for_the_reads_before_it():
    config = BookieServerConfig(reads_at_once=1)
    async with served_bookie(config, served=itself) as (bookie, server), peer_of(server) as peer:
        await fill(bookie, 1, 3)
        await bookie.checkpoint()
        async with server.answers.storage:
            await peer.send(read(1, 0), add(7, 0))
            assert await peer.answer() == m.AddResponse(m.OK, 7, 0)
        assert (await peer.answer()).body == whole(1, 0)


async def test_a_full_disk_refuses_adds_and_serves_reads(monkeypatch):
    async with served_bookie(served=itself) as (bookie, server), peer_of(server) as peer:
        await peer.ask(add(7, 0))
        for storage in bookie._storages:
            storage.writable = False
            storage.headroom = False
        bookie._adds.writable_changed()
        assert await peer.ask(add(7, 1)) == m.AddResponse(m.READ_ONLY, 7, 1)
        assert (await peer.ask(read(7, 0))).body == whole(7, 0)


def test_the_entry_of_these_tests_is_what_a_client_would_send():
    head, payload = entry(7, 0)
    assert head + payload == whole(7, 0)
