"""The keys of TLS to bookies: what is taken, and what is refused."""

from __future__ import annotations

import pytest

from autorecovery.config import AUTORECOVERY_KEYS, AutorecoveryConfig
from bookie.process.tests.test_tls import ON
from ledgers.remote.tls_keys import client_tls
from settings.reading import ConfigError, load_config


def load(tmp_path, changes):
    path = tmp_path / "bookkeeper.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in (ON | changes).items()))
    return load_config(AUTORECOVERY_KEYS, [path], {})


def test_autorecovery_uses_the_files_of_the_bookie_unless_it_has_its_own(tmp_path):
    rules = client_tls(load(tmp_path, {}).config)
    assert (rules.certificate_path, rules.key_path) == ("/c.pem", "/k.pem")
    assert rules.trusted_path == "/t.pem"
    own = {"clientKeyStore": "/ck.pem", "clientKeyStoreType": "PEM"}
    own |= {"clientTrustStore": "/ct.pem", "clientTrustStoreType": "PEM"}
    rules = client_tls(load(tmp_path, own).config)
    assert (rules.key_path, rules.trusted_path) == ("/ck.pem", "/ct.pem")

    assert client_tls(AutorecoveryConfig()) is None


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"clientKeyStore": "/x"}, "clientKeyStoreType=JKS is not supported"),
        ({"clientTrustStore": "/x"}, "clientTrustStoreType=JKS is not supported"),
        ({"tlsTrustStore": ""}, "clientTrustStore is not set"),
        ({"tlsKeyStore": ""}, "clientKeyStore is not set"),
        ({"clientAuthProviderFactoryClass": "x.Y"}, "set tlsClientAuthentication"),
    ],
)
def test_keys_that_do_not_go_together_are_refused_in_one_line(tmp_path, changes, complaint):
    with pytest.raises(ConfigError, match=complaint) as refused:
        load(tmp_path, changes)
    assert "\n" not in str(refused.value)
