"""The client side of TLS: how a member of a cluster reaches the others.

The files are looked at again while the process runs. Connections that are open keep their context.
"""

from __future__ import annotations

import math
import ssl
from typing import TYPE_CHECKING, final

import structlog
import trio

from security.openssl import limit, reason_of
from security.pem import PemFiles, check_pair, content_of, first_certificate
from security.tls import CHECK_SECONDS_MIN
from security.tls_rules import path_of
from security.tls_suites import UnusableTls

if TYPE_CHECKING:
    from security.tls_rules import TlsClientRules

log = structlog.get_logger()


@final
class TlsClientContexts:
    """The context for new connections."""

    def __init__(self, rules: TlsClientRules) -> None:
        """Reads the files. Raises: UnusableTls."""
        self._rules = rules
        self._files = _read(rules)
        self._context = _context(rules, self._files)
        self._looked_at = -math.inf
        self._told = ""

    async def current(self) -> ssl.SSLContext:
        """The context of the newest files that fit together. Looks at them if that is due."""
        now = trio.current_time()
        if now - self._looked_at >= max(CHECK_SECONDS_MIN, self._rules.check_seconds):
            self._looked_at = now
            await self.check()
        return self._context

    def certificate(self) -> bytes | None:
        """The certificate that is shown to servers, without the chain above it (DER); None:
        none."""
        return first_certificate(self._files.certificates)

    async def check(self) -> None:
        """Use the files if they have changed and fit together."""
        await trio.to_thread.run_sync(self.look)

    def look(self) -> ssl.SSLContext:
        """The same, by a caller that may wait for files. The context that is used then."""
        try:
            made = self._made_of_changed()
        except UnusableTls as error:
            if str(error) != self._told:
                self._told = str(error)
                log.error("new TLS files are not used, the former ones stay", reason=self._told)
            return self._context
        self._told = ""
        if made is not None:
            self._context, self._files = made
            log.info("new TLS files are used", certificate=self._rules.certificate_path)
        return self._context

    def _made_of_changed(self) -> tuple[ssl.SSLContext, PemFiles] | None:
        files = _read(self._rules)
        return None if files == self._files else (_context(self._rules, files), files)


def _read(rules: TlsClientRules) -> PemFiles:
    """Raises: UnusableTls."""
    names = rules.names
    shows = bool(rules.certificate_path or rules.key_path)
    return PemFiles(
        content_of(names.certificate, rules.certificate_path) if shows else b"",
        content_of(names.key, rules.key_path) if shows else b"",
        content_of(names.trusted, rules.trusted_path) if rules.trusted_path else b"",
    )


def _context(rules: TlsClientRules, files: PemFiles) -> ssl.SSLContext:
    """Raises: UnusableTls."""
    names = rules.names
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    limit(context, rules.choice)
    context.check_hostname = rules.verifies_host_name and not rules.accepts_untrusted
    context.verify_mode = ssl.CERT_NONE if rules.accepts_untrusted else ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not rules.trusted_path:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(cadata=files.trusted.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise UnusableTls(
                f"{names.trusted}={rules.trusted_path} has no certificates in PEM form"
            ) from None
    if files.certificates or files.key:
        certificate_name = f"{names.certificate}={rules.certificate_path}"
        key_name = f"{names.key}={rules.key_path}"
        check_pair(certificate_name, files.certificates, key_name, files.key)
        try:
            context.load_cert_chain(
                path_of(rules.certificate_path), path_of(rules.key_path), password=lambda: ""
            )
        except (ssl.SSLError, OSError, ValueError) as error:
            raise UnusableTls(
                f"{certificate_name} and {key_name} cannot be used: {reason_of(error)}"
            ) from None
    return context
