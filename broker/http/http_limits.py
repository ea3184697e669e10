"""The bounds of the broker's HTTP server, from its configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime.open_files import http_connections_max
from web.limits import HttpLimits

if TYPE_CHECKING:
    from broker.ground.config import BrokerConfig


def http_limits_from(config: BrokerConfig) -> HttpLimits:
    """The bounds from the configuration and the limit of open files."""
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
