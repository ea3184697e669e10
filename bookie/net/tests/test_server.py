"""The TCP port of a bookie: what peers are answered, and what they cannot do."""

import json
import socket
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from struct import pack

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bookie.api import BookieError, Status
from bookie.ledger_storage import LOG_READS_PER_RUN_MAX
from bookie.net.read_only import ReadOnlyBookie
from bookie.net.requests import BATCH_PARTS_MAX
from bookie.net.server import BookieServer, BookieServerConfig
from bookie.tests.conftest import KEY, Machine, RecordingSink, entry, wait_until, whole
from protocol.bookkeeper import messages as m
from protocol.bookkeeper import v2, v3
from protocol.bookkeeper.availability import decode_availability
from protocol.bookkeeper.packets import PacketDecoder, ResponseDecoder
from runtime.testing.conditions import SECONDS_MAX

RECORDED = json.loads(Path(__file__).with_name("answers_of_bookkeeper.json").read_text())
DIFFERENT = {
    "v2 batch of LAST_ENTRY": "BookKeeper goes on with entry 0",
    "v2 of version 5": "BookKeeper answers EBADVERSION and leaves the connection open",
    "v3 bookie info": "another disk",
    "v3 list entries": "BookKeeper's DbLedgerStorage never answers",
    "v3 read lac of unknown ledger": "BookKeeper says ENOENTRY outside and ENOLEDGER inside",
    "v3 read without its body": "BookKeeper takes it for a read of entry 0 of ledger 0",
}


class Peer:
    """A connection that speaks in packets."""

    def __init__(self, stream, version):
        self.stream = stream
        self._decoder = ResponseDecoder(version)
        self._answers = []

    async def send(self, *requests):
        await self.stream.send_all(b"".join(requests))

    async def answer(self):
        with trio.fail_after(SECONDS_MAX):
            while not self._answers:
                data = await self.stream.receive_some()
                if not data:
                    return None
                self._answers += self._decoder.feed(bytes(data))
        return self._answers.pop(0)

    async def ask(self, *requests):
        await self.send(*requests)
        return await self.answer()


@asynccontextmanager
async def served_bookie(server_config=None, *, served=ReadOnlyBookie, **bookie_config):
    async with Machine().running(**bookie_config) as bookie:
        server = BookieServer(served(bookie), server_config or BookieServerConfig())
        await server.bind("127.0.0.1", 0)
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            yield bookie, server
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def peer_of(server, version=2):
    async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
        yield Peer(stream, version)


async def fill(bookie, ledger_id, count, payload=b"hello"):
    sink = RecordingSink()
    for entry_id in range(count):
        body = entry(ledger_id, entry_id, payload)
        bookie.add_entry(ledger_id, entry_id, body, KEY, 0, sink)
    bookie.kick()
    await sink.wait_for(count)


def read(ledger_id, entry_id, **more):
    return v2.encode_read_request(ledger_id, entry_id, **more)


def batch(ledger_id, first, count, size, flags=0, request_id=9):
    request = m.BatchReadRequest(ledger_id, first, request_id, count, size, flags, KEY)
    return v2.encode_batch_read_request(request)


async def raw_answers(port, sent, count, seconds_max=SECONDS_MAX):
    """Packets as hexadecimal text, then `closed` or `silent` where one is missing."""
    decoder = PacketDecoder()
    answers = []
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(sent)
        with trio.move_on_after(seconds_max):
            while len(answers) < count:
                try:
                    data = await stream.receive_some()
                except trio.BrokenResourceError:
                    data = b""
                if not data:
                    return [*answers, "closed"]
                answers += [packet.hex() for packet in decoder.feed(bytes(data))]
            return answers
    return [*answers, "silent"]


async def test_answers_are_those_of_apache_bookkeeper():
    """Byte for byte, with the entries that the recorded ledger had."""
    ledger_id = RECORDED["ledger_id"]
    async with served_bookie() as (bookie, server):
        sink = RecordingSink()
        for entry_id, body in enumerate(map(bytes.fromhex, RECORDED["entries"])):
            bookie.add_entry(ledger_id, entry_id, (body[:36], body[36:]), KEY, 0, sink)
        bookie.kick()
        await sink.wait_for(len(RECORDED["entries"]))
        different = {}
        for probe in RECORDED["probes"]:
            count = len(probe["answers"])
            seconds_max = 5 if "silent" in probe["answers"] else SECONDS_MAX
            sent = bytes.fromhex(probe["sent"])
            answers = await raw_answers(server.port, sent, count, seconds_max)
            if answers != probe["answers"]:
                different[probe["name"]] = answers
        assert set(different) == set(DIFFERENT), different


