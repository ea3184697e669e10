"""How OpenSSL is used: versions and cipher suites of a context, the words of its errors, and the
number of bytes that it takes and returns in one turn of the event loop.

A record may hold one byte, or none: a stranger may send empty records, and each costs the same.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from security.tls_suites import TLS_1_2, UnusableTls

if TYPE_CHECKING:
    from security.tls_suites import TlsChoice

_VERSION: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
FED_BYTES: Final = 32 * 1024
"""Given to OpenSSL at a time."""
FED_BYTES_MIN: Final = 4 * 1024
"""The same if the last ones brought less than `GAIN_MIN` of their size: OpenSSL handles a row of
key updates in one call, which takes 15 us for each. Such a turn also ends after them."""
GAIN_MIN: Final = 0.25
READS_PER_TURN: Final = 256
"""Calls of OpenSSL in a turn. Each gives one record, which may be of one byte."""


def limit(context: ssl.SSLContext, choice: TlsChoice) -> None:
    """Allow nothing else. Raises: UnusableTls: a cipher that this OpenSSL does not have."""
    agreed = choice.negotiable()
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
            raise UnusableTls(f"{choice.ciphers_key}: this OpenSSL has no cipher {name}")


def reason_of(error: Exception) -> str:
    """The words of an error of OpenSSL, without the place in its source."""
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_message:
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return str(error) or type(error).__name__
