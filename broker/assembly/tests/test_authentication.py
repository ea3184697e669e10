"""A whole broker with authentication: what is refused at start, issuers of tokens, and what is
never written anywhere."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import ssl
import time
import urllib.error
import urllib.request
from contextlib import asynccontextmanager
from functools import partial

import httpx
import pytest
import structlog
import trio
from passlib.hash import apr_md5_crypt

from broker.assembly.app import running_broker
from broker.assembly.parts import StartError
from broker.ground.config import DEFAULT_CONFIG
from broker.net.tests.harness import Connection, T
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from runtime.testing.conditions import SECONDS_MAX
from security.authentication.tests.test_openid import jwk
from security.authentication.tests.tokens import SECRET, rsa_key, token, unsigned
from security.caller import Caller
from security.testing.certificates import Authority

CLASSES = "org.apache.pulsar.broker.authentication."
TOKEN = f"{CLASSES}AuthenticationProviderToken"
TLS = f"{CLASSES}AuthenticationProviderTls"
BASIC = f"{CLASSES}AuthenticationProviderBasic"
OPENID = f"{CLASSES}oidc.AuthenticationProviderOpenID"
PASSWORD = "open-sesame-4711"
CONFIG = dataclasses.replace(
    DEFAULT_CONFIG,
    brokerServicePort=0,
    webServicePort=0,
    authenticationEnabled=True,
    authenticationProviders=(TOKEN, BASIC),
    authenticationRefreshCheckSeconds=1,
    tokenSecretKey="data:;base64," + base64.b64encode(SECRET).decode(),
    basicAuthConf="data:,alice:" + apr_md5_crypt.hash(PASSWORD).replace("$", "%24"),
)


def configured(**keys):
    return dataclasses.replace(CONFIG, **keys)


async def connect(broker, **fields):
    host, _, port = broker.broker_service_url.removeprefix("pulsar://").rpartition(":")
    connection = Connection(await trio.open_tcp_stream(host, int(port)))
    await connection.send(c.connect(**fields))
    return connection


def _get(url: str, headers: dict[str, str]) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode() + str(error.headers)


async def get(broker, path: str, **headers: str):
    return await trio.to_thread.run_sync(_get, broker.web_service_url + path, headers)


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"authenticationProviders": ("org.example.Own",)}, "org.example.Own is not supported"),
        ({"authenticationProviders": (f"{CLASSES}AuthenticationProviderSasl",)}, "Sasl is not"),
        ({"authenticationProviders": (f"{CLASSES}AuthenticationProviderAthenz",)}, "Athenz is not"),
        ({"tokenSecretKey": ""}, "needs tokenSecretKey or tokenPublicKey"),
        ({"basicAuthConf": ""}, "needs basicAuthConf"),
        ({"authenticationProviders": (OPENID,)}, "needs openIDAllowedTokenIssuers"),
        ({"openIDTokenIssuerTrustCertsFilePath": "/nowhere"}, "cannot read certificates"),
    ],
)
async def test_a_provider_that_cannot_be_used_refuses_the_start_in_one_line(keys, line):
    with pytest.RaisesGroup(StartError, allow_unwrapped=True, flatten_subgroups=True) as caught:
        async with running_broker(configured(**keys), None):
            pass
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_broker_asks_who_connects_and_who_requests():
    async with running_broker(CONFIG, None) as broker:
        basic = {"auth_method_name": "basic", "auth_data": f"alice:{PASSWORD}".encode()}
        connection = await connect(broker, **basic)
        await connection.expect(T.CONNECTED)
        [session] = broker.service.connections.open
        assert session.caller.role == "alice"
        refused = await connect(broker)
        assert (await refused.error()).error == pb.AuthenticationError
        assert (await get(broker, "/admin/v2/tenants"))[0] == 401
        assert (await get(broker, "/admin/v2/tenants", **bearer(token())))[0] == 200
        text = base64.b64encode(f"alice:{PASSWORD}".encode()).decode()
        assert (await get(broker, "/admin/v2/tenants", Authorization=f"Basic {text}"))[0] == 200
        for each in (connection, refused):
            await each.stream.aclose()


async def test_a_token_is_renewed_over_and_over_on_the_clock_of_the_machine():
    async with running_broker(CONFIG, None) as broker:
        for seconds in (1, 8, 64):  # a busy machine may bring a token after its end
            if await is_renewed(broker, seconds):
                break
        else:
            raise AssertionError("renewed in no time")


async def is_renewed(broker, seconds):
    """With tokens that are good for so long; False: the broker refused one."""

    def good():
        return token(exp=time.time() + seconds).encode()

    flags = pb.FeatureFlags(supports_auth_refresh=True)
    connection = await connect(
        broker, auth_method_name="token", auth_data=good(), feature_flags=flags
    )
    kinds = [(await connection.next())[0].type]
    for _ in range(2):
        if kinds[-1] != T.ERROR:
            kinds.append((await connection.next(2 * seconds + SECONDS_MAX))[0].type)
            await connection.send(c.auth_response("token", good()), c.ping())
            kinds.append((await connection.next())[0].type)
    await connection.stream.aclose()
    assert kinds[-1] == T.ERROR or kinds == [T.CONNECTED, *[T.AUTH_CHALLENGE, T.PONG] * 2]
    return kinds[-1] != T.ERROR


# --- certificates -----------------------------------------------------------------------


async def test_the_certificate_of_a_client_is_its_credential(tmp_path):
    authority = Authority("root")
    certificate, key = authority.issue("localhost", "127.0.0.1").write(tmp_path, "server")
    config = configured(
        authenticationProviders=(TLS, TOKEN),
        brokerServicePortTls=0,
        webServicePortTls=0,
        tlsCertificateFilePath=certificate,
        tlsKeyFilePath=key,
        tlsTrustCertsFilePath=authority.write(tmp_path),
    )
    without = ssl.create_default_context(cadata=authority.pem.decode())
    context = ssl.create_default_context(cadata=authority.pem.decode())
    context.load_cert_chain(*authority.issue("alice").write(tmp_path, "client"))
    async with running_broker(config, None) as broker:
        port = int(broker.address.broker_service_url_tls.rpartition(":")[2])
        for shown, kind in ((context, T.CONNECTED), (without, T.ERROR)):
            plain = await trio.open_tcp_stream("127.0.0.1", port)
            connection = Connection(trio.SSLStream(plain, shown, server_hostname="127.0.0.1"))
            await connection.send(c.connect(auth_method_name="tls"))
            await connection.expect(kind)
            if kind == T.CONNECTED:
                [session] = broker.service.connections.open
                assert session.caller == Caller("alice")
            await trio.aclose_forcefully(plain)
        url = f"{broker.address.web_service_url_tls}/admin/v2/tenants"
        for shown, status in ((context, 200), (without, 401)):
            async with httpx.AsyncClient(verify=shown, timeout=SECONDS_MAX) as http:
                assert (await http.get(url)).status_code == status


# --- issuers ----------------------------------------------------------------------------


@asynccontextmanager
async def issuer():
    """An issuer of tokens on a port of its own; gives its URL."""
    documents: dict[str, object] = {}

    async def serve(stream: trio.SocketStream) -> None:
        received = b""
        async with stream:
            while b"\r\n\r\n" not in received:
                received += await stream.receive_some()
            path = received.split()[1].decode()
            body = json.dumps(documents[path]).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
            await stream.send_all(head.encode() + body)

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/realm"
        documents["/realm/.well-known/openid-configuration"] = {
            "issuer": url,
            "jwks_uri": f"{url}/keys",
        }
        documents["/realm/keys"] = {"keys": [jwk(rsa_key(), "a", "RS256")]}
        yield url
        nursery.cancel_scope.cancel()


async def test_tokens_of_an_issuer_and_of_the_secret_are_accepted_by_one_broker():
    async with issuer() as url:
        config = configured(
            authenticationProviders=(TOKEN, OPENID),
            openIDAllowedTokenIssuers=(url,),
            openIDAllowedAudiences=("vela",),
            openIDRequireIssuersUseHttps=False,
        )
        now = int(time.time())
        claims = {"iss": url, "aud": "vela", "iat": now, "nbf": now, "exp": now + 100}
        issued = token(rsa_key(), "RS256", {"kid": "a"}, **claims)
        foreign = token(rsa_key(3072), "RS256", {"kid": "a"}, **claims)
        async with running_broker(config, None) as broker:
            for text, status in ((issued, 200), (token(), 200), (foreign, 401)):
                assert (await get(broker, "/admin/v2/tenants", **bearer(text)))[0] == status


# --- what is never written --------------------------------------------------------------


async def test_no_credential_is_in_a_log_an_answer_a_statistic_or_a_metric(capsys):
    expired, foreign = token(exp=1), token(bytes(32))
    right = token(exp=int(time.time()) + 3600)
    secrets = [right, expired, foreign, unsigned(), PASSWORD, "wrong-password-4712"]
    secrets += [base64.b64encode(f"alice:{each}".encode()).decode() for each in secrets[4:]]
    secrets += [base64.b64encode(SECRET).decode(), part_of(right), part_of(foreign)]
    written: list[str] = []
    with structlog.testing.capture_logs() as logs:
        async with running_broker(CONFIG, None) as broker:
            for method, data in [
                ("token", right),
                ("token", expired),
                ("token", foreign),
                ("token", unsigned()),
                ("token", "Bearer " + right),
                ("basic", f"alice:{PASSWORD}"),
                ("basic", "alice:wrong-password-4712"),
                (right, right),
            ]:
                fields = {"auth_method_name": method, "auth_data": data.encode()}
                connection = await connect(broker, **fields)
                answer = await connection.next()
                written.append(str(answer))
                if answer[0].type == T.CONNECTED:
                    await connection.producer("t")
                    await connection.send(c.auth_response("token", foreign.encode()))
                    written.append(await connection.closed())
                await connection.stream.aclose()
            paths = ("tenants", "persistent/public/default/t/stats", "nothing", "brokers/ready")
            for path in paths:
                for header in (
                    f"Bearer {right}",
                    f"Bearer {foreign}",
                    f"Bearer {expired}",
                    f"Basic {secrets[6]}",
                    f"Basic {secrets[7]}",
                    right,
                ):
                    written += map(
                        str, await get(broker, f"/admin/v2/{path}", Authorization=header)
                    )
            runtime = "/admin/v2/brokers/configuration/runtime"
            written.append(str(await get(broker, runtime, **bearer(right))))
            written.append(str(await get(broker, "/metrics")))
    written += [str(logs), *capsys.readouterr()]
    everything = "\n".join(written)
    assert "Failed to authenticate" in everything
    assert "signature of the token" in everything
    found = [each for each in secrets if each in everything]
    assert found == []


def part_of(text: str) -> str:
    """The signature, without which a token is of no use."""
    signature = text.rpartition(".")[2]
    assert re.fullmatch(r"[\w-]{43}", signature)
    return signature
