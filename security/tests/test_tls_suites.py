"""Names of versions and suites, as Pulsar's files have them."""

from __future__ import annotations

import ssl

import pytest

from security.tls_suites import TLS_1_3_SUITES, TlsChoice, UnusableTls


def negotiable(protocols, ciphers):
    return TlsChoice(protocols=protocols, ciphers=ciphers).negotiable()


def test_without_values_both_versions_are_spoken():
    agreed = negotiable((), ())
    assert agreed.versions == ("TLSv1.2", "TLSv1.3")
    assert agreed.suites == ()


@pytest.mark.parametrize(
    ("protocols", "versions"),
    [
        (("TLSv1.3", "TLSv1.2"), ("TLSv1.2", "TLSv1.3")),
        (("TLSv1.3",), ("TLSv1.3",)),
        (("TLSv1.2",), ("TLSv1.2",)),
    ],
)
def test_versions_are_those_that_are_named(protocols, versions):
    assert negotiable(protocols, ()).versions == versions


@pytest.mark.parametrize("name", ["TLSv1.1", "TLSv1", "SSLv3", "tls1.3", "x"])
def test_other_versions_are_refused_with_the_key(name):
    with pytest.raises(UnusableTls, match=r"tlsProtocols: '.*' is not supported: name TLSv1\.3"):
        negotiable(("TLSv1.2", name), ())


def test_names_of_java_are_those_of_openssl():
    context = ssl.create_default_context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    known = {each["name"] for each in context.get_ciphers()}
    for name in (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
        "TLS_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_RSA_WITH_AES_256_CBC_SHA256",
    ):
        agreed = negotiable((), (name,))
        assert agreed.suites[0] in known
        assert agreed.versions == ("TLSv1.2",)


def test_openssls_own_names_are_accepted():
    name = "ECDHE-RSA-AES128-GCM-SHA256"
    assert negotiable((), (name,)).suites == (name,)


def test_all_suites_of_tls_1_3_or_none():
    assert negotiable((), TLS_1_3_SUITES).versions == ("TLSv1.3",)
    with pytest.raises(UnusableTls, match=r"tlsCiphers: the ciphers of TLS 1.3 can only be chosen"):
        negotiable((), TLS_1_3_SUITES[:1])


def test_versions_and_suites_have_to_fit_together():
    with pytest.raises(UnusableTls, match=r"tlsCiphers names no cipher of TLSv1.3"):
        negotiable(("TLSv1.3",), ("ECDHE-RSA-AES128-GCM-SHA256",))
