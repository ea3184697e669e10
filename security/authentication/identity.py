"""The questions to providers, and their answers. Pure.

No text of an error contains a credential or a part of one: it goes to the log. Peers learn only
that authentication failed, because a reason would help to guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Protocol, final

TOKEN_METHOD: Final = "token"
BASIC_METHOD: Final = "basic"
TLS_METHOD: Final = "tls"
CREDENTIAL_BYTES_MAX: Final = 64 * 1024
"""A larger one is refused before anything looks at it."""

Headers = Mapping[str, str]
"""The headers of an HTTP request, with lower-case names."""


class Flaw(Enum):
    """The kinds of faults of credentials, which metrics count."""

    OTHER = auto()
    NOTHING_SHOWN = auto()
    HEADER = auto()
    """A header of an HTTP request."""
    MALFORMED = auto()
    ALGORITHM = auto()
    SIGNATURE = auto()
    EXPIRED = auto()
    CLAIM = auto()
    AUDIENCE = auto()
    ISSUER = auto()
    """A token of an issuer that is not trusted."""
    ISSUER_FAILS = auto()
    """Its documents cannot be had, or are not usable."""
    UNKNOWN_KEY = auto()
    UNKNOWN_USER = auto()
    PASSWORD = auto()
    CERTIFICATE = auto()
    COMMON_NAME = auto()


class AuthenticationFailed(Exception):
    """The credentials are not accepted. The text says why, for the log of the broker."""

    def __init__(self, text: str, flaw: Flaw = Flaw.OTHER) -> None:
        super().__init__(text)
        self.flaw = flaw


class CredentialUnreadable(Exception):
    """The file that holds a credential of this process cannot be read now. The text names it."""


class ProviderRefused(Exception):
    """A provider cannot be used as configured. The text is one line for the user, with the key."""


@final
@dataclass(frozen=True, slots=True)
class Evidence:
    """The credentials that a peer shows."""

    data: bytes = field(repr=False)
    """The credential."""
    certificate: bytes | None = None
    """The certificate of the TLS connection (DER), verified; None: the peer has shown none."""


@final
@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a peer."""

    role: str
    method: str
    """The name of the method by which it was found out."""
    expires_at: float | None = None
    """Unix time in seconds, after which the credential has to be renewed; None: never."""


class Provider(Protocol):
    """One way to authenticate."""

    @property
    def name(self) -> str:
        """The name of its class in Pulsar, for metrics."""

    @property
    def reasons(self) -> Mapping[Flaw, str]:
        """Pulsar's codes of what is wrong, for metrics; `Flaw.OTHER` has that of all others."""

    @property
    def counts_expiry(self) -> bool:
        """Whether metrics show how long its credentials still count, and how many did no more."""

    @property
    def method(self) -> str:
        """Its name in CONNECT and in `X-Pulsar-Auth-Method-Name`. Several providers may have the
        same."""

    async def authenticate(self, evidence: Evidence) -> Identity:
        """Raises: AuthenticationFailed."""

    def credential_of(self, headers: Headers) -> bytes:
        """The credential in an HTTP request. Raises: AuthenticationFailed: there is none."""