async def test_pipelined_reads_are_answered_in_order():
    async with served_bookie() as (bookie, server), peer_of(server) as peer:
        await fill(bookie, 1, 500)
        await bookie.checkpoint()
        await peer.send(*[read(1, entry_id) for entry_id in range(500)])
        for entry_id in range(500):
            answer = await peer.answer()
            assert answer == m.ReadResponse(m.OK, 1, entry_id, whole(1, entry_id))
        assert server.statistics.reads == server.statistics.entries == 500
        assert server.statistics.reads_pending == 0


async def test_reads_from_memory_do_not_wait_for_the_storage():
    config = BookieServerConfig(reads_at_once=1)
    async with served_bookie(config) as (bookie, server), peer_of(server) as peer:
        await fill(bookie, 1, 3)
        before = bookie.statistics().reads
        async with server.answers.storage:
            assert bookie.read_nowait(1, 2) == whole(1, 2)
            assert (await peer.ask(read(1, 0))).body == whole(1, 0)
        assert bookie.statistics().reads == before + 2
        assert bookie.read_nowait(1, 3) is bookie.read_nowait(2, 0) is None
        await bookie.delete_ledger(1)
        assert bookie.read_nowait(1, 2) is None
        assert (await peer.ask(read(1, 0))).status == m.NO_LEDGER


async def test_a_batch_stops_before_its_size_and_at_the_servers_own():
    config = BookieServerConfig(batch_read_bytes_max=1000)
    async with served_bookie(config) as (bookie, server), peer_of(server) as peer:
        await fill(bookie, 1, 100, b"x" * 64)  # 100 bytes each with the head
        for size, expected in ((36 + 3 * 104, 3), (36 + 3 * 104 - 1, 2), (10**6, 9), (0, 1)):
            answer = await peer.ask(batch(1, 10, 50, size))
            assert len(answer.bodies) == expected
            assert answer.bodies[0] == whole(1, 10, b"x" * 64)
        assert len((await peer.ask(batch(1, 98, 50, 900))).bodies) == 2


@given(count=st.integers(-3, 60), size=st.integers(-50, 5_000), first=st.integers(0, 45))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_batch_is_what_single_reads_give(count, size, first):
    """Within size and count, however entries are spread over caches and logs."""

    async def main():
        async with served_bookie() as (bookie, server), peer_of(server) as peer:
            await fill(bookie, 1, 30, b"y" * 30)
            await bookie.checkpoint()
            sink = RecordingSink()
            for entry_id in (30, 31, 32, 40):
                body = entry(1, entry_id, b"z" * entry_id)
                bookie.add_entry(1, entry_id, body, KEY, 0, sink)
            bookie.kick()
            await sink.wait_for(4)
            bodies, room = [], size - 36
            while count <= 0 or len(bodies) < count:
                single = await peer.ask(read(1, first + len(bodies)))
                room -= 4 + len(single.body)
                if single.status != m.OK or (bodies and room < 0):
                    break
                bodies.append(single.body)
            answer = await peer.ask(batch(1, first, count, size))
            assert list(answer.bodies) == bodies
            assert answer.status == (m.OK if bodies else m.NO_ENTRY)

    trio.run(main)


async def test_a_batch_of_entries_that_lie_apart_is_answered_before_all_are_read():
    """Of a ledger that has one entry in each flush. Each is a read of the log, and a client waits
    for an answer for 30 s at most."""
    entries_max = BATCH_PARTS_MAX * LOG_READS_PER_RUN_MAX
    count = entries_max + 5
    async with served_bookie() as (bookie, server), peer_of(server) as peer:
        sink = RecordingSink()
        for entry_id in range(count):
            for ledger_id in (1, 2):
                body = entry(ledger_id, entry_id)
                bookie.add_entry(ledger_id, entry_id, body, KEY, 0, sink)
            bookie.kick()
            await sink.wait_for(2 * entry_id + 2)
            await bookie.checkpoint()
        first = (await peer.ask(batch(1, 0, 10_000, 1 << 20))).bodies
        rest = (await peer.ask(batch(1, len(first), 10_000, 1 << 20))).bodies
        assert 1 <= len(first) <= entries_max
        assert [*first, *rest] == [whole(1, entry_id) for entry_id in range(count)]


