"""An issuer of tokens as companies have one, on loopback: OpenID Connect Discovery, its keys, and
OAuth2 client credentials (RFC 6749, 4.4)."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

if TYPE_CHECKING:
    from pathlib import Path

AUDIENCE: Final = "vela"
_KEY_ID: Final = "the only one"
_SECRET: Final = "of the client"
_BODY_BYTES_MAX: Final = 64 * 1024


class LoopbackIssuer:
    """`close` it. Gives a token to every client that knows the secret; its name is the subject."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer._answer(self, issuer._documents().get(self.path))

            def do_POST(self) -> None:
                size = min(int(self.headers.get("Content-Length", 0)), _BODY_BYTES_MAX)
                issuer._answer(self, issuer._granted(self.rfile.read(size).decode()))

            def log_message(self, *args: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def configuration(self) -> dict[str, str]:
        """Keys of a broker that trusts it."""
        return {
            "openIDAllowedTokenIssuers": self.url,
            "openIDAllowedAudiences": AUDIENCE,
            "openIDRequireIssuersUseHttps": "false",
        }

    def write_credentials(self, client: str, path: Path, secret: str = _SECRET) -> str:
        """The file of a client, in the form that Pulsar's clients read; returns its path."""
        path.write_text(
            json.dumps(
                {
                    "type": "client_credentials",
                    "client_id": client,
                    "client_secret": secret,
                    "client_email": f"{client}@localhost",
                    "issuer_url": self.url,
                }
            )
        )
        return str(path)

    def token(self, subject: str, **claims: object) -> str:
        """As the issuer would give it, with other claims if wanted."""
        now = int(time.time())
        usual = {
            "iss": self.url,
            "sub": subject,
            "aud": AUDIENCE,
            "iat": now,
            "nbf": now,
            "exp": now + 3600,
        }
        headers = {"kid": _KEY_ID}
        return jwt.encode({**usual, **claims}, self._key, algorithm="RS256", headers=headers)

    def _documents(self) -> dict[str, Any]:
        key = RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return {
            "/.well-known/openid-configuration": {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
                "token_endpoint": f"{self.url}/token",
            },
            "/keys": {"keys": [{**key, "kid": _KEY_ID, "alg": "RS256", "use": "sig"}]},
        }

    def _granted(self, body: str) -> dict[str, Any] | None:
        given = (
            json.loads(body)
            if body.startswith("{")
            else {name: values[0] for name, values in parse_qs(body).items()}
        )
        if given.get("client_secret") != _SECRET:
            return None
        token = self.token(given["client_id"])
        return {"access_token": token, "token_type": "Bearer", "expires_in": 3600}

    @staticmethod
    def _answer(handler: BaseHTTPRequestHandler, document: dict[str, Any] | None) -> None:
        refused = {"error": "invalid_client", "error_description": "wrong"}
        data = json.dumps(refused if document is None else document).encode()
        handler.send_response(401 if document is None else 200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)
