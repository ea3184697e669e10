"""Signatures of JSON Web Tokens: which key verifies which algorithms, and what a signed token says.
Pure.

Only the key decides which algorithms count, never the token: a token without a signature
(`alg: none`), or one signed with a public key as if that were a secret, is therefore refused (RFC
8725, 3.1). The sizes of keys are those that RFC 7518 demands, as in Pulsar's library.

A token is in the compact form, each part in the one canonical base64url spelling: no two texts are
the same token.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key
from jwt import PyJWS
from jwt.exceptions import InvalidAlgorithmError, InvalidSignatureError, PyJWTError

from security.authentication.identity import AuthenticationFailed, Flaw

if TYPE_CHECKING:
    from collections.abc import Mapping

Claims = dict[str, Any]
"""The claims of a token, as JSON values."""

_COMPACT: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)", re.ASCII)
_SECRET_BYTES_MIN: Final[Mapping[str, int]] = {"HS256": 32, "HS384": 48, "HS512": 64}
_RSA_BITS_MIN: Final = 2048
_OF_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_OF_CURVE: Final[Mapping[str, str]] = {
    "secp256r1": "ES256",
    "secp384r1": "ES384",
    "secp521r1": "ES512",
}
_JWS: Final = PyJWS()


class KeyUnfit(ValueError):
    """A key cannot verify tokens. The text says why, and shows nothing of the key."""


@final
@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A key, and the algorithms (RFC 7518, 3.1) whose signatures it may verify."""

    key: bytes | rsa.RSAPublicKey | ec.EllipticCurvePublicKey = field(repr=False)
    algorithms: frozenset[str]


def key_of_secret(secret: bytes) -> VerificationKey:
    """The key of tokens signed with a shared secret. Raises: KeyUnfit."""
    algorithms = frozenset(name for name, size in _SECRET_BYTES_MIN.items() if len(secret) >= size)
    if not algorithms:
        raise KeyUnfit(f"the secret has {len(secret)} bytes; at least 32 are needed")
    return VerificationKey(secret, algorithms)


def key_of_public(data: bytes) -> VerificationKey:
    """From a SubjectPublicKeyInfo in DER or PEM. Raises: KeyUnfit."""
    try:
        is_pem = data.lstrip().startswith(b"-----BEGIN")
        key = load_pem_public_key(data) if is_pem else load_der_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise KeyUnfit("it is no public key in DER or PEM (X.509 SubjectPublicKeyInfo)") from None
    return verifying(key)


def verifying(key: object) -> VerificationKey:
    """With the algorithms for which the public key is fit. Raises: KeyUnfit."""
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < _RSA_BITS_MIN:
            raise KeyUnfit(f"the RSA key has {key.key_size} bits; at least 2048 are needed")
        return VerificationKey(key, _OF_RSA)
    if isinstance(key, ec.EllipticCurvePublicKey):
        algorithm = _OF_CURVE.get(key.curve.name)
        if algorithm is not None:
            return VerificationKey(key, frozenset({algorithm}))
    raise KeyUnfit("it is neither an RSA key nor one on the curve P-256, P-384 or P-521")


def header_of(token: str) -> Claims:
    """The header of the token, before anything is verified: only good to choose a key.

    Raises: AuthenticationFailed: the token is malformed.
    """
    return _json_object(_parts(token)[0])


def unverified_claims(token: str) -> Claims:
    """The same of the payload. Raises: AuthenticationFailed."""
    return _json_object(_parts(token)[1])


def verified_claims(token: str, key: VerificationKey) -> Claims:
    """The claims of the token, once its signature is verified. Raises: AuthenticationFailed."""
    _parts(token)
    try:
        payload = _JWS.decode(token, key.key, algorithms=sorted(key.algorithms))
    except InvalidAlgorithmError:
        raise AuthenticationFailed(
            f"the token is not signed with one of {', '.join(sorted(key.algorithms))}",
            Flaw.ALGORITHM,
        ) from None
    except InvalidSignatureError:
        raise AuthenticationFailed(
            "the signature of the token does not match the key", Flaw.SIGNATURE
        ) from None
    except (PyJWTError, ValueError, TypeError, RecursionError):
        raise AuthenticationFailed("the token is malformed", Flaw.MALFORMED) from None
    return _json_object(payload)


def _parts(token: str) -> tuple[bytes, bytes]:
    """Header and payload. Raises: AuthenticationFailed."""
    match = _COMPACT.fullmatch(token)
    if match is None:
        raise AuthenticationFailed(
            "the token is no JSON Web Token with a signature", Flaw.MALFORMED
        )
    header, payload, _signature = map(_decoded, match.groups())
    return header, payload


def _decoded(part: str) -> bytes:
    try:
        data = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError:
        data = b""
    if base64.urlsafe_b64encode(data).rstrip(b"=") != part.encode("ascii"):
        raise AuthenticationFailed("the token is not in base64url", Flaw.MALFORMED)
    return data


def _json_object(data: bytes) -> Claims:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise AuthenticationFailed("a part of the token is not a JSON object", Flaw.MALFORMED)
    return value
