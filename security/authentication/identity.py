"""What providers are asked, and what they answer. Pure.

No text of an error contains a credential or a part of one: it goes to the log. Peers are told only
that authentication failed, because a reason would help to guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, final

TOKEN_METHOD: Final = "token"
BASIC_METHOD: Final = "basic"
TLS_METHOD: Final = "tls"
CREDENTIAL_BYTES_MAX: Final = 64 * 1024
"""A larger one is refused before anything looks at it."""

Headers = Mapping[str, str]
"""Of an HTTP request, with lower-case names."""


class AuthenticationFailed(Exception):
    """The credentials are not accepted. The text says why, for the log of the broker."""


class CredentialUnreadable(Exception):
    """The file that holds a credential of this process cannot be read now. The text names it."""


class ProviderRefused(Exception):
    """A provider cannot be used as configured. The text is one line for the user, with the key."""


@final
@dataclass(frozen=True, slots=True)
class Evidence:
    """What a peer shows of itself."""

    data: bytes = field(repr=False)
    """The credential."""
    certificate: bytes | None = None
    """The certificate of the TLS connection (DER), verified; None: the peer has shown none."""


@final
@dataclass(frozen=True, slots=True)
class Identity:
    """Who a peer is."""

    role: str
    method: str
    """The name of the method by which it was found out."""
    expires_at: float | None = None
    """Unix time in seconds, after which the credential has to be renewed; None: never."""


class Provider(Protocol):
    """One way to authenticate."""

    @property
    def method(self) -> str:
        """Its name in CONNECT and in `X-Pulsar-Auth-Method-Name`. Several providers may have the
        same."""

    async def authenticate(self, evidence: Evidence) -> Identity:
        """Raises: AuthenticationFailed."""

    def credential_of(self, headers: Headers) -> bytes:
        """The credential in an HTTP request. Raises: AuthenticationFailed: there is none."""
