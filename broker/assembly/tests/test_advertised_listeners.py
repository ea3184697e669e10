"""The named addresses of a broker: which there may be, and what clients are told."""

from __future__ import annotations

import dataclasses

import httpx
import pytest
import trio

from broker.assembly.app import running_broker
from broker.configuration.advertised_listeners import listeners_of
from broker.configuration.config_file import build_config
from broker.ground.config import DEFAULT_CONFIG
from broker.http.router import Router
from broker.http.routes import all_routes
from broker.http.server import AdminApplication
from broker.net.tests.harness import Connection, T
from protocol import client as c
from runtime.testing.ports import free_ports
from settings.reading import ConfigError, Setting
from web.callers import CallerRules

TOPIC = "persistent://public/default/t"
BOTH = "in:pulsar://a:1,out:pulsar://b:2,out:pulsar+ssl://b:3"


def read(**values):
    settings = [Setting(key, value, "test") for key, value in values.items()]
    return build_config(settings, {}).config


def test_the_first_listener_is_internal_unless_another_is_named():
    found = listeners_of(read(advertisedListeners=f" {BOTH.replace(',', ' , ')}"))
    assert found.plain == {"in": "pulsar://a:1", "out": "pulsar://b:2"}
    assert found.tls == {"out": "pulsar+ssl://b:3"}
    assert found.internal == "in"
    assert (
        listeners_of(read(advertisedListeners=BOTH, internalListenerName="out")).internal == "out"
    )
    assert not listeners_of(read(internalListenerName="in")).internal


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"advertisedListeners": "nonsense"}, "'nonsense' is not NAME:pulsar://HOST:PORT"),
        ({"advertisedListeners": ":pulsar://a:1"}, "is not NAME:"),
        ({"advertisedListeners": "in:kafka://a:1"}, "is not NAME:"),
        ({"advertisedListeners": "in:pulsar://a"}, "is not NAME:"),
        ({"advertisedListeners": "in:pulsar://a:x"}, "is not NAME:"),
        ({"advertisedListeners": "in:pulsar://a:1/x"}, "is not NAME:"),
        ({"advertisedListeners": "in:http://a:8080"}, "the web service has one address"),
        ({"advertisedListeners": "in:pulsar://a:1,in:pulsar://a:2"}, "two pulsar:// addresses"),
        ({"advertisedListeners": "in:pulsar://a:1,out:pulsar://a:1"}, "have the same address"),
        (
            {"advertisedListeners": BOTH, "internalListenerName": "x"},
            r"internalListenerName=x is no listener of advertisedListeners \(in, out\)",
        ),
        ({"advertisedListener": "in:pulsar://a:1"}, "did you mean 'advertisedListeners'"),
    ],
)
def test_listeners_that_cannot_be_used_are_refused(values, told):
    with pytest.raises(ConfigError, match=told):
        read(**values)


async def lookup(port, listener):
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        connection = Connection(stream)
        await connection.handshake()
        await connection.send(c.lookup(TOPIC, connection.rid(), advertised_listener_name=listener))
        answer = await connection.expect(T.LOOKUP_RESPONSE)
        return answer.brokerServiceUrl, answer.brokerServiceUrlTls, answer.message


async def web_lookup(running, listener):
    application = AdminApplication(Router(all_routes()), CallerRules((), ["vela"]))
    application.context = running.admin
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://vela") as http:
        path = f"/lookup/v2/topic/persistent/public/default/t?listenerName={listener}"
        answer = await http.get(path)
        body = answer.json()
        return answer.status_code, body.get("brokerUrl"), body.get("brokerUrlTls")


async def test_a_client_is_told_the_addresses_of_the_listener_that_it_names():
    [port] = free_ports(1)
    config = dataclasses.replace(
        DEFAULT_CONFIG, brokerServicePort=port, webServicePort=0, advertisedListeners=BOTH
    )
    async with running_broker(config, None) as running:
        assert await lookup(port, "") == ("pulsar://a:1", "", "")
        assert await lookup(port, "in") == ("pulsar://a:1", "", "")
        assert await lookup(port, "out") == ("pulsar://b:2", "pulsar+ssl://b:3", "")
        assert "listener" in (await lookup(port, "other"))[2]
        assert await web_lookup(running, "out") == (200, "pulsar://b:2", "pulsar+ssl://b:3")
        assert await web_lookup(running, "") == (200, "pulsar://a:1", "")
        assert (await web_lookup(running, "other"))[0] == 500
