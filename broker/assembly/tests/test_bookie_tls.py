"""The keys of TLS from brokers to bookies: what is taken, and what is refused."""

from __future__ import annotations

import pytest

from broker.assembly.bookie_tls import secured
from broker.assembly.cluster_config import CLUSTER_KEYS, ClusterBrokerConfig
from broker.assembly.parts import StartError
from security.testing.certificates import Authority
from settings.reading import ConfigError, Setting, build_config

ON = {
    "bookkeeperTLSClientAuthentication": "true",
    "bookkeeperTLSKeyFilePath": "/k.pem",
    "bookkeeperTLSCertificateFilePath": "/c.pem",
    "bookkeeperTLSTrustCertsFilePath": "/t.pem",
}


def built(changes):
    given = {"metadataStoreUrl": "zk:a:1", "clusterName": "c"} | ON | changes
    settings = [Setting(key, value, "test") for key, value in given.items()]
    return build_config(CLUSTER_KEYS, settings, {}).config


def test_without_the_key_that_turns_it_on_there_is_none():
    assert secured(ClusterBrokerConfig()) is None
    assert secured(built({"bookkeeperTLSClientAuthentication": "false"})) is None


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"bookkeeperTLSProviderFactoryClass": "x.Y"}, "ProviderFactoryClass=x.Y is not supported"),
        ({"bookkeeperTLSKeyFileType": "JKS"}, "KeyFileType=JKS is not supported, set PEM"),
        ({"bookkeeperTLSTrustCertTypes": "JKS"}, "TrustCertTypes=JKS is not supported, set PEM"),
        ({"bookkeeperTLSKeyFilePath": ""}, "bookkeeperTLSKeyFilePath is not set"),
        ({"bookkeeperTLSCertificateFilePath": ""}, "needs bookkeeperTLSCertificateFilePath"),
        ({"bookkeeperClientAuthenticationPlugin": "x.Y"}, "bookies know Vela's brokers by"),
        ({"bookkeeperTLSTrustCertsFilePath": ""}, "bookkeeperTLSTrustCertsFilePath is not set"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(changes, complaint):
    with pytest.raises(ConfigError, match=complaint):
        built(changes)


def test_files_that_cannot_be_used_refuse_the_start(tmp_path):
    with pytest.raises(StartError, match=r"TLSCertificateFilePath=/c.pem cannot be read"):
        secured(built({}))
    root = Authority("root")
    certificate, key = root.issue("broker").write(tmp_path, "broker")
    _, other = root.issue("broker").write(tmp_path, "other")
    files = {
        "bookkeeperTLSCertificateFilePath": certificate,
        "bookkeeperTLSKeyFilePath": key,
        "bookkeeperTLSTrustCertsFilePath": root.write(tmp_path),
    }
    assert secured(built(files)) is not None
    with pytest.raises(StartError, match=r"bookkeeperTLSKeyFilePath=.* is not the key of"):
        secured(built(files | {"bookkeeperTLSKeyFilePath": other}))
