"""The broker that is measured: its addresses, and the credentials of its clients.

A TLS context cannot be given to another process, so each process makes its own when it first needs
one. A handshake is finished before the connection is used, and blocks the process meanwhile: with
TLS, connections of a process are opened one after the other.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import urllib.request
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlsplit

from protocol import client

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.client import HTTPResponse

CONNECT_SECONDS_MAX: Final = 30.0
_PORTS: Final = {"pulsar": 6650, "pulsar+ssl": 6651}
_TOKEN: Final = "token:"
_FILE: Final = "file:"


class BadTarget(Exception):
    """An option that says where or how to connect is of no use. The text is for the user."""


@final
@dataclass(frozen=True, slots=True)
class Target:
    """One broker."""

    host: str
    port: int
    is_tls: bool = False
    trusted: str = ""
    """Path of the authorities' certificates (PEM); empty: those of the system."""
    token: str = field(default="", repr=False)
    """Empty: clients show nothing."""

    def at(self, service_url: str) -> Target:
        """Another broker for the same client. Raises: BadTarget."""
        other = target_of(service_url)
        return replace(self, host=other.host, port=other.port, is_tls=other.is_tls)

    def connect(self) -> socket.socket:
        """A blocking connection. Raises: OSError."""
        made = socket.create_connection((self.host, self.port), CONNECT_SECONDS_MAX)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not self.is_tls:
                return made
            return context_of(self.trusted).wrap_socket(made, server_hostname=self.host)
        except BaseException:
            made.close()
            raise

    def begin(self) -> socket.socket:
        """A connection that does not block, and is not finished without TLS. Raises: OSError."""
        if self.is_tls:
            made = self.connect()
            made.setblocking(False)
            return made
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        error = made.connect_ex((self.host, self.port))
        if error not in (0, errno.EINPROGRESS):
            made.close()
            raise OSError(error, os.strerror(error))
        return made

    def connect_frame(self) -> bytes:
        """CONNECT of every client."""
        if not self.token:
            return client.connect("vela-perf")
        return client.connect(
            "vela-perf", auth_method_name="token", auth_data=self.token.encode("latin-1")
        )

    def request(self, url: str, timeout_seconds: float, method: str = "GET") -> HTTPResponse:
        """The answer over HTTP. Raises: OSError, urllib.error.URLError."""
        request = urllib.request.Request(url, method=method)
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        context = context_of(self.trusted) if url.startswith("https:") else None
        answer: HTTPResponse = urllib.request.urlopen(
            request, timeout=timeout_seconds, context=context
        )
        return answer


def target_of(service_url: str, trusted: str = "", auth_params: str = "") -> Target:
    """From the options of the command line. Raises: BadTarget."""
    parts = urlsplit(service_url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise BadTarget(
            f"--service-url must be pulsar://host:port or pulsar+ssl://host:port, got {service_url}"
        )
    port = parts.port or _PORTS[parts.scheme]
    is_tls = parts.scheme == "pulsar+ssl"
    if trusted:
        try:
            context_of(trusted)
        except OSError as error:
            raise BadTarget(
                f"--trust-cert-file: cannot read certificates from {trusted}: "
                f"{error.strerror or error}"
            ) from None
    return Target(parts.hostname, port, is_tls, trusted, _token_of(auth_params))


def _token_of(auth_params: str) -> str:
    """In the two forms of Pulsar's tools. Raises: BadTarget."""
    if not auth_params:
        return ""
    if auth_params.startswith(_TOKEN):
        return auth_params.removeprefix(_TOKEN)
    if not auth_params.startswith(_FILE):
        raise BadTarget("--auth-params must be token:<the token> or file:<the path of its file>")
    path = auth_params.removeprefix(_FILE)
    path = urlsplit(auth_params).path if path.startswith("//") else path
    try:
        with open(path, encoding="latin-1") as file:
            return file.read().strip()
    except OSError as error:
        raise BadTarget(f"--auth-params: cannot read {path}: {error.strerror}") from None


NOTHING_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""The exceptions of a socket that has to wait, with TLS or without."""


def _nothing() -> int:
    return 0


def decrypted_of(connection: socket.socket) -> Callable[[], int]:
    """Tells how many bytes TLS has decrypted and not given out yet."""
    return getattr(connection, "pending", _nothing)


@lru_cache(maxsize=4)
def context_of(trusted: str) -> ssl.SSLContext:
    """Verifies servers and their host names. Raises: OSError."""
    return ssl.create_default_context(cafile=trusted or None)
