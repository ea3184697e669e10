"""The server side of TLS: contexts made of PEM files that are looked at again while they are used.

A context is for the connections that come after it was made; those that are open keep theirs. Files
that are being replaced do not match each other for a while: the former context stays in use, and
one line in the log says so. At start the same faults refuse the start.

Clients are asked for a certificate if there are authorities that it can be verified by. As in Java,
each certificate of that file is an authority, also one that another has signed.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NoReturn, final

import structlog
import trio

from security.handshakes import Handshakes
from security.openssl import limit, reason_of
from security.pem import PemFiles, check_pair, content_of, invalidity_of
from security.tls_rules import path_of
from security.tls_suites import UnusableTls
from security.tls_transport import TlsTransport

if TYPE_CHECKING:
    from runtime.transport import Transport
    from security.tls_rules import TlsRules

log = structlog.get_logger()

CHECK_SECONDS_MIN: Final = 1.0
"""0 means for every new connection in Pulsar: so often is nearly the same, and costs connections
nothing."""


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


def _read(rules: TlsRules) -> PemFiles:
    """Raises: UnusableTls."""
    return PemFiles(
        content_of(rules.names.certificate, rules.certificate_path),
        content_of(rules.names.key, rules.key_path),
        content_of(rules.names.trusted, rules.trusted_path) if _asks(rules) else b"",
    )


def _asks(rules: TlsRules) -> bool:
    """Whether clients are asked for certificates."""
    return bool(rules.trusted_path) and not rules.accepts_untrusted


def _context(rules: TlsRules, files: PemFiles) -> ssl.SSLContext:
    """Raises: UnusableTls."""
    _check_pair(rules, files)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    limit(context, rules.choice)
    try:
        context.load_cert_chain(
            path_of(rules.certificate_path), path_of(rules.key_path), password=_no_password
        )
    except (ssl.SSLError, OSError, ValueError) as error:
        raise UnusableTls(
            f"{rules.names.certificate}={rules.certificate_path} and "
            f"{rules.names.key}={rules.key_path} cannot be used: {reason_of(error)}"
        ) from None
    if _asks(rules):
        try:
            context.load_verify_locations(cadata=files.trusted.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise UnusableTls(
                f"{rules.names.trusted}={rules.trusted_path} has no certificates in PEM form"
            ) from None
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        required = rules.requires_client_certificate
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    invalidity = invalidity_of(files.certificates, datetime.now(UTC))
    if invalidity:
        log.warning(
            "clients that check the certificate refuse it",
            certificate=rules.certificate_path,
            reason=invalidity,
        )
    return context


def _check_pair(rules: TlsRules, files: PemFiles) -> None:
    """Raises: UnusableTls."""
    check_pair(
        f"{rules.names.certificate}={rules.certificate_path}",
        files.certificates,
        f"{rules.names.key}={rules.key_path}",
        files.key,
    )


def _no_password() -> NoReturn:
    """OpenSSL would ask at the terminal."""
    raise ValueError("the key is encrypted")


@final
class TlsPort:
    """One listening port with TLS: its contexts, and what its connections share. `run` uses files
    that have changed."""

    def __init__(self, rules: TlsRules) -> None:
        """Reads the files. Raises: UnusableTls."""
        self._contexts = TlsContexts(rules)
        self.handshakes = Handshakes()

    async def run(self) -> None:
        """Until cancelled."""
        await self._contexts.run()

    def over(self, below: Transport) -> TlsTransport:
        """The transport of a new connection."""
        return TlsTransport(below, self._contexts.current, self.handshakes)
