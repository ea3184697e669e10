"""The versions and cipher suites of a context, for servers and for clients."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from security.tls_suites import TLS_1_2, UnusableTls

if TYPE_CHECKING:
    from security.tls_suites import TlsChoice

_VERSION: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


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
