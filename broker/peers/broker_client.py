"""How this broker connects to others of its cluster as a client: with or without TLS, as which
role."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

if TYPE_CHECKING:
    import ssl

    from security.authentication.own_credentials import Header, OwnCredentials
    from security.tls_client import TlsClientContexts


@final
class Shown(NamedTuple):
    """The credentials in CONNECT."""

    method: str
    """Empty: nothing is shown."""
    data: bytes


@final
class BrokerClient:
    """See the module docstring."""

    def __init__(
        self, tls: TlsClientContexts | None = None, credentials: OwnCredentials | None = None
    ) -> None:
        """`tls` None: without. `credentials` None: nothing is shown."""
        self._tls = tls
        self._credentials = credentials
        self.scheme: Final = "http" if tls is None else "https"

    @property
    def is_secure(self) -> bool:
        """Whether connections have TLS."""
        return self._tls is not None

    def certificate(self) -> bytes | None:
        """The certificate of connections (DER); None: they show none."""
        return None if self._tls is None else self._tls.certificate()

    async def context(self) -> ssl.SSLContext | None:
        """For a new connection; None: without TLS."""
        return None if self._tls is None else await self._tls.current()

    async def shown(self) -> Shown:
        """For CONNECT or AUTH_RESPONSE, as it is now. Raises: CredentialUnreadable."""
        credentials = self._credentials
        if credentials is None:
            return Shown("", b"")
        return Shown(credentials.method, await trio.to_thread.run_sync(credentials.read))

    async def headers(self) -> tuple[Header, ...]:
        """For an HTTP request, as it is now. Raises: CredentialUnreadable."""
        credentials = self._credentials
        if credentials is None:
            return ()
        return credentials.headers(await trio.to_thread.run_sync(credentials.read))


ANONYMOUS: Final = BrokerClient()
"""Without TLS, and shows nothing."""
