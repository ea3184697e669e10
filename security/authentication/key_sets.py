"""Documents that an issuer publishes: where its keys are, and the keys. Pure.

OpenID Connect Discovery 1.0, section 4; JSON Web Key Sets, RFC 7517, 5. Another process wrote them:
whatever they hold ends in `AuthenticationFailed`, and what cannot verify a token is left out.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from jwt import PyJWK

from security.authentication.identity import AuthenticationFailed, Flaw
from security.authentication.signatures import VerificationKey, verifying

if TYPE_CHECKING:
    from collections.abc import Mapping

WELL_KNOWN: Final = "/.well-known/openid-configuration"
KEYS_MAX: Final = 100
_ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "ES256", "ES384", "ES512"})
"""The algorithms of Pulsar's provider."""
_PUBLIC: Final = ("kty", "alg", "n", "e", "crv", "x", "y")
"""Members of public keys. To make sense of those of a private key can take libraries minutes."""
_MEMBER_CHARS_MAX: Final = 2_800
"""In base64url: RSA with 16,384 bits, beyond which OpenSSL does not verify."""


def discovery_url(issuer: str) -> str:
    """Where the issuer describes itself."""
    return issuer.rstrip("/") + WELL_KNOWN


def keys_url_of(document: bytes, issuer: str) -> str:
    """Where the keys are, from the description at `discovery_url`.

    Raises: AuthenticationFailed: it is none, or that of another issuer (section 4.3).
    """
    found = _json_object(document, "the description of the issuer")
    url = found.get("jwks_uri")
    if found.get("issuer") != issuer:
        raise AuthenticationFailed(
            f"the description at {discovery_url(issuer)} is not of {issuer}", Flaw.ISSUER_FAILS
        )
    scheme = issuer.partition("://")[0]
    if not isinstance(url, str) or not url.startswith((f"{scheme}://", "https://")):
        raise AuthenticationFailed(
            f"{issuer} publishes no jwks_uri of its own scheme", Flaw.ISSUER_FAILS
        )
    return url


def keys_of(document: bytes) -> Mapping[str, VerificationKey]:
    """The keys by their id. Each verifies the one algorithm that it names, if it names one.

    Raises: AuthenticationFailed: this is no set of keys.
    """
    found = _json_object(document, "the set of keys").get("keys")
    if not isinstance(found, list):
        raise AuthenticationFailed("the set of keys has no list of keys", Flaw.ISSUER_FAILS)
    keys: dict[str, VerificationKey] = {}
    for each in found[:KEYS_MAX]:
        key_id = each.get("kid") if isinstance(each, dict) else None
        if isinstance(key_id, str) and (key := _key_of(each)) is not None:
            keys[key_id] = key
    return keys


def _key_of(entry: dict[str, Any]) -> VerificationKey | None:
    """None: it cannot verify tokens. Many issuers leave `alg` out: then the kind of key decides."""
    algorithm = entry.get("alg")
    public: dict[str, Any] = {name: entry[name] for name in _PUBLIC if name in entry}
    if not all(
        isinstance(each, str) and len(each) <= _MEMBER_CHARS_MAX for each in public.values()
    ):
        return None
    try:
        found = verifying(PyJWK(public).key)
    except Exception:  # any exception that the document of a stranger causes in libraries
        return None
    wanted = _ALGORITHMS if algorithm is None else _ALGORITHMS & {str(algorithm)}
    algorithms = found.algorithms & wanted
    return replace(found, algorithms=algorithms) if algorithms else None


def _json_object(document: bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(document)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise AuthenticationFailed(f"{what} is not a JSON object", Flaw.ISSUER_FAILS)
    return value