@pytest.mark.parametrize("entry_id", [0, -1])
async def test_a_fencing_read_fences_nothing(entry_id):
    async with served_bookie() as (bookie, server), peer_of(server) as peer:
        await fill(bookie, 1, 3)
        answer = await peer.ask(read(1, entry_id, flags=m.FENCING, master_key=KEY))
        assert answer == m.ReadResponse(m.UNAUTHORIZED, 1, entry_id)
        answer = await peer.ask(batch(1, 0, 3, 1000, m.FENCING))
        assert answer == m.BatchReadResponse(m.UNAUTHORIZED, 1, 0, 9)
        async with peer_of(server, 3) as other:
            fencing = m.ReadRequest(1, 0, m.FENCING, KEY, 5)
            answer = await other.ask(v3.encode_request(fencing))
            assert (answer.status, answer.txn_id) == (m.UNAUTHORIZED, 5)
        sink = RecordingSink()
        bookie.add_entry(1, 3, entry(1, 3), KEY, 0, sink)
        await sink.wait_for(1)
        assert sink.statuses() == [Status.OK]
        assert server.statistics.requests_refused == 3


async def test_nothing_can_be_written():
    async with served_bookie() as (bookie, server), peer_of(server) as peer:
        await fill(bookie, 1, 1)
        body = whole(1, 1)
        head = v2.encode_add_request_head(len(body), KEY)
        assert await peer.ask(head, body) == m.AddResponse(m.READ_ONLY, 1, 1)
        new = whole(77, 0)
        assert await peer.ask(head, new) == m.AddResponse(m.READ_ONLY, 77, 0)
        async with peer_of(server, 3) as other:
            add = m.AddRequest(1, 1, body, KEY, 0, 5)
            assert (await other.ask(v3.encode_request(add))).status == m.READ_ONLY
            lac = m.WriteLacRequest(1, 0, b"x" * 20, KEY, 6)
            assert (await other.ask(v3.encode_request(lac))).status == m.READ_ONLY
            force = v3.encode_request(m.ForceLedgerRequest(1, 7))
            assert (await other.ask(force)).status == m.READ_ONLY
        assert bookie.ledger_ids() == [1]
        with pytest.raises(BookieError, match="NO_ENTRY"):
            await bookie.read_entry(1, 1)


async def test_version_3_tells_disk_entries_and_confirmed():
    async with served_bookie() as (bookie, server), peer_of(server, 3) as peer:
        await fill(bookie, 1, 5)
        info = await peer.ask(v3.encode_request(m.BookieInfoRequest(2, 1)))
        assert info.total_bytes is None
        assert info.free_bytes == bookie.free_and_total_bytes()[0]
        entries = await peer.ask(v3.encode_request(m.ListEntriesRequest(1, 2)))
        assert list(decode_availability(entries.availability)) == [0, 1, 2, 3, 4]
        explicit = pack(">qq", 1, 4) + b"dgst"
        await bookie.write_explicit_lac(1, explicit, KEY)
        lac = await peer.ask(v3.encode_request(m.ReadLacRequest(1, 3)))
        assert (lac.lac_body, lac.last_entry_body) == (explicit, whole(1, 4))
        answer = await peer.ask(v3.encode_request(m.ReadRequest(1, 0, txn_id=4)))
        assert answer.max_lac == 4


async def test_a_long_poll_is_answered_when_entries_are_confirmed_and_holds_nobody_up():
    async with served_bookie() as (bookie, server), peer_of(server, 3) as peer:
        await fill(bookie, 1, 2)  # entry 1 confirms entry 0
        poll = m.ReadRequest(1, -1, 0, b"", 1, 0, 20_000, True)
        plain = m.ReadRequest(1, 0, txn_id=2)
        await peer.send(v3.encode_request(poll), v3.encode_request(plain))
        assert (await peer.answer()).txn_id == 2
        sink = RecordingSink()
        bookie.add_entry(1, 2, entry(1, 2), KEY, 0, sink)
        await sink.wait_for(1)
        answer = await peer.answer()
        assert (answer.txn_id, answer.entry_id, answer.max_lac) == (1, 1, 1)
        assert answer.body == whole(1, 1)
        await wait_until(lambda: server.statistics.reads_pending == 0)


async def test_reads_beyond_the_bound_are_refused_and_all_are_answered():
    config = BookieServerConfig(reads_pending_max=5, reads_at_once=1)
    async with served_bookie(config) as (bookie, server), peer_of(server) as peer:
        await fill(bookie, 1, 1)
        async with server.answers.storage:  # the storage stands still
            await peer.send(*[batch(1, 0, 1, 100)] * 12, read(1, 0))
            await wait_until(lambda: server.statistics.reads_pending == 5)
            async with peer_of(server) as other:
                await other.send(read(1, 0))
                assert (await other.answer()).status == m.TOO_MANY_REQUESTS
                async with peer_of(server, 3) as third:
                    answer = await third.ask(v3.encode_request(m.ReadRequest(1, 0, txn_id=1)))
                    assert answer.status == m.TOO_MANY_REQUESTS
        statuses = [(await peer.answer()).status for _ in range(13)]
        assert statuses == [m.OK] * 5 + [m.TOO_MANY_REQUESTS] * 8
        assert (await peer.ask(read(1, 0))).status == m.OK
        assert server.statistics.reads_pending == 0


