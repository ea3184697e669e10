"""How the client speaks to bookies: the bounds and times of its connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from protocol.bookkeeper.packets import FRAME_SIZE_MAX


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteConfig:
    """Names in parentheses are keys of Pulsar's broker.conf."""

    channels: int = 16
    """The most connections per bookie (bookkeeperNumberOfChannelsPerBookie): one for all adds, the
    others for reads."""
    add_timeout_s: float = 30.0
    """An add without an answer for so long fails, and its connection is closed
    (bookkeeperClientTimeoutInSeconds)."""
    read_timeout_s: float = 30.0
    connect_timeout_s: float = 10.0
    back_off_first_s: float = 0.1
    """After a lost connection requests are refused for so long; twice as long after each failure
    that follows."""
    back_off_max_s: float = 10.0
    bytes_in_flight_max: int = 64 * 1024 * 1024
    """Adds of one bookie that have no answer. More are refused with TOO_MANY_REQUESTS."""
    reads_in_flight_max: int = 10_000
    """Per channel. More are refused with TOO_MANY_REQUESTS."""
    frame_size_max: int = FRAME_SIZE_MAX
    """The largest answer that is taken."""
