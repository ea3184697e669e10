"""The client's contexts: files that change, and files that cannot be used."""

from __future__ import annotations

import os
import ssl

import pytest
from structlog.testing import capture_logs

from security.testing.certificates import Authority
from security.tests.test_tls import shaken
from security.tls import TlsContexts
from security.tls_client import TlsClientContexts
from security.tls_rules import TlsClientRules, TlsRules, missing_file
from security.tls_suites import TlsChoice, UnusableTls


@pytest.fixture
def files(tmp_path):
    authority = Authority("root")
    certificate, key = authority.issue("broker").write(tmp_path, "broker")
    return {
        "trusted_path": authority.write(tmp_path),
        "certificate_path": certificate,
        "key_path": key,
    }


async def test_files_that_have_changed_are_used_for_new_connections(files, tmp_path):
    contexts = TlsClientContexts(TlsClientRules(**files, check_seconds=0))
    first = await contexts.current()
    shown = contexts.certificate()
    assert await contexts.current() is first
    Authority("root").issue("other").write(tmp_path, "broker")
    await contexts.check()
    second = await contexts.current()
    assert second is not first
    assert contexts.certificate() != shown


async def test_a_half_replaced_pair_keeps_the_former_one_and_is_told_once(files, tmp_path):
    contexts = TlsClientContexts(TlsClientRules(**files))
    first = await contexts.current()
    (tmp_path / "broker.key.pem").write_bytes(Authority("other").issue("x").key_pem())
    with capture_logs() as logs:
        await contexts.check()
        await contexts.check()
    assert await contexts.current() is first
    [line] = logs
    assert "brokerClientKeyFilePath=" in line["reason"]


def test_servers_are_verified_unless_that_is_off(files):
    assert TlsClientContexts(TlsClientRules(**files))._context.verify_mode == ssl.CERT_REQUIRED
    lenient = TlsClientContexts(TlsClientRules(**files, accepts_untrusted=True))
    assert lenient._context.verify_mode == ssl.CERT_NONE
    assert TlsClientContexts(TlsClientRules()).certificate() is None


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"trusted_path": "/none"}, "brokerClientTrustCertsFilePath=/none cannot be read: No such"),
        ({"certificate_path": ""}, "brokerClientCertificateFilePath= cannot be read"),
        ({"key_path": "/\0"}, "brokerClientKeyFilePath=.* cannot be read"),
    ],
)
def test_files_that_cannot_be_used_are_named(files, changed, line):
    with pytest.raises(UnusableTls, match=line):
        TlsClientContexts(TlsClientRules(**(files | changed)))


def test_a_pipe_is_refused_and_not_waited_for(files, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnusableTls, match=r"brokerClientKeyFilePath=.* not a regular file"):
        TlsClientContexts(TlsClientRules(**(files | {"key_path": str(tmp_path / "pipe")})))


def test_a_key_of_another_certificate_or_in_another_form_is_told(files, tmp_path):
    _, other = Authority("x").issue("x").write(tmp_path, "other")
    with pytest.raises(UnusableTls, match="is not the key of the certificate in"):
        TlsClientContexts(TlsClientRules(**(files | {"key_path": other})))
    with pytest.raises(UnusableTls, match="has no certificates in PEM form"):
        TlsClientContexts(TlsClientRules(**(files | {"trusted_path": files["key_path"]})))


@pytest.mark.parametrize(
    ("choice", "spoken"),
    [
        (TlsChoice(protocols=("TLSv1.2",)), ("TLSv1.2", None)),
        (TlsChoice(protocols=("TLSv1.3",)), ("TLSv1.3", None)),
        (
            TlsChoice(ciphers=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",)),
            ("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ),
    ],
)
def test_nothing_is_offered_but_the_named_versions_and_ciphers(files, choice, spoken):
    server = TlsContexts(
        TlsRules(certificate_path=files["certificate_path"], key_path=files["key_path"])
    )
    client = TlsClientContexts(TlsClientRules(**files, choice=choice)).look()
    _, theirs = shaken(server.current, client, host="broker")
    version, cipher = spoken
    assert theirs.version() == version
    assert cipher in (None, theirs.cipher()[0])


def test_a_cipher_that_cannot_be_offered_is_named(files):
    choice = TlsChoice(ciphers=("NONSENSE",), ciphers_key="brokerClientTlsCiphers")
    with pytest.raises(UnusableTls, match="brokerClientTlsCiphers: this OpenSSL has no cipher NON"):
        TlsClientContexts(TlsClientRules(**files, choice=choice))


@pytest.mark.parametrize("lacking", ["trusted_path", "certificate_path", "key_path"])
def test_a_key_that_is_not_set_is_named(files, lacking):
    assert missing_file(TlsClientRules(**files)) == ""
    assert "is not set" in missing_file(TlsClientRules(**(files | {lacking: ""})))
