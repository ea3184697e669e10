"""The bounds of one connection, in one place. Each says what happens when it is reached."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from protocol.frames import MESSAGE_SIZE_BYTES_MAX_DEFAULT, frame_size_max
from settings.kinds import or_no_limit

if TYPE_CHECKING:
    from broker.ground.config import BrokerConfig


@final
@dataclass(frozen=True, slots=True)
class NetLimits:
    """Bounds of connections; times in seconds."""

    frame_size_bytes_max: int = frame_size_max(MESSAGE_SIZE_BYTES_MAX_DEFAULT)
    """A larger frame closes the connection."""
    handshake_frame_size_bytes_max: int = 64 * 1024
    """The same for the first frame, which is CONNECT with its credentials."""
    unfinished_frames_bytes_max: int = 256 * 1024 * 1024
    """Bytes of partly received frames, over all connections; above it some are closed."""
    message_size_max: int = MESSAGE_SIZE_BYTES_MAX_DEFAULT
    """Sent to clients in CONNECTED; they refuse larger messages. The broker checks the frame
    only."""
    output_high_water_bytes: int = 4 * 1024 * 1024
    """Above it dispatch chooses no consumer of the connection."""
    output_low_water_bytes: int = 1024 * 1024
    """Below it dispatch to the connection resumes."""
    output_pause_reading_bytes: int = 16 * 1024 * 1024
    """Above it the connection is not read, because its answers would only pile up."""
    output_hard_limit_bytes: int = 256 * 1024 * 1024
    """Above it the connection is closed: the peer sends requests and does not read the answers."""
    outputs_bytes_max: int = 512 * 1024 * 1024
    """Output of all connections that their peers have not taken; above it some are closed. The
    bounds above become smaller from half of it on (`broker.limits.output_budget`)."""
    output_stall_seconds_max: float = 120.0
    """A peer that has output waiting and takes no byte for this long is closed."""
    pending_requests_max: int = 1000
    """Commands of one connection in progress; at the bound reading pauses."""
    pending_publishes_max: int = 1000
    """Publishes of one connection not yet durable; at the bound reading pauses until half
    remain."""
    pending_publish_bytes_max: int = 64 * 1024 * 1024
    """The same in bytes, for one connection."""
    broker_publish_bytes_max: int = 256 * 1024 * 1024
    """The same in bytes, for all connections together (maxMessagePublishBufferSizeInMB)."""
    keep_alive_seconds: float = 30.0
    """A silent peer is sent a PING after this time and closed after twice this time. Infinite:
    never."""
    handshake_seconds_max: float = 30.0
    """A peer that has not sent CONNECT by then is closed."""
    credential_check_seconds: float = math.inf
    """How often the expiry of credentials is checked. Infinite: never."""
    connections_max: int = 0
    """Connections of the broker; 0 = no bound. More are refused with an error and closed."""
    connections_per_ip_max: int = 0
    """Connections from one address; 0 = no bound."""
    producers_per_connection_max: int = 100_000
    """More are refused with TooManyRequests."""
    producers_waiting_max: int = 10_000
    """Producers of one connection that wait for exclusive access; more are refused with
    TooManyRequests."""
    consumers_per_connection_max: int = 200_000
    """More are refused with TooManyRequests."""


def limits_from(config: BrokerConfig) -> NetLimits:
    """The bounds that a broker configuration asks for."""
    return NetLimits(
        frame_size_bytes_max=frame_size_max(config.maxMessageSize),
        message_size_max=config.maxMessageSize,
        # One frame always fits, so that a connection alone never waits for others.
        unfinished_frames_bytes_max=max(
            config.maxUnfinishedFramesSizeInMB * 1024 * 1024, frame_size_max(config.maxMessageSize)
        ),
        pending_publishes_max=or_no_limit(config.maxPendingPublishRequestsPerConnection),
        broker_publish_bytes_max=or_no_limit(config.maxMessagePublishBufferSizeInMB * 1024 * 1024),
        keep_alive_seconds=config.keepAliveIntervalSeconds or math.inf,
        credential_check_seconds=(
            config.authenticationRefreshCheckSeconds if config.authenticationEnabled else math.inf
        ),
        connections_max=config.brokerMaxConnections,
        connections_per_ip_max=config.brokerMaxConnectionsPerIp,
    )
