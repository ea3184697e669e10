"""The binary protocol over TLS, on real sockets, with Python's client of TLS."""

from __future__ import annotations

import socket
import ssl
from dataclasses import replace

import pytest
import trio

from broker.net.tests.harness import Connection, T, running
from protocol import client as c
from runtime.testing.conditions import SECONDS_MAX, eventually
from security.testing.certificates import Authority
from security.tls import TlsPort
from security.tls_rules import TlsRules
from security.tls_suites import TlsChoice

TOPIC = "persistent://public/default/t"


@pytest.fixture(scope="module")
def authority():
    return Authority("root")


@pytest.fixture(scope="module")
def rules(tmp_path_factory, authority):
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = authority.issue("localhost", "localhost", rsa_bits=2048).write(
        directory, "server"
    )
    return TlsRules(
        certificate_path=certificate, key_path=key, trusted_path=authority.write(directory)
    )


async def connected(broker, authority, credentials=None, directory=None):
    """A client of the port with TLS, before CONNECT."""
    context = ssl.create_default_context(cadata=authority.pem.decode())
    if credentials is not None:
        context.load_cert_chain(*credentials.write(directory, "client"))
    plain = await trio.open_tcp_stream("127.0.0.1", broker.tls_port)
    stream = trio.SSLStream(plain, context, server_hostname="localhost")
    broker.streams.append(stream)
    await stream.do_handshake()
    return Connection(stream)


async def test_a_client_publishes_and_receives_over_tls(rules, authority):
    async with running(tls=TlsPort(rules)) as broker:
        client = await connected(broker, authority)
        await client.handshake()
        await client.producer(TOPIC)
        await client.subscribe(TOPIC, permits=100)
        payloads = [bytes([number]) * size for number, size in enumerate((1, 1_000, 3_000_000))]
        for number, payload in enumerate(payloads):
            await client.publish(number, payload)
        got = []
        while len(got) < len(payloads):
            answer = await client.next()
            if answer[0].type == T.MESSAGE:
                got.append(bytes(answer[1]))
        assert all(map(bytes.endswith, got, payloads))


async def test_the_certificate_of_a_client_is_known_to_its_session(rules, authority, tmp_path):
    async with running(tls=TlsPort(rules)) as broker:
        credentials = authority.issue("the-role")
        client = await connected(broker, authority, credentials, tmp_path)
        await client.handshake()
        (session,) = broker.service.connections.open
        assert session.peer_certificate == credentials.der
        await broker.connect()
        assert {each.peer_certificate for each in broker.service.connections.open} == {
            None,
            credentials.der,
        }


async def test_plain_text_on_the_port_for_tls_is_answered_with_an_alert(rules):
    port = TlsPort(rules)
    async with running(tls=port) as broker:
        stream = await trio.open_tcp_stream("127.0.0.1", broker.tls_port)
        await stream.send_all(c.connect())
        answer = b""
        with trio.fail_after(SECONDS_MAX):
            while data := await stream.receive_some():
                answer += data
        assert answer[:1] == b"\x15"
        await stream.aclose()
        assert port.handshakes.failed_total == 1
        await eventually(lambda: not broker.service.connections.open)
        client = await broker.connect()
        await client.producer(TOPIC)


async def test_tls_on_the_plain_port_is_refused(rules, authority):
    async with running(tls=TlsPort(rules)) as broker:
        broker.tls_port = broker.listener.port
        with pytest.raises(trio.BrokenResourceError):
            await connected(broker, authority)


async def test_a_client_that_does_not_finish_its_handshake_is_closed_in_time(rules):
    port = TlsPort(rules)
    limits = {"handshake_seconds_max": 0.2, "keep_alive_seconds": 1.0}
    async with running(limits=limits, tls=port) as broker:
        silent = await trio.open_tcp_stream("127.0.0.1", broker.tls_port)
        begun = await trio.open_tcp_stream("127.0.0.1", broker.tls_port)
        await begun.send_all(b"\x16\x03\x01")
        with trio.fail_after(SECONDS_MAX):
            for stream in (silent, begun):
                assert await stream.receive_some() == b""
                await stream.aclose()
        assert port.handshakes.unfinished.held_bytes == 0
        await eventually(lambda: not broker.service.connections.open)


async def test_a_client_over_a_bound_is_told_the_reason_over_tls(rules, authority):
    async with running(tls=TlsPort(rules), brokerMaxConnections=1) as broker:
        await broker.connect()
        client = await connected(broker, authority)
        assert await client.closed() == "Reached the maximum number of connections: 1"


async def test_many_handshakes_at_once_are_all_finished(rules, authority):
    port = TlsPort(rules)
    async with running(tls=port) as broker, trio.open_nursery() as nursery:

        async def one():
            client = await connected(broker, authority)
            await client.handshake()

        for _ in range(50):
            nursery.start_soon(one)
    assert port.handshakes.finished_total == 50


async def test_a_peer_that_does_not_read_holds_back_its_own_messages_only(rules, authority):
    """And gets all of them once it reads."""
    async with running(tls=TlsPort(rules)) as broker:
        client = await connected(broker, authority)
        await client.handshake()
        await client.subscribe(TOPIC, permits=1_000)
        publisher = await broker.connect()
        await publisher.producer(TOPIC)
        payload = bytes(100_000)
        for number in range(200):
            await publisher.publish(number, payload)
            await publisher.expect(T.SEND_RECEIPT)
        count = 0
        while count < 200:
            answer = await client.next()
            assert answer[0].type == T.MESSAGE
            count += 1


async def test_both_versions_are_spoken(rules, authority):
    for name, version in (
        ("TLSv1.2", ssl.TLSVersion.TLSv1_2),
        ("TLSv1.3", ssl.TLSVersion.TLSv1_3),
    ):
        async with running(
            tls=TlsPort(replace(rules, choice=TlsChoice(protocols=(name,))))
        ) as broker:
            context = ssl.create_default_context(cadata=authority.pem.decode())
            context.minimum_version = context.maximum_version = version

            def talk(context=context, port=broker.tls_port):
                with (
                    socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as plain,
                    context.wrap_socket(plain, server_hostname="localhost") as secure,
                ):
                    secure.sendall(c.connect())
                    return secure.version(), secure.recv(4)

            spoken, answer = await trio.to_thread.run_sync(talk)
            assert spoken == name
            assert len(answer) == 4
