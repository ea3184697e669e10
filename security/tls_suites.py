"""The TLS versions and cipher suites that keys of the configuration name. Pure.

Pulsar takes the names of Java: `TLSv1.3,TLSv1.2`, and suites by their IANA names. OpenSSL's own
names of suites are accepted, too. The suites of TLS 1.3 cannot be chosen one by one through
Python's `ssl`, so either all of them are named, or none, which leaves TLS 1.2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Sequence

TLS_1_2: Final = "TLSv1.2"
TLS_1_3: Final = "TLSv1.3"
VERSIONS: Final = (TLS_1_2, TLS_1_3)
TLS_1_3_SUITES: Final = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
"""RFC 8446 B.4, as far as OpenSSL offers them by default."""

_IANA: Final = re.compile(r"(?:TLS|SSL)_(?P<exchange>[A-Z_]+?)_WITH_(?P<cipher>[A-Z0-9_]+)")


class UnusableTls(Exception):
    """TLS as configured is not possible. The text is one line for the user, and names the key."""


@final
@dataclass(frozen=True, slots=True)
class Negotiable:
    """The versions and cipher suites that one side accepts."""

    versions: tuple[str, ...] = VERSIONS
    """One or both of VERSIONS, the lower first."""
    suites: tuple[str, ...] = ()
    """OpenSSL's names of suites of TLS 1.2; empty: those that are on by default."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TlsChoice:
    """The values of two keys of a configuration, and their names; an empty value asks for the
    default."""

    protocols: tuple[str, ...] = ()
    ciphers: tuple[str, ...] = ()
    protocols_key: str = "tlsProtocols"
    ciphers_key: str = "tlsCiphers"

    def negotiable(self) -> Negotiable:
        """The versions and suites that the values name. Raises: UnusableTls."""
        versions = _versions(self.protocols, self.protocols_key)
        if not self.ciphers:
            return Negotiable(versions)
        of_1_3 = [name for name in self.ciphers if name in TLS_1_3_SUITES]
        if of_1_3 and len(set(of_1_3)) < len(TLS_1_3_SUITES):
            raise UnusableTls(
                f"{self.ciphers_key}: the ciphers of TLS 1.3 can only be chosen together: name all "
                f"of {', '.join(TLS_1_3_SUITES)}, or none of them for TLS 1.2 alone"
            )
        suites = tuple(_openssl_name(name) for name in self.ciphers if name not in TLS_1_3_SUITES)
        usable = {TLS_1_3: bool(of_1_3), TLS_1_2: bool(suites)}
        left = tuple(version for version in versions if usable[version])
        if not left:
            raise UnusableTls(
                f"{self.ciphers_key} names no cipher of {' or '.join(versions)}, and "
                f"{self.protocols_key} allows nothing else"
            )
        return Negotiable(left, suites)

    def violated_rule(self) -> str:
        """The sentence about values that do not fit together, or an empty one."""
        try:
            self.negotiable()
        except UnusableTls as error:
            return str(error)
        return ""


ANY: Final = TlsChoice()
"""Nothing is chosen: both versions, with OpenSSL's suites."""


def _versions(protocols: Sequence[str], key: str) -> tuple[str, ...]:
    for name in protocols:
        if name not in VERSIONS:
            raise UnusableTls(
                f"{key}: {name!r} is not supported: name {TLS_1_3}, {TLS_1_2} or both"
            )
    return tuple(version for version in VERSIONS if not protocols or version in protocols)


def _openssl_name(name: str) -> str:
    """`ECDHE-RSA-AES128-GCM-SHA256` of `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`; another name is
    returned as it is."""
    found = _IANA.fullmatch(name)
    if found is None:
        return name
    exchange = found["exchange"].replace("_", "-")
    cipher = re.sub(r"AES_(\d+)", r"AES\1", found["cipher"])
    cipher = cipher.replace("_CBC", "").replace("_", "-")
    if cipher.startswith("CHACHA20"):
        cipher = cipher.removesuffix("-SHA256")
    return cipher if exchange == "RSA" else f"{exchange}-{cipher}"
