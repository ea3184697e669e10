"""Refusals of the HTTP side itself, before or besides what a handler says."""

from __future__ import annotations

from typing import final


@final
class RequestRefused(Exception):
    """The request cannot be read or served; `status` and `reason` are what the client is told."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@final
class PeerTooSlow(Exception):
    """The client does not take its answer; the connection is cut off."""
