"""Contexts for servers: what files and keys are refused with, and files that change."""

from __future__ import annotations

import os
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
import trio

from runtime.testing.conditions import SECONDS_MAX, eventually
from security.testing.certificates import Authority
from security.tls import TlsContexts
from security.tls_rules import TlsRules, violated_rule
from security.tls_suites import TlsChoice, UnusableTls


@pytest.fixture(scope="module")
def authority():
    return Authority("test root")


@pytest.fixture(scope="module")
def credentials(authority):
    return authority.issue("localhost", "localhost", "127.0.0.1")


@pytest.fixture
def rules(tmp_path, authority, credentials):
    certificate, key = credentials.write(tmp_path, "server")
    return TlsRules(
        certificate_path=certificate, key_path=key, trusted_path=authority.write(tmp_path)
    )


def shaken(server, client, host="localhost"):
    """The versions and certificates after a handshake in memory. Raises: ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = client.wrap_bio(to_client, to_server, server_hostname=host)
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (theirs, ours):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    try:
        theirs.read(1)  # with TLS 1.3 a refused certificate shows here
    except ssl.SSLWantReadError:
        pass
    return ours, theirs


def client_context(authority, credentials=None, tmp_path=None):
    context = ssl.create_default_context(cadata=authority.pem.decode())
    if credentials is not None:
        context.load_cert_chain(*credentials.write(tmp_path, "client"))
    return context


def test_a_client_verifies_the_host_name(rules, authority):
    server = TlsContexts(rules).current
    ours, theirs = shaken(server, client_context(authority))
    assert theirs.version() == "TLSv1.3"
    assert ours.getpeercert(binary_form=True) is None
    with pytest.raises(ssl.SSLCertVerificationError, match=r"Hostname mismatch"):
        shaken(server, client_context(authority), "other.example")
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(server, client_context(Authority("a stranger")))


def test_a_client_certificate_is_asked_for_and_known(rules, authority, tmp_path):
    client = authority.issue("the-role")
    ours, _ = shaken(TlsContexts(rules).current, client_context(authority, client, tmp_path))
    assert ours.getpeercert(binary_form=True) == client.der


def test_a_certificate_of_a_stranger_is_refused(rules, authority, tmp_path):
    stranger = Authority("a stranger").issue("the-role")
    with pytest.raises(ssl.SSLError, match=r"verify failed"):
        shaken(TlsContexts(rules).current, client_context(authority, stranger, tmp_path))


def test_an_expired_client_certificate_is_refused(rules, authority, tmp_path):
    expired = authority.issue("the-role", days=-1)
    with pytest.raises(ssl.SSLError, match=r"has expired"):
        shaken(TlsContexts(rules).current, client_context(authority, expired, tmp_path))


def test_a_required_certificate_that_is_missing_ends_the_handshake(rules, authority, tmp_path):
    server = TlsContexts(replace(rules, requires_client_certificate=True)).current
    with pytest.raises(ssl.SSLError, match=r"did not return a certificate"):
        shaken(server, client_context(authority))
    shaken(server, client_context(authority, authority.issue("a role"), tmp_path))


def test_with_insecure_connections_allowed_no_certificate_is_asked_for(rules, authority, tmp_path):
    server = TlsContexts(replace(rules, accepts_untrusted=True)).current
    stranger = Authority("a stranger").issue("the-role")
    ours, _ = shaken(server, client_context(authority, stranger, tmp_path))
    assert ours.getpeercert(binary_form=True) is None


def test_chains_with_an_intermediate_authority_verify_both_ways(tmp_path):
    root = Authority("root")
    middle = Authority("middle", root)
    certificate, key = middle.issue("localhost", "localhost").write(tmp_path, "server")
    rules = TlsRules(certificate_path=certificate, key_path=key, trusted_path=root.write(tmp_path))
    client = middle.issue("a-role")
    ours, _ = shaken(TlsContexts(rules).current, client_context(root, client, tmp_path))
    assert ours.getpeercert(binary_form=True) == client.der
    # As in Java, an authority that another has signed may be trusted by itself.
    only_middle = replace(rules, trusted_path=middle.write(tmp_path, "middle"))
    shaken(TlsContexts(only_middle).current, client_context(root, client, tmp_path))


def test_renegotiation_is_off_and_old_versions_are_refused(rules, authority):
    server = TlsContexts(rules).current
    assert server.options & ssl.OP_NO_RENEGOTIATION
    assert server.minimum_version == ssl.TLSVersion.TLSv1_2
    old = client_context(authority)
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert shaken(server, old)[1].version() == "TLSv1.2"
    with pytest.raises(ssl.SSLError):
        shaken(TlsContexts(replace(rules, choice=TlsChoice(protocols=("TLSv1.3",)))).current, old)


def test_named_ciphers_are_the_only_ones(rules, authority):
    name = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    server = TlsContexts(replace(rules, choice=TlsChoice(ciphers=(name,)))).current
    _, theirs = shaken(server, client_context(authority))
    assert theirs.cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
    assert theirs.version() == "TLSv1.2"


def test_file_urls_are_paths(rules):
    url = f"file://{rules.certificate_path}"
    TlsContexts(replace(rules, certificate_path=url, key_path=f"file://{rules.key_path}"))


def broken(rules, tmp_path, what):
    """The rules with one fault, and what is said of it."""
    path = tmp_path / "broken.pem"
    if what == "missing":
        return replace(rules, key_path=str(path)), r"tlsKeyFilePath=.*cannot be read: No such file"
    if what == "directory":
        told = "tlsCertificateFilePath=.*Is a directory"
        return replace(rules, certificate_path=str(tmp_path)), told
    if what == "pipe":
        os.mkfifo(path)
        return replace(rules, key_path=str(path)), "tlsKeyFilePath=.*not a regular file"
    if what == "endless":
        trusted = replace(rules, trusted_path="/dev/zero")
        return trusted, "tlsTrustCertsFilePath=.*not a regular file"
    if what == "no certificate":
        path.write_text("hello")
        return (
            replace(rules, certificate_path=str(path)),
            "tlsCertificateFilePath=.*has no certificate in PEM form",
        )
    if what == "no key":
        path.write_bytes(Path(rules.certificate_path).read_bytes())
        return replace(rules, key_path=str(path)), "tlsKeyFilePath=.*no private key in PEM form"
    if what == "no authorities":
        path.write_text("-----BEGIN nothing")
        return (
            replace(rules, trusted_path=str(path)),
            "tlsTrustCertsFilePath=.*has no certificates in PEM form",
        )
    if what == "another key":
        path.write_bytes(Authority("x").issue("x").key_pem())
        return replace(rules, key_path=str(path)), "tlsKeyFilePath=.*is not the key of the cert"
    assert what == "encrypted"
    path.write_bytes(Authority("x").issue("x").key_pem(b"secret"))
    return replace(rules, key_path=str(path)), "tlsKeyFilePath=.*is encrypted: store it without"


@pytest.mark.parametrize(
    "what",
    [
        "missing",
        "directory",
        "pipe",
        "endless",
        "no certificate",
        "no key",
        "no authorities",
        "another key",
        "encrypted",
    ],
)
def test_a_file_that_cannot_be_used_is_named_in_one_line(rules, tmp_path, what):
    faulty, told = broken(rules, tmp_path, what)
    with pytest.raises(UnusableTls, match=told) as raised:
        TlsContexts(faulty)
    assert "\n" not in str(raised.value)


def test_unknown_ciphers_are_named(rules):
    with pytest.raises(UnusableTls, match=r"tlsCiphers: this OpenSSL has no cipher ALL"):
        TlsContexts(replace(rules, choice=TlsChoice(ciphers=("ALL",))))
    with pytest.raises(UnusableTls, match=r"tlsCiphers: this OpenSSL has no cipher NONSENSE"):
        TlsContexts(replace(rules, choice=TlsChoice(ciphers=("NONSENSE",))))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, ""),
        ({"certificate_path": ""}, "tlsCertificateFilePath is not set"),
        ({"key_path": ""}, "tlsKeyFilePath is not set"),
        ({"requires_client_certificate": True, "trusted_path": ""}, "needs tlsTrustCertsFilePath"),
        ({"requires_client_certificate": True, "accepts_untrusted": True}, "contradict each other"),
        ({"choice": TlsChoice(protocols=("TLSv1",))}, "tlsProtocols: 'TLSv1' is not supported"),
    ],
)
def test_keys_that_do_not_fit_together_are_told_without_reading_files(changes, told):
    rules = TlsRules(certificate_path="/none", key_path="/none", trusted_path="/none")
    violated = violated_rule(replace(rules, **changes))
    assert told in violated
    assert bool(told) == bool(violated)


def replaced(path, content):
    """As tools do it: a new file in the place of the old one."""
    beside = f"{path}.new"
    Path(beside).write_bytes(content)
    os.replace(beside, path)


async def test_a_changed_pair_is_used_for_new_connections(rules, authority):
    contexts = TlsContexts(rules)
    first = contexts.current
    await contexts.check()
    assert contexts.current is first
    renewed = authority.issue("localhost", "localhost")
    replaced(rules.certificate_path, renewed.chain_pem)
    replaced(rules.key_path, renewed.key_pem())
    await contexts.check()
    _, theirs = shaken(contexts.current, client_context(authority))
    assert theirs.getpeercert(binary_form=True) == renewed.der


async def test_a_half_replaced_pair_keeps_the_former_one_and_is_told_once(
    rules, authority, credentials
):
    contexts = TlsContexts(rules)
    renewed = authority.issue("localhost", "localhost")
    replaced(rules.certificate_path, renewed.chain_pem)
    with structlog.testing.capture_logs() as logs:
        await contexts.check()
        await contexts.check()
    assert [each["log_level"] for each in logs] == ["error"]
    assert "is not the key of the certificate" in logs[0]["reason"]
    _, theirs = shaken(contexts.current, client_context(authority))
    assert theirs.getpeercert(binary_form=True) == credentials.der
    replaced(rules.key_path, renewed.key_pem())
    await contexts.check()
    _, theirs = shaken(contexts.current, client_context(authority))
    assert theirs.getpeercert(binary_form=True) == renewed.der


def test_an_expired_certificate_is_told_at_the_start(rules, authority):
    credentials = authority.issue("localhost", "localhost", days=-1)
    replaced(rules.certificate_path, credentials.chain_pem)
    replaced(rules.key_path, credentials.key_pem())
    with structlog.testing.capture_logs() as logs:
        TlsContexts(rules)
    assert [each["log_level"] for each in logs] == ["warning"]
    assert "it expired at" in logs[0]["reason"]


async def test_a_pipe_in_the_place_of_a_file_does_not_stop_the_looks(rules, authority):
    """A thread that waits for a writer could not be ended, and the process not be stopped."""
    contexts = TlsContexts(rules)
    first, aside = contexts.current, f"{rules.key_path}.aside"
    os.rename(rules.key_path, aside)
    os.mkfifo(rules.key_path)
    with structlog.testing.capture_logs() as logs, trio.fail_after(SECONDS_MAX):
        await contexts.check()
    assert "not a regular file" in logs[0]["reason"]
    assert contexts.current is first
    os.replace(aside, rules.key_path)
    await contexts.check()
    assert contexts.current is first


async def test_files_are_looked_at_after_the_configured_time(rules, authority, autojump_clock):
    contexts = TlsContexts(replace(rules, check_seconds=300))
    first = contexts.current
    renewed = authority.issue("localhost", "localhost")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(contexts.run)
        await trio.sleep(200)
        replaced(rules.certificate_path, renewed.chain_pem)
        replaced(rules.key_path, renewed.key_pem())
        assert contexts.current is first
        await trio.sleep(150)
        await eventually(lambda: contexts.current is not first)
        nursery.cancel_scope.cancel()
