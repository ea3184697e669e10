"""The keys of TLS of a bookie: what is taken, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bookie.errors import BookieRefusesToStart
from bookie.process.config import BOOKIE_KEYS, BookieProcessConfig
from bookie.process.identity import Identity
from bookie.process.running import running_bookie
from bookie.process.tls import server_tls
from security.testing.certificates import Authority
from settings.reading import ConfigError, load_config

ON = {
    "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
    "tlsClientAuthentication": "true",
    "tlsKeyStoreType": "PEM",
    "tlsKeyStore": "/k.pem",
    "tlsCertificatePath": "/c.pem",
    "tlsTrustStoreType": "PEM",
    "tlsTrustStore": "/t.pem",
}


def load(tmp_path, changes):
    path = tmp_path / "bookkeeper.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in (ON | changes).items()))
    return load_config(BOOKIE_KEYS, [path], {})


def test_the_files_of_a_bookie_are_those_that_bookkeeper_names(tmp_path):
    loaded = load(tmp_path, {"tlsProvider": "OpenSSL"})
    rules = server_tls(loaded.config)
    assert (rules.certificate_path, rules.key_path) == ("/c.pem", "/k.pem")
    assert (rules.trusted_path, rules.requires_client_certificate) == ("/t.pem", True)
    assert server_tls(BookieProcessConfig()) is None
    once = replace(loaded.config, tlsCertFilesRefreshDurationSeconds=0)
    assert server_tls(once).check_seconds == math.inf
    offered = load(tmp_path, {"tlsClientAuthentication": "false"}).config
    assert server_tls(offered).trusted_path == ""


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"tlsProviderFactoryClass": "org.example.Own"}, "org.example.Own is not sup"),
        ({"tlsKeyStoreType": "JKS"}, "tlsKeyStoreType=JKS .*set PEM.*openssl pkcs12"),
        ({"tlsTrustStoreType": "PKCS12"}, "tlsTrustStoreType=PKCS12 .*openssl pkcs12"),
        ({"tlsKeyStore": ""}, "tlsKeyStore is not set"),
        ({"tlsCertificatePath": ""}, "tlsCertificatePath is not set"),
        ({"tlsTrustStore": ""}, "tlsClientAuthentication needs tlsTrustStore"),
        ({"tlsEnabledProtocols": "SSLv3"}, "tlsEnabledProtocols: 'SSLv3'"),
        (
            {"bookieSocketPath": "/b", "metadataServiceUri": "metadata-store:unix:/m"},
            "TLS is for bookies that have a port",
        ),
        ({"tlsKeyStoreTypo": "PEM"}, "did you mean 'tlsKeyStoreType'"),
        ({"bookieAuthProviderFactoryClass": "x.Y"}, "set tlsClientAuthentication"),
    ],
)
def test_keys_that_do_not_go_together_are_refused_in_one_line(tmp_path, changes, complaint):
    with pytest.raises(ConfigError, match=complaint) as refused:
        load(tmp_path, changes)
    assert "\n" not in str(refused.value)


async def test_files_that_cannot_be_used_refuse_the_start_of_a_bookie(tmp_path):
    root = Authority("root")
    certificate, key = root.issue("bookie").write(tmp_path, "bookie")
    _, other_key = root.issue("bookie").write(tmp_path, "other")
    files = {"tlsKeyStore": key, "tlsCertificatePath": certificate}
    files["tlsTrustStore"] = root.write(tmp_path)
    for changes, complaint in (
        ({"tlsKeyStore": "/none"}, "tlsKeyStore=/none cannot be read: No such file"),
        ({"tlsKeyStore": other_key}, "is not the key of the certificate in tlsCertificatePath="),
        ({"tlsTrustStore": key}, "tlsTrustStore=.* has no certificates in PEM form"),
    ):
        config = load(tmp_path, files | changes).config
        with pytest.raises(BookieRefusesToStart, match=complaint) as refused:
            async with running_bookie(config, Identity("b", "h", "127.0.0.1"), no_store):
                raise AssertionError("it has started")
        assert "\n" not in str(refused.value)


async def no_store():
    raise AssertionError("the files are looked at first")
