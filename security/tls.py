"""The server side of TLS: contexts made of PEM files that are looked at again while they are used.

A context is for the connections that come after it was made; those that are open keep theirs. Files
that are being replaced do not match each other for a while: the former context stays in use, and
one line in the log says so. At start the same faults refuse the start.

Clients are asked for a certificate if there are authorities that it can be verified by. As in Java,
each certificate of that file is an authority, also one that another has signed.
"""

from __future__ import annotations

import hashlib
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, final
from urllib.parse import unquote, urlsplit

import structlog
import trio
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from security.tls_rules import negotiable_of
from security.tls_suites import TLS_1_2, UnusableTls

if TYPE_CHECKING:
    from security.tls_rules import TlsRules

log = structlog.get_logger()

CHECK_SECONDS_MIN: Final = 1.0
"""0 means for every new connection in Pulsar: so often is nearly the same, and costs connections
nothing."""
_VERSION: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_FILE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Larger than the certificates of all public authorities."""


@final
@dataclass(frozen=True, slots=True)
class _Files:
    """The content of the files, as read at one time."""

    certificates: bytes
    key: bytes
    trusted: bytes

    @property
    def fingerprint(self) -> bytes:
        parts = (self.certificates, self.key, self.trusted)
        return b"".join(hashlib.sha256(part).digest() for part in parts)


@final
class TlsContexts:
    """The context for new connections. `run` looks at the files again; without it they count as
    they were at first."""

    def __init__(self, rules: TlsRules) -> None:
        """Reads the files. Raises: UnusableTls."""
        self._rules = rules
        files = _read(rules)
        self._fingerprint = files.fingerprint
        self._told = ""
        self.current = _context(rules, files)

    async def run(self) -> None:
        """Look at the files again and again, until cancelled."""
        while True:
            await trio.sleep(max(CHECK_SECONDS_MIN, self._rules.check_seconds))
            await self.check()

    async def check(self) -> None:
        """Use the files if they have changed and fit together."""
        try:
            made = await trio.to_thread.run_sync(self._made_of_changed)
        except UnusableTls as error:
            if str(error) != self._told:
                self._told = str(error)
                log.error("new TLS files are not used, the former ones stay", reason=self._told)
            return
        self._told = ""
        if made is not None:
            self.current, self._fingerprint = made
            log.info("new TLS files are used", certificate=self._rules.certificate_path)

    def _made_of_changed(self) -> tuple[ssl.SSLContext, bytes] | None:
        files = _read(self._rules)
        fingerprint = files.fingerprint
        if fingerprint == self._fingerprint:
            return None
        return _context(self._rules, files), fingerprint


def path_of(path_or_url: str) -> str:
    """The path of a `file:` URL; any other text is a path."""
    if not path_or_url.startswith("file:"):
        return path_or_url
    return unquote(urlsplit(path_or_url).path)


def _read(rules: TlsRules) -> _Files:
    """Raises: UnusableTls."""
    return _Files(
        _content("tlsCertificateFilePath", rules.certificate_path),
        _content("tlsKeyFilePath", rules.key_path),
        _content("tlsTrustCertsFilePath", rules.trusted_path) if _asks(rules) else b"",
    )


def _asks(rules: TlsRules) -> bool:
    """Whether clients are asked for certificates."""
    return bool(rules.trusted_path) and not rules.accepts_untrusted


def _content(key: str, path: str) -> bytes:
    try:
        with open(path_of(path), "rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UnusableTls(f"{key}={path} cannot be read: {error.strerror or error}") from None
    if len(content) > _FILE_BYTES_MAX:
        raise UnusableTls(f"{key}={path} is larger than any PEM file")
    return content


def _context(rules: TlsRules, files: _Files) -> ssl.SSLContext:
    """Raises: UnusableTls."""
    _check_pair(rules, files)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    _limit(context, rules)
    try:
        context.load_cert_chain(
            path_of(rules.certificate_path), path_of(rules.key_path), password=_no_password
        )
    except (ssl.SSLError, OSError, ValueError) as error:
        raise UnusableTls(
            f"tlsCertificateFilePath={rules.certificate_path} and tlsKeyFilePath={rules.key_path} "
            f"cannot be used: {reason_of(error)}"
        ) from None
    if _asks(rules):
        try:
            context.load_verify_locations(cadata=files.trusted.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise UnusableTls(
                f"tlsTrustCertsFilePath={rules.trusted_path} has no certificates in PEM form"
            ) from None
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        required = rules.requires_client_certificate
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def _limit(context: ssl.SSLContext, rules: TlsRules) -> None:
    """Versions and suites. Raises: UnusableTls."""
    agreed = negotiable_of(rules)
    context.minimum_version = _VERSION[agreed.versions[0]]
    context.maximum_version = _VERSION[agreed.versions[-1]]
    if not agreed.suites or TLS_1_2 not in agreed.versions:
        return
    try:
        context.set_ciphers(":".join(agreed.suites))
        known = {each["name"] for each in context.get_ciphers()}
    except ssl.SSLError:
        known = set()
    for name in agreed.suites:
        if name not in known:
            raise UnusableTls(f"{rules.ciphers_key}: this OpenSSL has no cipher {name}")


def _check_pair(rules: TlsRules, files: _Files) -> None:
    """Tell a fault of the files in words, which OpenSSL does not. Raises: UnusableTls."""
    certificate_name = f"tlsCertificateFilePath={rules.certificate_path}"
    key_name = f"tlsKeyFilePath={rules.key_path}"
    try:
        certificate = x509.load_pem_x509_certificates(files.certificates)[0]
        of_certificate = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise UnusableTls(f"{certificate_name} has no certificate in PEM form") from None
    try:
        key = load_pem_private_key(files.key, password=None)
    except TypeError:
        raise UnusableTls(
            f"{key_name} is encrypted: store it without a password, readable by the broker alone"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise UnusableTls(f"{key_name} has no private key in PEM form") from None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*form) != of_certificate.public_bytes(*form):
        raise UnusableTls(f"{key_name} is not the key of the certificate in {certificate_name}")


def _no_password() -> NoReturn:
    """OpenSSL would ask at the terminal."""
    raise ValueError("the key is encrypted")


def reason_of(error: Exception) -> str:
    """The words of an error of OpenSSL, without the place in its source."""
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_message:
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return str(error) or type(error).__name__