async def test_a_peer_that_leaves_gives_its_places_back():
    config = BookieServerConfig(reads_pending_max=5, reads_at_once=1)
    async with served_bookie(config) as (bookie, server):
        await fill(bookie, 1, 1)
        async with server.answers.storage:
            async with peer_of(server) as peer:
                await peer.send(*[batch(1, 0, 1, 100)] * 5)
                await wait_until(lambda: server.statistics.reads_pending == 5)
                peer.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
            await wait_until(lambda: server.statistics.connections == 0)
        assert server.statistics.reads_pending == 0


async def test_a_peer_that_takes_nothing_is_closed_and_its_memory_is_bounded():
    config = BookieServerConfig(send_timeout_seconds=0.3)
    async with served_bookie(config) as (bookie, server), peer_of(server) as slow:
        await fill(bookie, 1, 1, b"x" * 500_000)
        await fill(bookie, 2, 1)
        with trio.fail_after(SECONDS_MAX), suppress(trio.BrokenResourceError):
            while True:
                await slow.send(*[read(1, 0)] * 100)
        await wait_until(lambda: server.statistics.connections == 0)
        async with peer_of(server) as peer:
            assert (await peer.ask(read(2, 0))).status == m.OK


async def test_a_closed_peer_gets_what_it_asked_for_before():
    """It has said all it had to say, and still listens."""
    async with served_bookie() as (bookie, server), peer_of(server) as peer:
        await fill(bookie, 1, 3)
        await peer.send(read(1, 0), read(1, 1))
        await peer.stream.send_eof()
        assert (await peer.answer()).entry_id == 0
        assert (await peer.answer()).entry_id == 1
        assert await peer.answer() is None


async def test_damage_closes_one_connection_only_after_what_came_before():
    async with served_bookie() as (bookie, server), peer_of(server) as good:
        await fill(bookie, 1, 3)
        frames = await raw_answers(server.port, read(1, 0) + pack(">i", -5), 2)
        assert len(frames) == 2
        assert frames[1] == "closed"
        assert (await good.ask(read(1, 2))).status == m.OK


async def test_connections_over_the_bound_are_closed():
    async with served_bookie(BookieServerConfig(connections_max=1)) as (bookie, server):
        await fill(bookie, 1, 1)
        async with peer_of(server) as first:
            assert (await first.ask(read(1, 0))).status == m.OK
            async with peer_of(server) as second:
                assert await second.answer() is None
            assert (await first.ask(read(1, 0))).status == m.OK
        await wait_until(lambda: server.statistics.connections == 0)
        async with peer_of(server) as third:
            assert (await third.ask(read(1, 0))).status == m.OK
        assert server.statistics.connections_refused == 1


async def test_a_request_larger_than_a_frame_may_be_closes_the_connection():
    config = BookieServerConfig(frame_size_max=1000)
    async with served_bookie(config) as (_, server):
        assert await raw_answers(server.port, pack(">i", 1001) + bytes(10), 1) == ["closed"]


async def test_a_stop_closes_connections_and_leaves_the_bookie_usable():
    async with Machine().running() as bookie:
        await fill(bookie, 1, 1)
        server = BookieServer(bookie, BookieServerConfig())
        await server.bind("127.0.0.1", 0)
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            async with peer_of(server) as peer:
                assert (await peer.ask(read(1, 0))).status == m.OK
                nursery.cancel_scope.cancel()
        assert server.statistics.connections == 0
        assert await bookie.read_entry(1, 0) == whole(1, 0)


@given(st.binary(max_size=200), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_bytes_give_answers_or_a_closed_connection(data, framed):
    """And the server serves the next peer."""

    async def main():
        async with served_bookie() as (bookie, server):
            await fill(bookie, 1, 1)
            sent = pack(">i", len(data)) + data if framed else data
            async with peer_of(server) as wild:
                await wild.send(sent)
                await wild.stream.send_eof()
                with trio.fail_after(SECONDS_MAX):
                    try:
                        while await wild.stream.receive_some():
                            pass
                    except trio.BrokenResourceError:
                        pass
            async with peer_of(server) as peer:
                assert (await peer.ask(read(1, 0))).status == m.OK

    trio.run(main)
