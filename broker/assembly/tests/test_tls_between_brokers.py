"""Brokers of a cluster whose ports without TLS are off reach each other with it."""

from __future__ import annotations

import ssl
from dataclasses import replace

import httpx
import pytest
import trio

from broker.assembly.among_brokers import broker_client_of
from broker.assembly.cluster_config import CLUSTER_KEYS, ClusterBrokerConfig
from broker.assembly.parts import StartError
from broker.assembly.tests.test_dynamic_balancing import two_brokers
from broker.peers.owner_connection import LinkLost, OwnerConnection
from protocol.topic_name import TopicName
from runtime.testing.conditions import SECONDS_MAX
from security.testing.certificates import Authority
from settings.reading import ConfigError, Setting, build_config


@pytest.fixture(scope="module")
def authority():
    return Authority("root")


@pytest.fixture
def keys(tmp_path, authority):
    certificate, key = authority.issue("127.0.0.1", "127.0.0.1").write(tmp_path, "broker")
    trusted = authority.write(tmp_path)
    return {
        "brokerServicePort": None,
        "brokerServicePortTls": 0,
        "webServicePort": None,
        "webServicePortTls": 0,
        "tlsCertificateFilePath": certificate,
        "tlsKeyFilePath": key,
        "tlsTrustCertsFilePath": trusted,
        "brokerClientTlsEnabled": True,
        "brokerClientTrustCertsFilePath": trusted,
        "tlsHostnameVerificationEnabled": True,
    }


async def test_requests_go_to_the_other_broker_by_https(keys, authority):
    context = ssl.create_default_context(cadata=authority.pem.decode())
    async with (
        two_brokers(**keys) as (leader, other),
        httpx.AsyncClient(verify=context, timeout=SECONDS_MAX) as client,
    ):
        assert leader.web_service_url == other.web_service_url == ""
        topics = [f"non-persistent://public/default/t{number}" for number in range(8)]
        owners = {}
        for name in topics:
            path = name.replace("://", "/")
            url = f"{leader.address.web_service_url_tls}/lookup/v2/topic/{path}"
            answer = await client.get(url, follow_redirects=True)
            owners[name] = answer.json()["httpUrlTls"]
            assert answer.json()["brokerUrl"] == ""
        addresses = [leader.address.web_service_url_tls, other.address.web_service_url_tls]
        assert set(owners.values()) == set(addresses)
        elsewhere = next(name for name, url in owners.items() if url == addresses[1])
        path = elsewhere.replace("://", "/")
        answer = await client.get(f"{addresses[0]}/admin/v2/{path}/stats")
        assert answer.status_code == 307
        assert answer.headers["location"].startswith(f"{addresses[1]}/admin/v2/")
        # The leader asks the owner to give its bundles up.
        answer = await client.put(f"{addresses[0]}/admin/v2/namespaces/public/default/unload")
        assert answer.status_code == 204
        assert not other.service.ownership.serves(TopicName.parse(elsewhere))


async def test_a_connection_to_an_owner_verifies_it(keys, authority, tmp_path):
    config = replace(ClusterBrokerConfig(), **keys)

    async def ignore(_frames):
        """Nothing is expected."""

    async with two_brokers(**keys) as (leader, _), trio.open_nursery() as nursery:
        url = leader.address.broker_service_url_tls
        connection = await OwnerConnection.open(url, nursery, ignore, broker_client_of(config))
        assert connection.server_version
        connection.close("done")
        stranger = Authority("stranger").write(tmp_path, "stranger")
        wrong = broker_client_of(replace(config, brokerClientTrustCertsFilePath=stranger))
        with pytest.raises(LinkLost, match=r"certificate verify failed"):
            await OwnerConnection.open(url, nursery, ignore, wrong)
        other_name = url.replace("127.0.0.1", "localhost")
        with pytest.raises(LinkLost, match=r"Hostname mismatch"):
            await OwnerConnection.open(other_name, nursery, ignore, broker_client_of(config))
        lenient = replace(config, tlsHostnameVerificationEnabled=False)
        connection = await OwnerConnection.open(
            other_name, nursery, ignore, broker_client_of(lenient)
        )
        connection.close("done")


async def test_a_broker_offers_the_protocols_that_are_named(keys):
    config = replace(ClusterBrokerConfig(), **keys)

    async def ignore(_frames):
        """Nothing is expected."""

    with_1_3 = {**keys, "tlsProtocols": ("TLSv1.3",)}
    async with two_brokers(**with_1_3) as (leader, _), trio.open_nursery() as nursery:
        url = leader.address.broker_service_url_tls
        older = replace(config, brokerClientTlsProtocols=("TLSv1.2",))
        with pytest.raises(LinkLost, match=r"protocol version"):
            await OwnerConnection.open(url, nursery, ignore, broker_client_of(older))
        same = replace(config, brokerClientTlsProtocols=("TLSv1.3",))
        connection = await OwnerConnection.open(url, nursery, ignore, broker_client_of(same))
        connection.close("done")


def test_files_for_it_that_cannot_be_used_are_named(keys, tmp_path):
    config = replace(ClusterBrokerConfig(), **keys)
    none = str(tmp_path / "none")
    with pytest.raises(StartError, match=r"brokerClientTrustCertsFilePath=.*No such file"):
        broker_client_of(replace(config, brokerClientTrustCertsFilePath=none))
    with pytest.raises(StartError, match=r"brokerClientCertificateFilePath=.*No such file"):
        broker_client_of(replace(config, brokerClientCertificateFilePath=none))
    assert not broker_client_of(replace(config, brokerClientTlsEnabled=False)).is_secure


BOTH_WITH_TLS = {
    "brokerClientTlsEnabled": "true",
    "brokerServicePortTls": "1",
    "webServicePortTls": "1",
}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"webServicePort": ""}, "webServicePort is off: brokers reach each other there"),
        ({"webServicePort": "", "webServicePortTls": "1"}, "or set brokerClientTlsEnabled"),
        ({"brokerClientTlsEnabled": "true"}, "brokerServicePortTls is off: with brokerClientTls"),
        (
            {"brokerClientTlsEnabled": "true", "brokerServicePortTls": "1"},
            "webServicePortTls is off: with brokerClientTlsEnabled",
        ),
        (
            {**BOTH_WITH_TLS, "brokerClientTlsProtocols": "TLSv1.2,SSLv3"},
            "brokerClientTlsProtocols: 'SSLv3' is not supported",
        ),
        (
            {**BOTH_WITH_TLS, "brokerClientTlsCiphers": "TLS_AES_128_GCM_SHA256"},
            "brokerClientTlsCiphers: the ciphers of TLS 1.3 can only be chosen together",
        ),
        ({"brokerClientTlsEnabledWithKeyStore": "true"}, "Vela reads PEM files"),
    ],
)
def test_ports_at_which_brokers_reach_each_other_cannot_be_off(changes, told):
    given = {
        "metadataStoreUrl": "zk:a:1",
        "clusterName": "c",
        "tlsCertificateFilePath": "/c",
        "tlsKeyFilePath": "/k",
        **changes,
    }
    settings = [Setting(key, value, "test") for key, value in given.items()]
    with pytest.raises(ConfigError, match=told):
        build_config(CLUSTER_KEYS, settings, {})
