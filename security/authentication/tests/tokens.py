"""Keys and tokens for tests, made by PyJWT alone."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from functools import cache

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

SECRET = bytes(range(32))
NOW = 1_700_000_000.0


@cache
def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@cache
def ec_key(curve: type[ec.EllipticCurve] = ec.SECP256R1) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve())


def public_bytes(private, encoding=serialization.Encoding.DER) -> bytes:
    kind = serialization.PublicFormat.SubjectPublicKeyInfo
    return private.public_key().public_bytes(encoding, kind)


def token(key=SECRET, algorithm="HS256", headers=None, **claims) -> str:
    payload = json.dumps({"sub": "alice", **claims}).encode()
    return jwt.PyJWS().encode(payload, key, algorithm=algorithm, headers=headers)


def part(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unsigned(algorithm: object = "none", **claims) -> str:
    """A token without a signature, with an empty third part."""
    return f"{part({'alg': algorithm})}.{part({'sub': 'alice', **claims})}."


def signed_by_hand(secret: bytes, header: dict, claims: dict) -> str:
    """HS256 whatever the header says and the library would refuse."""
    text = f"{part(header)}.{part(claims)}"
    return f"{text}.{part(hmac.digest(secret, text.encode(), hashlib.sha256))}"
