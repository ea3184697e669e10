"""The role in a certificate."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from security.authentication.certificate import CertificateProvider
from security.authentication.identity import AuthenticationFailed, Evidence
from security.authentication.tests.tokens import ec_key
from security.testing.certificates import Authority


def certificate(*names: tuple[x509.ObjectIdentifier, str]) -> bytes:
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in names])
    now = datetime.datetime.now(datetime.UTC)
    key = ec_key()
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


CN = NameOID.COMMON_NAME
O = NameOID.ORGANIZATION_NAME  # noqa: E741 - as it is written in names


@pytest.mark.parametrize(
    ("names", "role"),
    [
        (((CN, "alice"),), "alice"),
        (((O, "Vela"), (CN, "alice")), "alice"),
        (((CN, "first"), (CN, "last")), "last"),
        (((O, "x,CN=admin"), (CN, "alice")), "alice"),
        (((CN, "alice,CN=admin"),), "alice,CN=admin"),
    ],
)
async def test_the_role_is_the_common_name(names, role):
    evidence = Evidence(b"", certificate(*names))
    assert (await CertificateProvider().authenticate(evidence)).role == role


@pytest.mark.parametrize("shown", [None, b"", b"x", certificate(), certificate((O, "Vela"))])
async def test_without_a_common_name_there_is_no_role(shown):
    with pytest.raises(AuthenticationFailed):
        await CertificateProvider().authenticate(Evidence(b"alice", shown))


async def test_a_certificate_never_expires_by_itself():
    """TLS has looked at its dates when the connection was made, as in Pulsar."""
    shown = Evidence(b"", Authority("root").issue("alice").der)
    assert (await CertificateProvider().authenticate(shown)).expires_at is None
