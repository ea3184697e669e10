"""The ports of a broker: listening sockets, the error for a port that is not available, URLs, and
the bounds of HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.assembly.parts import StartError
from broker.configuration.advertised_listeners import listeners_of
from broker.configuration.tls_config import binary_tls, web_tls
from broker.peers.broker_address import BrokerAddress
from runtime.listening import open_sockets
from runtime.open_files import http_connections_max
from security.tls_suites import UnusableTls
from web.https import Https
from web.limits import HttpLimits
from web.server import Door

if TYPE_CHECKING:
    import socket
    from contextlib import AsyncExitStack

    import trio

    from broker.ground.config import BrokerConfig
    from broker.net.listener import BrokerListener
    from security.handshakes import Handshakes
    from security.tls import TlsPort
    from security.tls_rules import TlsRules

HTTP_BACKLOG: Final = 4096


@final
class Ports:
    """The ports of a broker, bound one after the other. Files for TLS are read at once."""

    def __init__(self, config: BrokerConfig) -> None:
        """Raises: StartError."""
        self._config = config
        self._host = url_host(config.advertised_host)
        self._urls: dict[str, str] = {}
        """By scheme."""
        self._binary_tls: TlsPort | None = None
        self._https: Https | None = None
        if config.brokerServicePortTls is not None:
            self._binary_tls = _tls_port(binary_tls(config))
        if config.webServicePortTls is not None:
            self._https = Https(_tls_port(web_tls(config)))

    @property
    def address(self) -> BrokerAddress:
        """The address of the bound ports; brokers and clients without a listener's name get the
        binary protocol at the internal listener, if there are any."""
        urls, named = self._urls, listeners_of(self._config)
        is_named = bool(named.internal)
        return BrokerAddress(
            named.plain.get(named.internal, "") if is_named else urls.get("pulsar", ""),
            urls.get("http", ""),
            named.plain,
            named.tls.get(named.internal, "") if is_named else urls.get("pulsar+ssl", ""),
            urls.get("https", ""),
            named.tls,
        )

    @property
    def handshakes(self) -> dict[str, Handshakes]:
        """The handshakes of each port with TLS, by its key."""
        ports = {"brokerServicePortTls": self._binary_tls, "webServicePortTls": self._https}
        return {key: port.handshakes for key, port in ports.items() if port is not None}

    def start(self, nursery: trio.Nursery) -> None:
        """The tasks of the ports with TLS."""
        if self._binary_tls is not None:
            nursery.start_soon(self._binary_tls.run)
        if self._https is not None:
            nursery.start_soon(self._https.run)

    async def bind_web(self, stack: AsyncExitStack) -> list[Door]:
        """Listen for HTTP; `stack` closes the sockets. Raises: StartError."""
        config, doors = self._config, []
        if config.webServicePort is not None:
            bound = await bind_http(config.bindAddress, config.webServicePort, "webServicePort")
            doors += [Door(stack.enter_context(each)) for each in bound]
            self._know("http", _port_of(bound[0]))
        if config.webServicePortTls is not None and self._https is not None:
            port = config.webServicePortTls
            bound = await bind_http(config.bindAddress, port, "webServicePortTls")
            doors += [self._https.door(stack.enter_context(each)) for each in bound]
            self._know("https", _port_of(bound[0]))
        return doors

    async def bind_broker(self, listener: BrokerListener) -> None:
        """Listen for the binary protocol. Raises: StartError."""
        config = self._config
        host, port, port_tls = (
            config.bindAddress,
            config.brokerServicePort,
            config.brokerServicePortTls,
        )
        if port is not None:
            try:
                bound = await listener.bind(host, port)
            except OSError as error:
                raise cannot_listen("brokerServicePort", host, port, error) from error
            self._know("pulsar", bound)
        if port_tls is not None and self._binary_tls is not None:
            try:
                bound = await listener.bind(host, port_tls, self._binary_tls.over)
            except OSError as error:
                raise cannot_listen("brokerServicePortTls", host, port_tls, error) from error
            self._know("pulsar+ssl", bound)

    def _know(self, scheme: str, port: int) -> None:
        self._urls[scheme] = f"{scheme}://{self._host}:{port}"


async def bind_http(host: str, port: int, key: str) -> list[socket.socket]:
    """Listening sockets of one port. Raises: StartError."""
    try:
        return await open_sockets(port, host, HTTP_BACKLOG)
    except OSError as error:
        raise cannot_listen(key, host, port, error) from error


def cannot_listen(key: str, host: str, port: int, error: OSError) -> StartError:
    """The refusal of a port that is named by a key of the configuration."""
    reason = error.strerror or str(error)
    return StartError(f"cannot listen on {host}:{port} ({key}): {reason}")


def url_host(host: str) -> str:
    """A host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def _port_of(listening: socket.socket) -> int:
    return int(listening.getsockname()[1])


def _tls_port(rules: TlsRules) -> TlsPort:
    # Loads libraries of which a broker without TLS has no use.
    from security.tls import TlsPort

    try:
        return TlsPort(rules)
    except UnusableTls as error:
        raise StartError(str(error)) from None


def http_limits_from(config: BrokerConfig) -> HttpLimits:
    """The bounds of the HTTP server, from the configuration and the limit of open files."""
    return HttpLimits(
        connections_max=http_connections_max(config.maxHttpServerConnections),
        head_bytes_max=config.httpMaxRequestHeaderSize,
        buffered_bytes_max=config.webServiceMaxBufferedMB * 1024 * 1024,
        request_seconds_max=float(config.webServiceRequestTimeoutSeconds),
        idle_seconds_max=float(config.webServiceIdleTimeoutSeconds),
        answer_seconds_max=float(config.webServiceAnswerTimeoutSeconds),
        requests_per_second_max=(
            config.httpRequestsMaxPerSecond if config.httpRequestsLimitEnabled else 0.0
        ),
    )
