"""The servers of `make bench-secured`: each kind with and without TLS and tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench import oracle
from bench.session import DISK_CONFIGURATION, VELA_CONFIGURATION
from compat_tests.authorized_servers import SECRET, SUPER, token
from compat_tests.oracle.pulsar_server import PulsarServer
from compat_tests.oracle.vela_server import VelaServer
from runtime.testing.ports import free_ports
from security.testing.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.oracle.server_process import ServerProcess

VELA: Final = "vela"
VELA_SECURED: Final = "vela, TLS and token"
PULSAR: Final = "pulsar"
PULSAR_SECURED: Final = "pulsar, TLS and token"
SERVERS: Final = (VELA, VELA_SECURED, PULSAR, PULSAR_SECURED)
_HOST: Final = "127.0.0.1"
_PLUGIN: Final = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
_PROVIDER: Final = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"


class _OverTls:
    """Clients of a server use its port with TLS."""

    configuration: dict[str, str]

    @property
    def service_url(self) -> str:
        """See Subject."""
        return f"pulsar+ssl://{_HOST}:{self.configuration['brokerServicePortTls']}"


class _SecuredVela(_OverTls, VelaServer):
    """Vela, reached over TLS."""


class _SecuredPulsar(_OverTls, PulsarServer):
    """Real Pulsar, reached over TLS."""


def make(name: str, directory: Path) -> ServerProcess:
    """A server of `SERVERS`, not started yet."""
    place = directory / name.replace(", ", "-").replace(" ", "-")
    if name == VELA:
        return VelaServer(place, VELA_CONFIGURATION | DISK_CONFIGURATION)
    if name == PULSAR:
        return PulsarServer(place, dict(DISK_CONFIGURATION), small=False, release=oracle.chosen())
    place.mkdir(parents=True)
    authority = Authority("authority")
    keys = _keys(authority, place)
    server: ServerProcess
    if name == VELA_SECURED:
        server = _SecuredVela(place, VELA_CONFIGURATION | DISK_CONFIGURATION | keys)
    else:
        own = {
            "brokerClientAuthenticationPlugin": _PLUGIN,
            "brokerClientAuthenticationParameters": f"token:{token(SUPER)}",
            "brokerClientTlsEnabled": "false",
        }
        server = _SecuredPulsar(
            place, DISK_CONFIGURATION | keys | own, small=False, release=oracle.chosen()
        )
    server.http_headers = {"Authorization": f"Bearer {token(SUPER)}"}
    server.perf_arguments = [
        "--auth-plugin",
        _PLUGIN,
        "--auth-params",
        f"token:{token(SUPER)}",
        "--trust-cert-file",
        authority.write(place),
    ]
    return server


def vela_over_tls(directory: Path, configuration: dict[str, str]) -> ServerProcess:
    """Vela whose clients use TLS and no token, not started yet."""
    directory.mkdir(parents=True)
    authority = Authority("authority")
    server = _SecuredVela(directory, configuration | _port_with_tls(authority, directory))
    server.perf_arguments = ["--trust-cert-file", authority.write(directory)]
    return server


def _port_with_tls(authority: Authority, directory: Path) -> dict[str, str]:
    """With an RSA key of 2,048 bits, which most installations have."""
    (binary,) = free_ports(1)
    certificate, key = authority.issue("broker", _HOST, rsa_bits=2048).write(directory, "server")
    return {
        "brokerServicePortTls": str(binary),
        "tlsCertificateFilePath": certificate,
        "tlsKeyFilePath": key,
    }


def _keys(authority: Authority, directory: Path) -> dict[str, str]:
    """Of both kinds."""
    secret = directory / "secret.key"
    secret.write_bytes(SECRET)
    return _port_with_tls(authority, directory) | {
        "authenticationEnabled": "true",
        "authenticationProviders": _PROVIDER,
        "tokenSecretKey": f"file://{secret}",
        "authorizationEnabled": "true",
        "superUserRoles": SUPER,
    }
