"""Brokers of a cluster that authenticate to each other."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import replace

import httpx
import pytest
import trio
from passlib.hash import apr_md5_crypt
from structlog.testing import capture_logs

from broker.assembly.among_brokers import broker_client_of
from broker.assembly.cluster_config import CLUSTER_KEYS, ClusterBrokerConfig, start_notices
from broker.assembly.parts import StartError
from broker.assembly.tests.test_dynamic_balancing import CONFIG, two_brokers
from broker.peers.owner_connection import LinkLost, OwnerConnection
from protocol import client as c
from protocol.topic_name import TopicName
from runtime.testing.conditions import eventually
from security.authentication.tests.tokens import SECRET, token
from security.testing.certificates import Authority
from settings.reading import ConfigError, Setting, build_config

PLUGINS = "org.apache.pulsar.client.impl.auth."
TOKENS = f"{PLUGINS}AuthenticationToken"
PROVIDERS = "org.apache.pulsar.broker.authentication."
OF_BROKERS = token(sub="broker")
KEYS = {
    "authenticationEnabled": True,
    "authenticationProviders": (f"{PROVIDERS}AuthenticationProviderToken",),
    "authenticationRefreshCheckSeconds": 1,
    "tokenSecretKey": "data:;base64," + base64.b64encode(SECRET).decode(),
    "authorizationEnabled": True,
    "superUserRoles": ("admin", "broker"),
    "brokerClientAuthenticationPlugin": TOKENS,
    "brokerClientAuthenticationParameters": f"token:{OF_BROKERS}",
}


def as_role(role, **options):
    return httpx.AsyncClient(headers={"Authorization": f"Bearer {token(sub=role)}"}, **options)


async def topic_elsewhere(leader, scheme="http"):
    """The name of a topic that the other broker owns."""
    base = leader.address.web_url(scheme)
    async with as_role("admin", verify=False) as client:
        for number in range(32):
            name = f"non-persistent://public/default/t{number}"
            url = f"{base}/lookup/v2/topic/{name.replace('://', '/')}"
            answer = await client.get(url)
            while answer.status_code == 307:  # httpx would not send the token there
                answer = await client.get(answer.headers["location"])
            assert answer.status_code == 200, answer.text
            if base not in (answer.json().get("httpUrl"), answer.json().get("httpUrlTls")):
                return name
    raise AssertionError("the leader owns all topics")


async def ignore(_frames):
    """Nothing is expected."""


async def unload(leader, role="admin"):
    async with as_role(role) as client:
        url = f"{leader.web_service_url}/admin/v2/namespaces/public/default/unload"
        return await client.put(url)


async def test_requests_to_other_brokers_carry_the_credentials_of_this_one():
    with capture_logs() as logs:
        async with two_brokers(**KEYS) as (leader, other):
            name = await topic_elsewhere(leader)
            assert other.service.ownership.serves(TopicName.parse(name))
            assert (await unload(leader, "nobody")).status_code in (401, 403)
            assert other.service.ownership.serves(TopicName.parse(name))
            assert (await unload(leader)).status_code == 204
            assert not other.service.ownership.serves(TopicName.parse(name))
            url = f"{leader.web_service_url}/admin/v2/non-persistent/public/default/p"
            async with as_role("admin") as client:
                assert (await client.put(f"{url}/partitions", json=4)).status_code == 204
                stats = await client.get(f"{url}/partitioned-stats?perPartition=true")
                assert (stats.status_code, len(stats.json()["partitions"])) == (200, 4)
            async with as_role("admin") as client:
                base = f"{leader.web_service_url}/admin/v2/brokers/configuration/runtime"
                shown = (await client.get(base)).text
    assert "brokerClientAuthenticationPlugin" in shown
    assert OF_BROKERS not in shown
    assert OF_BROKERS not in json.dumps(logs, default=str)
    assert not [line for line in logs if line["log_level"] == "error"]


async def test_the_role_of_brokers_must_be_a_super_user():
    async def lines(logs):
        await eventually(lambda: [line for line in logs if "problem" in line])
        return {line["problem"] for line in logs if "problem" in line}

    keys = KEYS | {"superUserRoles": ("admin",)}
    with capture_logs() as logs:
        async with two_brokers(**keys) as (leader, _other):
            await topic_elsewhere(leader)
            told = await lines(logs)
            answer = await unload(leader)
    assert told == {
        "the role of this broker, 'broker', is not among superUserRoles: other brokers will refuse "
        "what it asks"
    }
    assert answer.status_code == 503
    assert "401" in answer.text or "403" in answer.text
    expired = token(sub="broker", exp=time.time() - 10)
    keys = KEYS | {"brokerClientAuthenticationParameters": expired}
    with capture_logs() as logs:
        async with two_brokers(**keys) as (leader, _other):
            await topic_elsewhere(leader)
            [problem] = await lines(logs)
            answer = await unload(leader)
    assert "would not accept its own credentials" in problem
    assert "expired" in problem
    assert expired not in json.dumps(logs, default=str)
    assert answer.status_code == 503
    assert "Another broker does not accept the credentials of this one" in answer.json()["reason"]


async def test_a_connection_to_an_owner_renews_its_credential(tmp_path):
    path = tmp_path / "token"
    path.write_text(OF_BROKERS)
    keys = KEYS | {"brokerClientAuthenticationParameters": f"file://{path}"}
    config = replace(ClusterBrokerConfig(), **keys)
    async with two_brokers(**keys) as (leader, _), trio.open_nursery() as nursery:
        url = leader.address.broker_service_url
        with pytest.raises(LinkLost, match=r"does not let this broker in"):
            await OwnerConnection.open(url, nursery, ignore)
        path.write_text(token(sub="broker", exp=time.time() + 3))
        connection = await OwnerConnection.open(url, nursery, ignore, broker_client_of(config))
        [session] = [each for each in leader.service.connections.open if each.lease is not None]
        assert session.caller.role == "broker"
        last = time.time() + 1000
        path.write_text(token(sub="broker", exp=last))
        await eventually(lambda: session.lease.identity.expires_at == pytest.approx(last))
        name = "non-persistent://public/default/t"
        answer = await connection.ask(lambda request_id: c.lookup(name, request_id))
        assert answer.lookupTopicResponse.brokerServiceUrl
        path.unlink()
        with pytest.raises(LinkLost, match="cannot read the token"):
            await OwnerConnection.open(url, nursery, ignore, broker_client_of_unread(config, path))
        connection.close("done")


def broker_client_of_unread(config, path):
    """Of a file that is lost after the start."""
    path.write_text(OF_BROKERS)
    made = broker_client_of(config)
    path.unlink()
    return made


async def test_a_user_and_a_password_are_the_credential_of_a_broker():
    hashed = apr_md5_crypt.hash("sesame").replace("$", "%24")
    providers = (*KEYS["authenticationProviders"], f"{PROVIDERS}AuthenticationProviderBasic")
    keys = KEYS | {
        "authenticationProviders": providers,
        "basicAuthConf": f"data:,broker:{hashed}",
        "brokerClientAuthenticationPlugin": f"{PLUGINS}AuthenticationBasic",
        "brokerClientAuthenticationParameters": '{"userId": "broker", "password": "sesame"}',
    }
    with capture_logs() as logs:
        async with two_brokers(**keys) as (leader, other):
            name = await topic_elsewhere(leader)
            assert (await unload(leader)).status_code == 204
            assert not other.service.ownership.serves(TopicName.parse(name))
    assert not [line for line in logs if line["log_level"] == "error"]
    assert "sesame" not in json.dumps(logs, default=str)


async def test_a_certificate_is_the_credential_of_a_broker(tmp_path):
    authority = Authority("root")
    certificate, key = authority.issue("broker", "127.0.0.1").write(tmp_path, "broker")
    trusted = authority.write(tmp_path)
    keys = KEYS | {
        "authenticationProviders": (
            f"{PROVIDERS}AuthenticationProviderTls",
            f"{PROVIDERS}AuthenticationProviderToken",
        ),
        "brokerServicePort": None,
        "brokerServicePortTls": 0,
        "webServicePort": None,
        "webServicePortTls": 0,
        "tlsCertificateFilePath": certificate,
        "tlsKeyFilePath": key,
        "tlsTrustCertsFilePath": trusted,
        "brokerClientTlsEnabled": True,
        "brokerClientTrustCertsFilePath": trusted,
        "brokerClientAuthenticationPlugin": f"{PLUGINS}AuthenticationTls",
        "brokerClientAuthenticationParameters": f"tlsCertFile:{certificate},tlsKeyFile:{key}",
    }
    config = replace(ClusterBrokerConfig(), **keys)
    with capture_logs() as logs:
        async with two_brokers(**keys) as (leader, other), trio.open_nursery() as nursery:
            name = await topic_elsewhere(leader, "https")
            url = f"{leader.address.web_service_url_tls}/admin/v2/namespaces/public/default/unload"
            async with as_role("admin", verify=False) as client:
                assert (await client.put(url)).status_code == 204
            assert not other.service.ownership.serves(TopicName.parse(name))
            url = leader.address.broker_service_url_tls
            connection = await OwnerConnection.open(url, nursery, ignore, broker_client_of(config))
            [session] = leader.service.connections.open
            assert session.caller.role == "broker"
            connection.close("done")
    assert not [line for line in logs if line["log_level"] == "error"]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"brokerClientAuthenticationPlugin": "org.example.Own"}, "org.example.Own is not support"),
        ({"brokerClientAuthenticationParameters": "file:///none"}, "the token in /none: No such"),
    ],
)
def test_credentials_that_cannot_be_used_refuse_the_start(changes, line):
    with pytest.raises(StartError, match=line):
        broker_client_of(replace(CONFIG, **(KEYS | changes)))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "authenticationEnabled=true needs brokerClientAuthenticationPlugin"),
        (
            {
                "anonymousUserRole": "x",
                "brokerClientAuthenticationPlugin": f"{PLUGINS}AuthenticationTls",
            },
            "needs brokerClientTlsEnabled=true",
        ),
        (
            {
                "brokerClientAuthenticationPlugin": f"{PLUGINS}AuthenticationTls",
                "brokerClientTlsEnabled": "true",
                "brokerServicePortTls": "1",
                "webServicePortTls": "2",
            },
            "needs brokerClientCertificateFilePath",
        ),
    ],
)
def test_keys_of_the_brokers_client_that_are_missing_are_named(changes, line):
    given = {"metadataStoreUrl": "zk:a:1", "clusterName": "c", "authenticationEnabled": "true"}
    settings = [Setting(key, value, "test") for key, value in (given | changes).items()]
    with pytest.raises(ConfigError, match=line):
        build_config(CLUSTER_KEYS, settings, {})


def test_the_notice_about_access_goes_with_authorization():
    config = replace(CONFIG, bindAddress="0.0.0.0", **KEYS)
    assert start_notices(config) == []
    [notice] = start_notices(replace(config, authorizationEnabled=False))
    assert "without authorization" in notice
