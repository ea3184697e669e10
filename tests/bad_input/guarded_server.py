"""A broker with TLS, authentication and authorization, for tests of what strangers can do to it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import shlex
import ssl
import time
from typing import TYPE_CHECKING, Final, final

from runtime.testing.ports import free_ports
from security.testing.certificates import Authority
from tests.server_process import VELA, ServerProcess

if TYPE_CHECKING:
    from pathlib import Path

HOST: Final = "127.0.0.1"
_SECRET: Final = b"a secret that no stranger of these tests has to know"
_CLASSES: Final = "org.apache.pulsar.broker.authentication"


def signed(claims: dict[str, object], secret: bytes = _SECRET, algorithm: str = "HS256") -> str:
    """A token of AuthenticationProviderToken, or one that looks like it."""
    head = json.dumps({"alg": algorithm}).encode()
    text = b".".join(_part(each) for each in (head, json.dumps(claims).encode()))
    signature = _part(hmac.digest(secret, text, hashlib.sha256))
    return (text + b"." + signature).decode()


def _part(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


@final
class GuardedServer:
    """`process` with both ports for TLS, and what its clients need."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.binary_port, self.web_port = free_ports(2)
        root, self._stranger = Authority("root"), Authority("stranger")
        self._root = root
        self._directory = directory
        self._trusted = root.write(directory)
        certificate, key = root.issue("broker", HOST, "localhost").write(directory, "server")
        keys = {
            "brokerServicePortTls": self.binary_port,
            "webServicePortTls": self.web_port,
            "tlsCertificateFilePath": certificate,
            "tlsKeyFilePath": key,
            "tlsTrustCertsFilePath": self._trusted,
            "authenticationEnabled": "true",
            "authenticationProviders": ",".join(
                (
                    f"{_CLASSES}.AuthenticationProviderToken",
                    f"{_CLASSES}.AuthenticationProviderTls",
                    f"{_CLASSES}.oidc.AuthenticationProviderOpenID",
                )
            ),
            "authenticateMetricsEndpoint": "true",
            "tokenSecretKey": "data:;base64," + base64.b64encode(_SECRET).decode(),
            "openIDAllowedTokenIssuers": "http://127.0.0.1:9",
            "openIDAllowedAudiences": "vela",
            "openIDRequireIssuersUseHttps": "false",
            "authorizationEnabled": "true",
            "superUserRoles": "root",
        }
        config = directory / "guarded.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        command = f"{VELA} --config {shlex.quote(str(config))}"
        self.process = ServerProcess(directory, command)
        self.token = signed({"sub": "root"})

    def client_context(self, kind: str = "") -> ssl.SSLContext:
        """Of a client that shows no certificate, or one that is `foreign`, `expired` or
        `self-signed`."""
        context = ssl.create_default_context(cafile=self._trusted)
        if kind:
            context.load_cert_chain(*self._certificate(kind))
        return context

    def _certificate(self, kind: str) -> tuple[str, str]:
        certificate = self._directory / f"{kind}.cert.pem"
        if not certificate.exists():
            made = {
                "foreign": lambda: self._stranger.issue("root"),
                "expired": lambda: self._root.issue("root", days=-2),
                "self-signed": lambda: Authority("root").issue("root"),
            }[kind]()
            made.write(self._directory, kind)
        return str(certificate), str(self._directory / f"{kind}.key.pem")


def wrong_tokens() -> list[str]:
    """Of every kind that must not open anything."""
    now = int(time.time())
    unsigned = b".".join((_part(b'{"alg":"none"}'), _part(b'{"sub":"root"}'), b"")).decode()
    foreign = {"iss": "http://127.0.0.1:10", "sub": "root", "aud": "vela", "exp": now + 60}
    return [
        "",
        "x",
        "a.b.c",
        "." * 3,
        "." * 60_000,
        "A" * 15_000 + ".A.A",
        unsigned,
        unsigned + "AAAA",
        signed({"sub": "root"}, b"another secret, which is long enough for it"),
        signed({"sub": "root", "exp": now - 60}),
        signed({"sub": "root", "nbf": now + 86_400}),
        signed({"sub": "root", "exp": "never"}),
        signed({"sub": ""}),
        signed({"sub": "root"}, algorithm="HS512"),
        signed({"sub": "root"}, algorithm="RS256"),
        signed({"sub": "root"}, algorithm="none"),
        signed({"sub": "root"}, algorithm="ES256"),
        signed({**foreign}, b"x" * 32, "RS256"),
        signed({**foreign, "iss": "http://127.0.0.1:9"}, b"x" * 32, "RS256"),
        signed({"sub": "root"}) + "=",
        signed({"sub": "root"}).replace(".", "..", 1),
        signed({"sub": "root"})[:-2],
    ]
