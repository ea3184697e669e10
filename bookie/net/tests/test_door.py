"""Who is served by a bookie that has TLS, and what everybody else is answered."""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager
from dataclasses import replace
from struct import pack

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from bookie.net import door as doors
from bookie.net.door import REFUSED_MAX, STRANGER_FRAME_BYTES_MAX, TlsDoor
from bookie.net.server import BookieServer, BookieServerConfig
from bookie.net.tests.test_server import Peer, fill, read
from bookie.process.tls import NAMES
from bookie.tests.conftest import KEY, Machine, wait_until, whole
from protocol.bookkeeper import messages as m
from protocol.bookkeeper import v2, v3
from protocol.errors import RemoteProtocolError
from runtime.transport import StreamTransport
from security.testing.certificates import Authority
from security.tls import TlsPort
from security.tls_rules import TlsRules

START_TLS = v3.encode_request(m.StartTlsRequest(7))


class Certificates:
    def __init__(self, directory):
        self.authority = Authority("root")
        certificate, key = self.authority.issue("bookie", "127.0.0.1").write(directory, "bookie")
        self.rules = TlsRules(
            certificate_path=certificate,
            key_path=key,
            trusted_path=self.authority.write(directory),
            requires_client_certificate=True,
            names=NAMES,
        )
        self._own = self.authority.issue("broker").write(directory, "broker")
        self._foreign = Authority("other").issue("broker").write(directory, "foreign")

    def context(self, *, shows=True, is_foreign=False):
        context = ssl.create_default_context(cadata=self.authority.pem.decode())
        context.check_hostname = False
        if shows:
            context.load_cert_chain(*(self._foreign if is_foreign else self._own))
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def guarded(certificates, *, demands_tls=True, strangers_max=100, **bounds):
    rules = certificates.rules
    if not demands_tls:
        rules = replace(rules, trusted_path="", requires_client_certificate=False)
    async with Machine().running() as bookie:
        port = TlsPort(rules)
        door = TlsDoor(port, demands_tls=demands_tls, strangers_max=strangers_max)
        server = BookieServer(bookie, BookieServerConfig(**bounds), door=door)
        server.turns.kick_storage = bookie.kick
        bookie.set_turn(server.turns)
        await server.bind("127.0.0.1", 0)
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            yield bookie, server
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def connected(server, version=3):
    async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
        yield Peer(stream, version)


@asynccontextmanager
async def secured(server, context, version=2):
    async with connected(server) as peer:
        assert await peer.ask(START_TLS) == m.StartTlsResponse(m.OK, 7)
        stream = trio.SSLStream(peer.stream, context, server_hostname="127.0.0.1")
        await stream.do_handshake()
        yield Peer(stream, version)


def add(ledger_id, entry_id):
    body = whole(ledger_id, entry_id, b"hello")
    return v2.encode_add_request_head(len(body), KEY) + body


async def test_a_client_with_a_certificate_is_served_after_start_tls(certificates):
    async with (
        guarded(certificates) as (bookie, server),
        secured(server, certificates.context()) as peer,
    ):
        answer = await peer.ask(add(1, 0))
        assert answer.status == m.OK
        answer = await peer.ask(read(1, 0))
        assert (answer.status, answer.body) == (m.OK, whole(1, 0, b"hello"))
        assert (await peer.ask(read(1, 5))).status == m.NO_ENTRY
        assert server.statistics.connections == 1
        assert bookie.is_writable()


STRANGE = {
    "add v2": (2, add(1, 1)),
    "read v2": (2, read(1, 0)),
    "fence v2": (2, read(1, 0, flags=m.FENCING, master_key=KEY)),
    "batch v2": (2, v2.encode_batch_read_request(m.BatchReadRequest(1, 0, 9, 5, 9_000))),
    "add v3": (3, v3.encode_request(m.AddRequest(1, 1, whole(1, 1), KEY, 0, 5))),
    "read v3": (3, v3.encode_request(m.ReadRequest(1, 0, txn_id=5))),
    "fence v3": (3, v3.encode_request(m.ReadRequest(1, 0, m.FENCING, KEY, 5))),
    "lac v3": (3, v3.encode_request(m.ReadLacRequest(1, 5))),
    "write lac v3": (3, v3.encode_request(m.WriteLacRequest(1, 0, b"x", KEY, 5))),
    "force v3": (3, v3.encode_request(m.ForceLedgerRequest(1, 5))),
    "info v3": (3, v3.encode_request(m.BookieInfoRequest(3, 5))),
    "list v3": (3, v3.encode_request(m.ListEntriesRequest(1, 5))),
    "auth v3": (3, v3.encode_request(m.AuthRequest("any", b"", 5))),
}


