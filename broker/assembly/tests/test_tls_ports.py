"""A broker with ports for TLS: what it refuses to start with, and what clients are told."""

from __future__ import annotations

import ssl
from dataclasses import replace

import httpx
import pytest
import trio

from broker.assembly.app import running_broker
from broker.assembly.cluster_config import CLUSTER_KEYS
from broker.assembly.parts import StartError
from broker.configuration.config_keys import BROKER_KEYS
from broker.ground.config import DEFAULT_CONFIG
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from runtime.testing.conditions import SECONDS_MAX
from security.testing.certificates import Authority
from settings.reading import ConfigError, Setting, as_properties, build_config

PLAIN = replace(
    DEFAULT_CONFIG, brokerServicePort=0, webServicePort=0, advertisedAddress="localhost"
)


@pytest.fixture(scope="module")
def authority():
    return Authority("root")


@pytest.fixture
def config(tmp_path, authority):
    certificate, key = authority.issue("localhost", "localhost").write(tmp_path, "server")
    return replace(
        PLAIN,
        brokerServicePortTls=0,
        webServicePortTls=0,
        tlsCertificateFilePath=certificate,
        tlsKeyFilePath=key,
        tlsTrustCertsFilePath=authority.write(tmp_path),
    )


def trusting(authority):
    return ssl.create_default_context(cadata=authority.pem.decode())


async def lookup_over_tls(authority, url, topic):
    host, _, port = url.rpartition("/")[2].rpartition(":")
    plain = await trio.open_tcp_stream("127.0.0.1", int(port))
    client = c.Client()
    async with trio.SSLStream(plain, trusting(authority), server_hostname=host) as stream:
        await stream.send_all(c.connect() + c.lookup(topic, 1))
        with trio.fail_after(SECONDS_MAX):
            while True:
                for command, _ in client.receive(bytes(await stream.receive_some())):
                    if command.type == pb.BaseCommand.LOOKUP_RESPONSE:
                        return command.lookupTopicResponse


async def test_both_kinds_of_ports_serve_beside_each_other(config, authority):
    topic = "persistent://public/default/t"
    async with running_broker(config, None) as broker:
        address = broker.address
        assert [url.partition("://")[0] for url in address.service_urls] == [
            "pulsar",
            "pulsar+ssl",
            "http",
            "https",
        ]
        answer = await lookup_over_tls(authority, address.broker_service_url_tls, topic)
        assert answer.brokerServiceUrl == address.broker_service_url
        assert answer.brokerServiceUrlTls == address.broker_service_url_tls
        async with httpx.AsyncClient(verify=trusting(authority), timeout=SECONDS_MAX) as http:
            for base in (address.web_service_url, address.web_service_url_tls):
                path = f"{base}/lookup/v2/topic/persistent/public/default/t"
                assert (await http.get(path)).json() == {
                    "brokerUrl": address.broker_service_url,
                    "brokerUrlTls": address.broker_service_url_tls,
                    "httpUrl": address.web_service_url,
                    "httpUrlTls": address.web_service_url_tls,
                    "nativeUrl": address.broker_service_url,
                    "brokerUrlSsl": "",
                }
                cluster = await http.get(f"{base}/admin/v2/clusters/standalone")
                assert cluster.json()["brokerServiceUrlTls"] == address.broker_service_url_tls
                assert cluster.json()["serviceUrlTls"] == address.web_service_url_tls
            leader = await http.get(f"{address.web_service_url}/admin/v2/brokers/leaderBroker")
            assert leader.json()["serviceUrl"] == address.web_service_url_tls
            page = (await http.get(f"{address.web_service_url}/metrics")).text
            for key in ("brokerServicePortTls", "webServicePortTls"):
                labels = f'{{cluster="standalone",port="{key}"}}'
                assert f"vela_tls_handshakes_finished_total{labels} 1\n" in page
                assert f"vela_tls_handshakes_failed_total{labels} 0\n" in page


async def test_the_ports_without_tls_can_be_off(config, authority):
    config = replace(config, brokerServicePort=None, webServicePort=None)
    async with running_broker(config, None) as broker:
        address = broker.address
        assert address.broker_service_url == address.web_service_url == ""
        answer = await lookup_over_tls(
            authority, address.broker_service_url_tls, "persistent://public/default/t"
        )
        assert not answer.HasField("brokerServiceUrl")
        assert answer.brokerServiceUrlTls == address.broker_service_url_tls
        async with httpx.AsyncClient(verify=trusting(authority), timeout=SECONDS_MAX) as http:
            base = f"{address.web_service_url_tls}/admin/v2"
            assert (await http.get(f"{base}/brokers/health")).text == "ok"
            assert (await http.get(f"{base}/brokers")).json() == [address.broker_id]


