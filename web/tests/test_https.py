"""HTTP over TLS: handshakes within the bounds of connections, and what the application is told."""

from __future__ import annotations

import socket
import ssl
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import pytest
import trio

from runtime.testing.conditions import SECONDS_MAX, eventually
from security.testing.certificates import Authority
from security.tls import TlsPort
from security.tls_rules import TlsRules
from web.https import Https
from web.limits import HttpLimits
from web.server import HttpServer
from web.tests.test_connection import Application

LIMITS = HttpLimits(connections_max=4)


@pytest.fixture(scope="module")
def authority():
    return Authority("root")


@pytest.fixture(scope="module")
def rules(tmp_path_factory, authority):
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = authority.issue("localhost", "localhost").write(directory, "server")
    return TlsRules(
        certificate_path=certificate, key_path=key, trusted_path=authority.write(directory)
    )


class Serving:
    def __init__(self, server, application, listening, port):
        self.server = server
        self.application = application
        self.port = listening.getsockname()[1]
        self.handshakes = port.handshakes

    @property
    def url(self):
        return f"https://localhost:{self.port}"


@asynccontextmanager
async def serving(rules, limits=LIMITS):
    application, port = Application(), TlsPort(rules)
    https = Https(port)
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    server, stop = HttpServer(application, limits), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(https.run)
        await nursery.start(server.serve, [https.door(listening)], stop)
        yield Serving(server, application, listening, port)
        nursery.cancel_scope.cancel()


def trusting(authority):
    return ssl.create_default_context(cadata=authority.pem.decode())


def asking(context):
    return httpx.AsyncClient(verify=context, timeout=SECONDS_MAX)


async def test_requests_are_answered_over_tls(rules, authority):
    async with serving(rules) as served, asking(trusting(authority)) as client:
        for body in (b"one", bytes(300_000)):
            answer = await client.post(f"{served.url}/x", content=body)
            assert answer.content == body
        first, second = served.application.scopes
        assert first["scheme"] == "https"
        assert first["client"] == second["client"]
        assert first["server"] == ("127.0.0.1", served.port)
        assert first["extensions"] == {}


async def test_a_large_answer_arrives_whole(rules, authority):
    async with serving(rules) as served, asking(trusting(authority)) as client:
        assert len((await client.get(f"{served.url}/big")).content) == 1_000 * 65_536 + len(b"ok")


async def test_the_certificate_of_a_client_is_passed_on(rules, authority, tmp_path):
    context = trusting(authority)
    credentials = authority.issue("the-role")
    context.load_cert_chain(*credentials.write(tmp_path, "client"))
    async with serving(rules) as served, asking(context) as client:
        await client.get(f"{served.url}/x")
        (scope,) = served.application.scopes
        (pem,) = scope["extensions"]["tls"]["client_cert_chain"]
        assert ssl.PEM_cert_to_DER_cert(pem) == credentials.der


async def test_plain_http_is_answered_with_an_alert(rules):
    async with serving(rules) as served:
        stream = await trio.open_tcp_stream("127.0.0.1", served.port)
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with trio.fail_after(SECONDS_MAX):
            assert (await stream.receive_some())[:1] == b"\x15"
            assert await stream.receive_some() == b""
        await stream.aclose()
        assert served.handshakes.failed_total == 1
        await eventually(lambda: not len(served.server))


async def test_a_handshake_has_the_deadline_of_a_request(rules):
    limits = replace(LIMITS, request_seconds_max=0.2)
    async with serving(rules, limits) as served:
        stream = await trio.open_tcp_stream("127.0.0.1", served.port)
        await stream.send_all(b"\x16\x03\x01")
        with trio.fail_after(SECONDS_MAX):
            assert await stream.receive_some() == b""
        await stream.aclose()
        await eventually(lambda: not len(served.server))
        assert served.handshakes.unfinished.held_bytes == 0


async def test_handshakes_that_stand_still_give_way_to_others(rules, authority):
    async with serving(rules) as served:
        idle = [await trio.open_tcp_stream("127.0.0.1", served.port) for _ in range(10)]
        async with asking(trusting(authority)) as client:
            assert (await client.get(f"{served.url}/x")).status_code == 200
        assert len(served.server) <= 4
        for stream in idle:
            await stream.aclose()
