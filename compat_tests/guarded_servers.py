"""Both servers with authentication, and the credentials for them."""

from __future__ import annotations

import base64
import hmac
import json
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from passlib.hash import apr_md5_crypt, des_crypt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compat_tests.oracle.server_process import ServerProcess

PROVIDERS: Final = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
SECRET: Final = bytes(range(32))
FOREIGN_SECRET: Final = bytes(32)
SHORT_SECONDS: Final = 3
PASSWORD: Final = "open sesame"


class Issuer:
    """Makes tokens, right ones and others, as one of the two servers of a pair trusts them."""

    def __init__(self, algorithm: str) -> None:
        self.algorithm = algorithm
        self._private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._foreign = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def configuration(self) -> dict[str, str]:
        """The key that verifies the tokens."""
        if self.algorithm.startswith("HS"):
            return {"tokenSecretKey": _data_url(SECRET)}
        return {"tokenPublicKey": _data_url(self._public_der()), "tokenPublicAlg": self.algorithm}

    def _public_der(self) -> bytes:
        return self._private.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def token(self, role: str = "alice", *, foreign: bool = False, **claims: object) -> str:
        """A token, signed with the right key or another one."""
        payload = json.dumps({"sub": role, **claims}).encode()
        if self.algorithm.startswith("HS"):
            key: bytes | rsa.RSAPrivateKey = FOREIGN_SECRET if foreign else SECRET
        else:
            key = self._foreign if foreign else self._private
        return jwt.PyJWS().encode(payload, key, algorithm=self.algorithm)

    def short(self) -> str:
        """One that expires soon."""
        return self.token(exp=int(time.time()) + SHORT_SECONDS)

    def unsigned(self) -> str:
        """`alg: none`."""
        return jwt.PyJWS().encode(b'{"sub":"alice"}', "", algorithm="none")

    def swapped(self) -> str:
        """Signed with what everybody may know, as if it were a secret."""
        secret = self._public_der() if self.algorithm.startswith("RS") else FOREIGN_SECRET
        text = ".".join(map(_base64url, (b'{"alg":"HS256"}', b'{"sub":"alice"}')))
        return f"{text}.{_base64url(hmac.digest(secret, text.encode(), 'sha256'))}"

    def credentials(self) -> dict[str, tuple[str, str]]:
        """By name: the method, and what is shown."""
        now = int(time.time())
        return {
            "right": ("token", self.token()),
            "expires-later": ("token", self.token(exp=now + 3600)),
            "valid-since": ("token", self.token(nbf=now - 10)),
            "roles": ("token", self.token(["alice", "bob"])),  # type: ignore[arg-type]
            "foreign": ("token", self.token(foreign=True)),
            "expired": ("token", self.token(exp=now - 10)),
            "not-yet": ("token", self.token(nbf=now + 3600)),
            "no-time": ("token", self.token(exp="soon")),
            "unsigned": ("token", self.unsigned()),
            "swapped": ("token", self.swapped()),
            "no-token": ("token", "abc"),
            "apr1": ("basic", f"apr1:{PASSWORD}"),
            "crypt": ("basic", f"crypt:{PASSWORD}"),
            "wrong-password": ("basic", "apr1:wrong"),
            "unknown-user": ("basic", f"nobody:{PASSWORD}"),
        }


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _data_url(data: bytes) -> str:
    return "data:;base64," + base64.b64encode(data).decode()


def configuration(issuer: Issuer, directory: Path, anonymous: str) -> dict[str, str]:
    """For both servers. `anonymous`: the role of those that show nothing; empty: none."""
    passwords = directory / "htpasswd"
    passwords.write_text(f"apr1:{apr_md5_crypt.hash(PASSWORD)}\ncrypt:{des_crypt.hash(PASSWORD)}\n")
    return {
        "authenticationEnabled": "true",
        "authenticationProviders": f"{PROVIDERS}Token,{PROVIDERS}Basic",
        "authenticationRefreshCheckSeconds": "1",
        "basicAuthConf": str(passwords),
        "proxyRoles": "proxy",
        **({"anonymousUserRole": anonymous} if anonymous else {}),
        **issuer.configuration(),
    }


def show_to(server: ServerProcess, issuer: Issuer) -> None:
    """Have the test's own requests, and those of the oracle's broker to itself, accepted."""
    token = issuer.token("admin")
    server.http_headers = {"Authorization": f"Bearer {token}"}


def own_client(issuer: Issuer) -> dict[str, str]:
    """Real Pulsar is a client of itself. By its defaults 5.0.1 refuses a proxy that names a role
    and forwards no credential of it."""
    plugin = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
    return {
        "brokerClientAuthenticationPlugin": plugin,
        "brokerClientAuthenticationParameters": f"token:{issuer.token('admin')}",
        "authenticateOriginalAuthData": "false",
    }


@contextmanager
def renewed_file(issuer: Issuer, keys: Path) -> Iterator[None]:
    """The file `short` has a token that is good for two seconds at least."""
    stop = threading.Event()

    def write() -> None:
        (keys / "short.new").write_text(issuer.short())
        os.replace(keys / "short.new", keys / "short")

    def go_on() -> None:
        while not stop.wait(0.5):
            write()

    write()
    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