async def test_a_file_that_cannot_be_used_prevents_the_start(config, tmp_path):
    for key in ("tlsCertificateFilePath", "tlsKeyFilePath", "tlsTrustCertsFilePath"):
        faulty = replace(config, **{key: str(tmp_path / "none")})
        with pytest.raises(StartError, match=f"{key}=.*cannot be read: No such file"):
            async with running_broker(faulty, None):
                raise AssertionError


async def test_a_port_in_use_is_named_by_its_key(config):
    async with running_broker(config, None) as broker:
        for key, url in (
            ("brokerServicePortTls", broker.address.broker_service_url_tls),
            ("webServicePortTls", broker.address.web_service_url_tls),
        ):
            taken = replace(config, **{key: int(url.rpartition(":")[2])})
            with pytest.raises((BaseExceptionGroup, StartError)) as raised:
                async with running_broker(taken, None):
                    raise AssertionError
            assert f"({key})" in told(raised.value)


def told(error):
    return told(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else str(error)


def read(**values):
    settings = [Setting(key, value, "test") for key, value in values.items()]
    return build_config(BROKER_KEYS, settings, {}).config


FILES = {"tlsCertificateFilePath": "/c.pem", "tlsKeyFilePath": "/k.pem"}


def test_a_blank_port_is_off_and_an_absent_one_has_its_default():
    config = read(brokerServicePort="", brokerServicePortTls="6651", **FILES)
    assert (config.brokerServicePort, config.brokerServicePortTls) == (None, 6651)
    assert (config.webServicePort, config.webServicePortTls) == (8080, None)
    assert as_properties(config)["brokerServicePort"] == ""


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"brokerServicePort": ""}, "brokerServicePort and brokerServicePortTls are both off"),
        ({"webServicePort": ""}, "webServicePort and webServicePortTls are both off"),
        ({"brokerServicePortTls": "6651"}, "tlsCertificateFilePath is not set"),
        ({"webServicePortTls": "8443", "tlsCertificateFilePath": "/c"}, "tlsKeyFilePath is not se"),
        (
            {"webServicePortTls": "8443", "webServiceTlsProtocols": "TLSv1", **FILES},
            "webServiceTlsProtocols: 'TLSv1' is not supported",
        ),
        (
            {"brokerServicePortTls": "1", "tlsRequireTrustedClientCertOnConnect": "true", **FILES},
            "needs tlsTrustCertsFilePath",
        ),
        ({"brokerServicePortTls": "70000"}, "whole number of at least 0 and at most 65535"),
        ({"tlsEnabledWithKeyStore": "true"}, "Vela reads PEM files"),
        ({"tlsEnabled": "true"}, "set brokerServicePortTls and webServicePortTls"),
        ({"tlsCertificateFilePaht": "/x"}, "did you mean 'tlsCertificateFilePath'"),
    ],
)
def test_keys_that_do_not_fit_together_are_refused(values, told):
    with pytest.raises(ConfigError, match=told):
        read(**values)


@pytest.mark.parametrize(
    ("ports", "told"),
    [
        ({"brokerServicePortTls": "6651"}, "TLS is at brokerServicePortTls=6651"),
        (
            {"brokerServicePortTls": "6651", "webServicePortTls": "8443"},
            "TLS is at brokerServicePortTls=6651 and webServicePortTls=8443",
        ),
    ],
)
def test_the_old_switch_of_tls_is_a_notice_beside_the_ports_that_it_asks_for(ports, told):
    given = {"tlsEnabled": "true", **ports, **FILES}
    settings = [Setting(key, value, "test") for key, value in given.items()]
    of_cluster = {"metadataStoreUrl": "zk:a:1", "clusterName": "a"}
    for rules, own in ((BROKER_KEYS, {}), (CLUSTER_KEYS, of_cluster)):
        notices = build_config(rules, settings, own).notices
        assert [(each.setting.key, each.text) for each in notices] == [
            ("tlsEnabled", f"has no effect: {told}")
        ]
