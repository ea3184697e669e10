"""The bounds of one connection, in one place; every one says what happens when it is reached."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from broker.config import or_no_limit
from protocol.frames import MESSAGE_SIZE_BYTES_MAX_DEFAULT, frame_size_max

if TYPE_CHECKING:
    from broker.config import BrokerConfig


@final
@dataclass(frozen=True, slots=True)
class NetLimits:
    """Bounds of connections; times in seconds."""

    frame_size_bytes_max: int = frame_size_max(MESSAGE_SIZE_BYTES_MAX_DEFAULT)
    """A larger frame closes the connection."""
    handshake_frame_size_bytes_max: int = 64 * 1024
    """The same for the first frame, which is CONNECT with its credentials."""
    unfinished_frames_bytes_max: int = 256 * 1024 * 1024
    """Of frames that have come in part, of all connections together; above it some are closed."""
    message_size_max: int = MESSAGE_SIZE_BYTES_MAX_DEFAULT
    """Told to clients in CONNECTED, who refuse larger messages; here only the frame counts."""
    output_high_water_bytes: int = 4 * 1024 * 1024
    """Above it no consumer of the connection is chosen for dispatch."""
    output_low_water_bytes: int = 1024 * 1024
    """Below it dispatch to the connection goes on."""
    output_pause_reading_bytes: int = 16 * 1024 * 1024
    """Above it nothing more is read from the connection: its answers would only pile up."""
    output_hard_limit_bytes: int = 256 * 1024 * 1024
    """Above it the connection is closed: the peer asks and does not read."""
    output_stall_seconds_max: float = 120.0
    """A peer that takes not one byte for this long while there is something for it is closed."""
    pending_requests_max: int = 1000
    """Commands of one connection being worked on; at the bound reading pauses."""
    pending_publishes_max: int = 1000
    """Publishes of one connection not yet durable; at the bound reading pauses until half."""
    pending_publish_bytes_max: int = 64 * 1024 * 1024
    """The same in bytes, of one connection."""
    broker_publish_bytes_max: int = 256 * 1024 * 1024
    """The same in bytes, of all connections together (maxMessagePublishBufferSizeInMB)."""
    keep_alive_seconds: float = 30.0
    """A silent peer is sent a PING after this, and closed after this again; infinite: never."""
    handshake_seconds_max: float = 30.0
    """A peer that has not sent CONNECT by then is closed."""
    connections_max: int = 0
    """Of the broker; 0 = no bound. More are refused with an error and closed."""
    connections_per_ip_max: int = 0
    """From one address; 0 = no bound."""
    producers_per_connection_max: int = 100_000
    """More are refused with TooManyRequests."""
    consumers_per_connection_max: int = 200_000
    """More are refused with TooManyRequests."""


def limits_from(config: BrokerConfig) -> NetLimits:
    """The bounds that a broker configuration asks for."""
    return NetLimits(
        frame_size_bytes_max=frame_size_max(config.maxMessageSize),
        message_size_max=config.maxMessageSize,
        # One frame always fits: a connection alone is never in the way of others.
        unfinished_frames_bytes_max=max(
            config.maxUnfinishedFramesSizeInMB * 1024 * 1024, frame_size_max(config.maxMessageSize)
        ),
        pending_publishes_max=or_no_limit(config.maxPendingPublishRequestsPerConnection),
        broker_publish_bytes_max=or_no_limit(config.maxMessagePublishBufferSizeInMB * 1024 * 1024),
        keep_alive_seconds=config.keepAliveIntervalSeconds or math.inf,
        connections_max=config.brokerMaxConnections,
        connections_per_ip_max=config.brokerMaxConnectionsPerIp,
    )
