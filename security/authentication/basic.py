"""Pulsar's AuthenticationProviderBasic: the users and passwords of a file of Apache's `htpasswd`.

Hashes are apr1 (`htpasswd -m`), crypt (`-d`) as in Pulsar, and also bcrypt (`-B`), the only one
that resists guessing if the file is stolen. They are computed in a thread. A password that was
right is remembered by a keyed digest, whose key dies with the process: tools send theirs with every
request.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from typing import TYPE_CHECKING, ClassVar, Final, final

from passlib.hash import apr_md5_crypt, bcrypt, des_crypt

from security.authentication.identity import (
    BASIC_METHOD,
    AuthenticationFailed,
    Evidence,
    Flaw,
    Headers,
    Identity,
    ProviderRefused,
)
from security.authentication.key_sources import read_source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from security.authentication.config import AuthenticationConfig
    from security.authentication.verification import Verifications

PASSWORD_BYTES_MAX: Final = 1_024
_BASIC: Final = "Basic "
_WRONG: Final = "unknown user or wrong password"
BCRYPT_COST_MAX: Final = 16
"""One password takes some seconds with it, and twice as long with each more."""
_NO_HASH: Final = (
    "is not user:hash with a hash of apr1, bcrypt or crypt; make it with htpasswd -m or -B"
)
_KINDS: Final = (
    (re.compile(r"\$apr1\$"), apr_md5_crypt),
    (re.compile(r"\$2[aby]\$"), bcrypt),
    (re.compile(r"[A-Za-z0-9./]{13}$"), des_crypt),
)


@final
class BasicProvider:
    """The users of one file."""

    name = "AuthenticationProviderBasic"
    method = BASIC_METHOD
    counts_expiry = False
    reasons: ClassVar[Mapping[Flaw, str]] = {
        Flaw.OTHER: "UNKNOWN",
        Flaw.HEADER: "INVALID_HEADER",
        Flaw.MALFORMED: "INVALID_AUTH_DATA",
        Flaw.UNKNOWN_USER: "INVALID_AUTH_DATA",
        Flaw.PASSWORD: "INVALID_TOKEN",
    }

    def __init__(self, hashes: Mapping[str, str], verifications: Verifications) -> None:
        self._hashes = hashes
        self._stored = tuple(hashes.values())
        self._verifications = verifications
        self._digest_key = secrets.token_bytes(32)
        self._digests: dict[str, bytes] = {}
        """The digests of right passwords, by user."""

    async def authenticate(self, evidence: Evidence) -> Identity:
        """Raises: AuthenticationFailed."""
        user, colon, password = evidence.data.partition(b":")
        if not colon or len(password) > PASSWORD_BYTES_MAX:
            raise AuthenticationFailed("the credential is not user:password", Flaw.MALFORMED)
        name = user.decode("utf-8", "replace")
        digest = hashlib.blake2b(password, key=self._digest_key).digest()
        if not hmac.compare_digest(self._digests.get(name, b""), digest):
            await self._verify(name, password)
            self._digests[name] = digest
        return Identity(name, BASIC_METHOD)

    async def _verify(self, name: str, password: bytes) -> None:
        stored = self._hashes.get(name)
        right = await self._verifications.hash(_matches, password, stored or self._decoy(name))
        if stored is None or not right:
            raise AuthenticationFailed(
                _WRONG, Flaw.UNKNOWN_USER if stored is None else Flaw.PASSWORD
            )

    def _decoy(self, name: str) -> str:
        """A hash for a user that is unknown, always the same one: otherwise the time would show
        which users are known, also where the hashes of users take different times."""
        digest = hashlib.blake2b(name.encode(), key=self._digest_key, digest_size=8).digest()
        return self._stored[int.from_bytes(digest) % len(self._stored)]

    def credential_of(self, headers: Headers) -> bytes:
        """RFC 7617. Raises: AuthenticationFailed."""
        header = headers.get("authorization", "")
        if not header.startswith(_BASIC):
            raise AuthenticationFailed("there is no header 'Authorization: Basic'", Flaw.HEADER)
        try:
            return base64.b64decode(header.removeprefix(_BASIC), validate=True)
        except (binascii.Error, ValueError):
            raise AuthenticationFailed(
                "the header 'Authorization' is not in base64", Flaw.HEADER
            ) from None


def basic_provider(config: AuthenticationConfig, verifications: Verifications) -> BasicProvider:
    """As configured. Raises: ProviderRefused."""
    if not config.basicAuthConf:
        raise ProviderRefused("AuthenticationProviderBasic needs basicAuthConf")
    text = read_source("basicAuthConf", config.basicAuthConf).decode("utf-8", "replace")
    hashes: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        user, colon, stored = line.strip().partition(":")
        flaw = _flaw_of(stored) if user and colon else _NO_HASH
        if flaw:
            raise ProviderRefused(f"basicAuthConf: line {number} {flaw}")
        hashes[user] = stored
    if not hashes:
        raise ProviderRefused("basicAuthConf names no user")
    return BasicProvider(hashes, verifications)


def _flaw_of(stored: str) -> str:
    """Why this is no hash for which a password can be checked; empty: it is one."""
    scheme = next((scheme for kind, scheme in _KINDS if kind.match(stored)), None)
    try:
        if scheme is None or not scheme.from_string(stored).checksum:
            return _NO_HASH
        cost = scheme.from_string(stored).rounds if scheme is bcrypt else 0
    except (ValueError, TypeError):
        return _NO_HASH
    if cost > BCRYPT_COST_MAX:
        return (
            f"has a hash of bcrypt with the cost {cost}, which takes too long; at most"
            f" {BCRYPT_COST_MAX} is served: make it with htpasswd -B -C 12"
        )
    return ""


def _matches(password: bytes, stored: str) -> bool:
    """Slow on purpose."""
    for kind, scheme in _KINDS:
        if kind.match(stored):
            try:
                return bool(scheme.verify(password, stored))
            except (ValueError, TypeError):
                return False
    raise AssertionError("the hash was checked when it was read")
