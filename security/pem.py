"""Files in PEM form that a configuration names. Error texts name the file and the key of the
configuration, because those of OpenSSL name neither.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from security.tls_rules import path_of
from security.tls_suites import UnusableTls
from settings.plain_file import read_plain_file

if TYPE_CHECKING:
    from datetime import datetime

_FILE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Larger than the certificates of all public authorities."""


@final
@dataclass(frozen=True, slots=True)
class PemFiles:
    """The content of the files, as read at one time; empty: there is no such file."""

    certificates: bytes
    key: bytes = field(repr=False)
    trusted: bytes

    @property
    def fingerprint(self) -> bytes:
        """Equal for the same content."""
        parts = (self.certificates, self.key, self.trusted)
        return b"".join(hashlib.sha256(part).digest() for part in parts)


def content_of(key: str, path: str) -> bytes:
    """The content of the file that `key` names. Raises: UnusableTls."""
    try:
        content = read_plain_file(path_of(path), _FILE_BYTES_MAX)
    except (OSError, ValueError) as error:  # ValueError: of a path with a zero byte
        reason = error.strerror if isinstance(error, OSError) else None
        raise UnusableTls(f"{key}={path} cannot be read: {reason or error}") from None
    if len(content) > _FILE_BYTES_MAX:
        raise UnusableTls(f"{key}={path} is larger than any PEM file")
    return content


def first_certificate(certificates: bytes) -> bytes | None:
    """In DER; None: there is none."""
    if not certificates:
        return None
    return x509.load_pem_x509_certificates(certificates)[0].public_bytes(Encoding.DER)


def invalidity_of(certificates: bytes, now: datetime) -> str:
    """Why clients refuse the first certificate at this time; empty: they need not."""
    certificate = x509.load_pem_x509_certificates(certificates)[0]
    if certificate.not_valid_after_utc < now:
        return f"it expired at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    if certificate.not_valid_before_utc > now:
        return f"it is valid from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on"
    return ""


def check_pair(certificate_name: str, certificates: bytes, key_name: str, key: bytes) -> None:
    """Whether the key is that of the first certificate. The names are `key=path`.

    Raises: UnusableTls.
    """
    try:
        certificate = x509.load_pem_x509_certificates(certificates)[0]
        of_certificate = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise UnusableTls(f"{certificate_name} has no certificate in PEM form") from None
    try:
        private_key = load_pem_private_key(key, password=None)
    except TypeError:
        raise UnusableTls(
            f"{key_name} is encrypted: store it without a password, readable by the server alone"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise UnusableTls(f"{key_name} has no private key in PEM form") from None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if private_key.public_key().public_bytes(*form) != of_certificate.public_bytes(*form):
        raise UnusableTls(f"{key_name} is not the key of the certificate in {certificate_name}")