@pytest.mark.parametrize("name", STRANGE)
async def test_a_stranger_is_refused_whatever_it_asks(certificates, name):
    version, request = STRANGE[name]
    async with guarded(certificates) as (bookie, server):
        await fill(bookie, 1, 1)
        with capture_logs() as logs:
            async with connected(server, version) as peer:
                for _ in range(2):
                    assert (await peer.ask(request)).status == m.UNAUTHORIZED
        assert len(logs) == 1  # a stranger does not fill the log
        assert server.statistics.connections == 0
        counted = {name: value for name, _kind, _text, value in server.series()}
        assert counted["vela_bookie_tcp_strangers_refused_total"] == 2
        assert await bookie.read_entry(1, 0) == whole(1, 0, b"hello")
        await fill(bookie, 1, 2)  # it is not fenced


async def test_a_client_without_a_certificate_or_with_a_foreign_one_is_refused(certificates):
    async with guarded(certificates) as (_bookie, server):
        for fields in ({"shows": False}, {"is_foreign": True}):
            with pytest.raises(trio.BrokenResourceError):
                async with secured(server, certificates.context(**fields)) as peer:
                    await peer.ask(read(1, 0))
        assert server.statistics.connections == 0


async def test_without_client_authentication_tls_is_offered_and_not_demanded(certificates):
    async with guarded(certificates, demands_tls=False) as (bookie, server):
        await fill(bookie, 1, 1)
        async with connected(server, 2) as peer:
            assert (await peer.ask(read(1, 0))).status == m.OK
        async with connected(server, 3) as peer:
            request = v3.encode_request(m.ReadRequest(1, 0, txn_id=5))
            for part in (request[:3], request[3:9], request[9:]):
                await peer.send(part)
                await trio.testing.wait_all_tasks_blocked()
            assert (await peer.answer()).status == m.OK
            refused = await peer.ask(START_TLS)  # only as the first request
            assert refused.status == m.BAD_REQUEST
        async with secured(server, certificates.context(shows=False)) as peer:
            assert (await peer.ask(read(1, 0))).status == m.OK
        async with connected(server, 2) as peer:
            await peer.stream.send_eof()
            assert await peer.answer() is None


@pytest.mark.parametrize("demands_tls", [False, True])
async def test_bytes_before_the_answer_to_start_tls_are_no_part_of_what_follows(
    certificates, demands_tls
):
    with capture_logs() as logs:
        async with (
            guarded(certificates, demands_tls=demands_tls) as (_bookie, server),
            connected(server) as peer,
        ):
            await peer.send(START_TLS + read(1, 0))
            assert await peer.answer() is None
    assert any("bytes between START_TLS" in line.get("reason", "") for line in logs)


async def test_what_a_stranger_can_cost_is_bounded(certificates):
    async with guarded(certificates, strangers_max=2) as (_bookie, server):
        async with connected(server, 2) as peer:
            for _ in range(REFUSED_MAX):
                assert (await peer.ask(read(1, 0))).status == m.UNAUTHORIZED
            assert await peer.answer() is None
        async with connected(server, 2) as peer:
            await peer.send(pack(">i", STRANGER_FRAME_BYTES_MAX + 1) + bytes(16))
            assert await peer.answer() is None
        async with connected(server) as first, connected(server) as second:
            await trio.testing.wait_all_tasks_blocked(0.01)
            async with secured(server, certificates.context()) as peer:
                assert await first.answer() is None  # it made room
                assert (await peer.ask(read(1, 0))).status == m.NO_LEDGER
                answer = await second.ask(v3.encode_request(m.ReadLacRequest(1, 5)))
                assert answer.status == m.UNAUTHORIZED
        await wait_until(lambda: server.statistics.connections == 0)


@given(data=st.binary(max_size=200), demands_tls=st.booleans())
@settings(max_examples=200)
def test_whatever_a_stranger_sends_first_is_passed_on_refused_or_ended(
    certificates, data, demands_tls
):
    async def run():
        left, right = trio.testing.memory_stream_pair()
        door = TlsDoor(TlsPort(certificates.rules), demands_tls=demands_tls)
        await left.send_all(data)
        await left.send_eof()
        try:
            entered = await door.let_in(StreamTransport(right, "peer"))
        except (RemoteProtocolError, trio.BrokenResourceError):
            return
        assert entered is None if demands_tls else entered.first == data

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_a_silent_stranger_is_closed_after_a_while(certificates, autojump_clock):
    del autojump_clock
    left, right = trio.testing.memory_stream_pair()
    door = TlsDoor(TlsPort(certificates.rules), demands_tls=True)
    before = trio.current_time()
    assert await door.let_in(StreamTransport(right, "peer")) is None
    assert trio.current_time() - before == doors.STRANGER_SECONDS_MAX
    await left.aclose()
