"""`vela tokens`: makes keys and tokens, and looks at tokens, with the options of `pulsar tokens`.

Tokens and keys are the same as those of real Pulsar's command: a token of one is valid for brokers
of the other. Files with secrets can be read by their owner only.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import sys
import time
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from runtime.command_line import FilePath, refuse
from security.authentication.claims import ClaimRules
from security.authentication.identity import AuthenticationFailed, ProviderRefused
from security.authentication.key_sources import read_source
from security.authentication.signatures import (
    KeyUnfit,
    VerificationKey,
    header_of,
    key_of_public,
    key_of_secret,
    unverified_claims,
    verified_claims,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

_SECRET_BYTES: Final[Mapping[str, int]] = {"HS256": 32, "HS384": 48, "HS512": 64}
_RSA_BITS: Final[Mapping[str, int]] = {
    "RS256": 2048,
    "RS384": 3072,
    "RS512": 4096,
    "PS256": 2048,
    "PS384": 3072,
    "PS512": 4096,
}
_CURVES: Final[Mapping[str, type[ec.EllipticCurve]]] = {
    "ES256": ec.SECP256R1,
    "ES384": ec.SECP384R1,
    "ES512": ec.SECP521R1,
}
_OF_KEY_PAIRS: Final = (*_RSA_BITS, *_CURVES)
_UNIT_SECONDS: Final[Mapping[str, int]] = {
    "": 1,
    "s": 1,
    "m": 60,
    "h": 3_600,
    "d": 86_400,
    "w": 7 * 86_400,
    "y": 365 * 86_400,
}
_DURATION: Final = re.compile(r"(\d{1,9})([smhdwy]?)", re.IGNORECASE | re.ASCII)


@click.group()
def command() -> None:
    """Make and check the tokens of AuthenticationProviderToken."""


def _algorithm(choices: tuple[str, ...], default: str) -> Callable[[Any], Any]:
    return click.option(
        "-a",
        "--signature-algorithm",
        "algorithm",
        type=click.Choice(choices),
        default=default,
        show_default=True,
        help="How tokens are signed.",
    )


@command.command("create-secret-key")
@_algorithm(tuple(_SECRET_BYTES), "HS256")
@click.option("-o", "--output", type=FilePath(), help="File [default: stdout].")
@click.option("-b", "--base64", "in_base64", is_flag=True, help="Write base64 instead of bytes.")
def create_secret_key(algorithm: str, output: Path | None, in_base64: bool) -> None:
    """Make a secret for tokenSecretKey."""
    secret = secrets.token_bytes(_SECRET_BYTES[algorithm])
    data = base64.b64encode(secret) if in_base64 else secret
    if output is None:
        sys.stdout.buffer.write(data + (b"\n" if in_base64 else b""))
        sys.stdout.buffer.flush()
    else:
        _write(output, data, secret=True)


@command.command("create-key-pair")
@_algorithm(_OF_KEY_PAIRS, "RS256")
@click.option("--output-private-key", type=FilePath(), required=True)
@click.option("--output-public-key", type=FilePath(), required=True)
def create_key_pair(algorithm: str, output_private_key: Path, output_public_key: Path) -> None:
    """Make a private key, which signs tokens, and the key for tokenPublicKey. Both are DER."""
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
    if algorithm in _CURVES:
        key = ec.generate_private_key(_CURVES[algorithm]())
    else:
        key = rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS[algorithm])
    private = key.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write(output_private_key, private, secret=True)
    _write(output_public_key, public, secret=False)


@command.command()
@_algorithm((*_SECRET_BYTES, *_OF_KEY_PAIRS), "RS256")
@click.option("-s", "--subject", required=True, help="The role.")
@click.option("-e", "--expiry-time", help="From now: 30s, 5m, 1h, 3d, 10w, 5y [default: never].")
@click.option("-sk", "--secret-key", help="The secret: data:, file: or base64.")
@click.option("-pk", "--private-key", help="The private key: data:, file: or base64.")
@click.option("-hs", "--headers", multiple=True, help="A further header, name=value.")
def create(
    algorithm: str,
    subject: str,
    expiry_time: str | None,
    secret_key: str | None,
    private_key: str | None,
    headers: tuple[str, ...],
) -> None:
    """Make a token."""
    if (secret_key is None) == (private_key is None):
        refuse("give either --secret-key or --private-key")
    claims: dict[str, Any] = {"sub": subject}
    if expiry_time is not None:
        claims["exp"] = int(time.time()) + _duration_seconds(expiry_time)
    fields: dict[str, Any] = {"typ": None}
    for each in headers:
        name, equals, value = each.partition("=")
        if not name or not equals:
            refuse("--headers must be name=value")
        fields[name] = value
    if secret_key is not None:
        secret = _read("--secret-key", secret_key)
        key = _secret_of(secret)
        # The strongest that the secret is long enough for, as real Pulsar's command does.
        token = jwt.encode(claims, secret, algorithm=max(key.algorithms), headers=fields)
    else:
        assert private_key is not None
        token = _signed(claims, _private_of(_read("--private-key", private_key)), algorithm, fields)
    click.echo(token)


def _signed(
    claims: dict[str, Any], private: PrivateKeyTypes, algorithm: str, fields: dict[str, Any]
) -> str:
    public = private.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    usable = key_of_public(public).algorithms
    if algorithm not in usable:
        refuse(f"the private key is for {', '.join(sorted(usable))}; give -a with one of them")
    assert isinstance(private, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey)
    return jwt.encode(claims, private, algorithm=algorithm, headers=fields)


_TOKEN: Final = click.argument("token", required=False)
_STDIN: Final = click.option("-i", "--stdin", is_flag=True, help="Read the token from stdin.")
_TOKEN_FILE: Final = click.option(
    "-f", "--token-file", type=FilePath(), help="Read the token from a file."
)


@command.command()
@_TOKEN
@_STDIN
@_TOKEN_FILE
def show(token: str | None, stdin: bool, token_file: Path | None) -> None:
    """Print what a token says. It is not verified."""
    given = _token(token, stdin, token_file)
    try:
        header, claims = header_of(given), unverified_claims(given)
    except AuthenticationFailed as error:
        _invalid(error)
    click.echo(f"{_compact(header)}\n---\n{_compact(claims)}")


@command.command()
@_algorithm((*_SECRET_BYTES, *_OF_KEY_PAIRS), "RS256")
@_TOKEN
@_STDIN
@_TOKEN_FILE
@click.option("-sk", "--secret-key", help="The secret: data:, file: or base64.")
@click.option("-pk", "--public-key", "public", help="The public key: data:, file: or base64.")
def validate(
    algorithm: str,
    token: str | None,
    stdin: bool,
    token_file: Path | None,
    secret_key: str | None,
    public: str | None,
) -> None:
    """Verify a token, and print what it says."""
    if (secret_key is None) == (public is None):
        refuse("give either --secret-key or --public-key")
    given = _token(token, stdin, token_file)
    if secret_key is not None:
        key = _secret_of(_read("--secret-key", secret_key))
    else:
        assert public is not None
        try:
            key = key_of_public(_read("--public-key", public))
        except KeyUnfit as error:
            refuse(f"--public-key: {error}")
    del algorithm  # the key says which count
    try:
        claims = verified_claims(given, key)
        ClaimRules().check(claims, time.time())
    except AuthenticationFailed as error:
        _invalid(error)
    click.echo(_compact(claims))


def _invalid(error: AuthenticationFailed) -> NoReturn:
    refuse(f"not valid: {error}")


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _token(token: str | None, stdin: bool, token_file: Path | None) -> str:
    found = token
    if found is None and stdin:
        found = sys.stdin.readline()
    if found is None and token_file is not None:
        found = _read_file(token_file)
    if found is None:
        found = os.environ.get("TOKEN")
    if found is None:
        refuse(
            "give the token as an argument, with --stdin or --token-file, or in the variable TOKEN"
        )
    return found.strip()


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        refuse(f"cannot read {path}: {error.strerror}")


def _read(option: str, source: str) -> bytes:
    try:
        return read_source(option, source)
    except ProviderRefused as error:
        refuse(str(error))


def _secret_of(data: bytes) -> VerificationKey:
    try:
        return key_of_secret(data)
    except KeyUnfit as error:
        refuse(f"--secret-key: {error}")


def _private_of(data: bytes) -> PrivateKeyTypes:
    try:
        if data.lstrip().startswith(b"-----BEGIN"):
            return serialization.load_pem_private_key(data, None)
        return serialization.load_der_private_key(data, None)
    except (ValueError, TypeError):
        refuse("--private-key: it is no private key in DER or PEM (PKCS 8) without a password")


def _duration_seconds(text: str) -> int:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        refuse(f"--expiry-time {text!r} is no duration; give 30s, 5m, 1h, 3d, 10w or 5y")
    return int(match[1]) * _UNIT_SECONDS[match[2].lower()]


def _write(path: Path, data: bytes, *, secret: bool) -> None:
    try:
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if secret else 0o644
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:
        refuse(f"cannot write {path}: {error.strerror}")
