"""Refusals of the HTTP server itself, before or apart from those of a handler."""

from __future__ import annotations

from typing import final


@final
class RequestRefused(Exception):
    """The request cannot be read or served. The client gets `status` and `reason`."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@final
class PeerTooSlow(Exception):
    """The client does not take its answer. The connection is closed."""
