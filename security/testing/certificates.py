"""Authorities and certificates for tests, made when they are needed."""

from __future__ import annotations

import datetime
import ipaddress
from typing import TYPE_CHECKING, final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

_DAY = datetime.timedelta(days=1)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@final
class Credentials:
    """A certificate with its key and the certificates that lead to its root."""

    def __init__(
        self,
        key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey,
        certificate: x509.Certificate,
        intermediates: list[x509.Certificate],
    ) -> None:
        self.certificate = certificate
        self._key = key
        self._intermediates = intermediates

    @property
    def der(self) -> bytes:
        """The certificate alone."""
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def chain_pem(self) -> bytes:
        """The certificate, then those of its intermediate authorities."""
        return b"".join(map(_pem, [self.certificate, *self._intermediates]))

    def key_pem(self, password: bytes = b"") -> bytes:
        """PKCS #8, encrypted if there is a password."""
        encryption = BestAvailableEncryption(password) if password else NoEncryption()
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)

    def write(self, directory: Path, name: str) -> tuple[str, str]:
        """Paths of the chain and of the key."""
        chain, key = directory / f"{name}.cert.pem", directory / f"{name}.key.pem"
        chain.write_bytes(self.chain_pem)
        key.write_bytes(self.key_pem())
        return str(chain), str(key)


@final
class Authority:
    """Signs certificates. Without `above` it is a root."""

    def __init__(self, common_name: str, above: Authority | None = None) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._above = above
        issuer, key = (self, self._key) if above is None else (above, above._key)
        self._subject = _name(common_name)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self.certificate = (
            _builder(self._subject, issuer._subject, self._key.public_key(), 3650)
            .add_extension(constraints, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        """Its certificate."""
        return _pem(self.certificate)

    def write(self, directory: Path, name: str = "ca") -> str:
        """The path of its certificate."""
        path = directory / f"{name}.pem"
        path.write_bytes(self.pem)
        return str(path)

    def issue(
        self, common_name: str, *hosts: str, days: int = 30, rsa_bits: int = 0
    ) -> Credentials:
        """A certificate for a server with these host names or addresses, or for a client. Negative
        `days`: it has expired. With `rsa_bits` its key is RSA, otherwise of an elliptic curve."""
        key = (
            rsa.generate_private_key(public_exponent=65537, key_size=rsa_bits)
            if rsa_bits
            else ec.generate_private_key(ec.SECP256R1())
        )
        builder = _builder(_name(common_name), self._subject, key.public_key(), days)
        if hosts:
            names = x509.SubjectAlternativeName(map(_alternative_name, hosts))
            builder = builder.add_extension(names, critical=False)
        chain = [] if self._above is None else [self.certificate]
        return Credentials(key, builder.sign(self._key, hashes.SHA256()), chain)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    days: int,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    end = now + days * _DAY
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - _DAY)
        .not_valid_after(end)
    )
