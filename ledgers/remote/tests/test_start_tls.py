"""The ledger client with bookies that demand TLS, and with peers that break its beginning."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from bookie.adds import NoTurn
from bookie.api import FLAG_FENCING, BookieError, Status
from bookie.net.tests.test_door import Certificates, guarded
from bookie.net.tests.test_server import fill, served_bookie
from bookie.tests.conftest import KEY, RecordingSink, entry, whole
from ledgers.remote.network import SocketConnector
from ledgers.remote.remote_bookie import AddEncoder, RemoteBookie
from ledgers.remote.start_tls import StartTls
from ledgers.remote.tests.test_remote_bookie import CALM
from protocol.bookkeeper import messages as m
from protocol.bookkeeper import v3
from protocol.errors import RemoteProtocolError
from runtime.testing.conditions import SECONDS_MAX
from security.testing.certificates import Authority
from security.tls_client import TlsClientContexts
from security.tls_rules import TlsClientRules


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def rules(certificates, tmp_path):
    certificate, key = certificates.authority.issue("broker").write(tmp_path, "broker")
    trusted = certificates.authority.write(tmp_path)
    return TlsClientRules(
        trusted_path=trusted, certificate_path=certificate, key_path=key, verifies_host_name=True
    )


@asynccontextmanager
async def remote(port, rules, failures, host="127.0.0.1"):
    tcp = SocketConnector()
    connect = StartTls(TlsClientContexts(rules), tcp)
    bookie = RemoteBookie(
        "b", lambda: (host, port), CALM, NoTurn(), AddEncoder(), failures.append, connect
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tcp.run)
        await nursery.start(bookie.run)
        yield bookie
        nursery.cancel_scope.cancel()


async def test_adds_reads_and_fences_go_over_tls(certificates, rules):
    payload = bytes(300_000)
    async with (
        guarded(certificates) as (bookie, server),
        remote(server.port, rules, []) as client,
    ):
        sink = RecordingSink()
        bodies = [entry(1, number, payload) for number in range(20)]
        client.add_entries(1, 0, bodies, KEY, 0, sink)
        client.kick()
        await sink.wait_for(20)
        assert {status for status, _, _ in sink.replies} == {Status.OK}
        found = await client.read_batch(1, 0, 20, 5_000_000)
        assert found[0] == whole(1, 0, payload)
        assert len(found) > 10
        await client.read_entry(1, 19, flags=FLAG_FENCING, master_key=KEY)
        client.add_entries(1, 20, [entry(1, 20)], KEY, 0, sink)
        client.kick()
        await sink.wait_for(21)
        assert sink.replies[-1] == (Status.FENCED, 1, 20)
        assert bookie.is_writable()


async def test_a_bookie_that_is_not_trusted_or_has_no_tls_is_not_used(
    certificates, rules, tmp_path
):
    stranger = Authority("stranger")
    certificate, key = stranger.issue("broker").write(tmp_path, "stranger")
    foreign = rules.showing(certificate, key, rules.names)
    untrusting = TlsClientRules(trusted_path=stranger.write(tmp_path, "stranger"))
    async with guarded(certificates) as (bookie, server):
        await fill(bookie, 1, 1)
        for wrong, host, told in (
            (untrusting, "127.0.0.1", "certificate verify failed"),
            (rules, "localhost", "mismatch"),
            (foreign, "127.0.0.1", "unknown ca"),
        ):
            failures = []
            async with remote(server.port, wrong, failures, host) as client:
                with pytest.raises(BookieError) as refused:
                    await client.read_entry(1, 0)
                assert refused.value.status is Status.UNREACHABLE
                assert told in failures[0].lower()
    failures = []
    async with (
        served_bookie() as (_bookie, server),
        remote(server.port, rules, failures) as client,
    ):
        with pytest.raises(BookieError, match="it refuses START_TLS"):
            await client.read_entry(1, 0)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"", "closed the connection instead of answering START_TLS"),
        (v3.encode_response(m.StartTlsResponse(m.OK, 1)) + b"x", "bytes between the answer"),
        (b"\x00\x10\x00\x00abcd", "too long"),
        (v3.encode_response(m.ReadLacResponse(m.OK, 1, 1)), "refuses START_TLS"),
        (b"\x00\x00\x00\x03abc", "no version 3 response"),
    ],
)
async def test_a_peer_that_breaks_the_beginning_is_left(rules, answer, told):
    async def serve(stream):
        await stream.receive_some()
        if answer:
            await stream.send_all(answer)
            await stream.receive_some()

    tcp = SocketConnector()
    connect = StartTls(TlsClientContexts(rules), tcp)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tcp.run)
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        with (
            pytest.raises((OSError, RemoteProtocolError), match=told),
            trio.fail_after(SECONDS_MAX),
        ):
            await connect("127.0.0.1", port)
        nursery.cancel_scope.cancel()
