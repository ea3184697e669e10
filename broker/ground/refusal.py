"""A refused administrative request: the HTTP status and the reason text, as Pulsar answers them.

Clients compare some of the texts, so they are literal. Requests of the binary protocol are refused
with `protocol.errors.BrokerError` instead. One table of the admin API maps those to statuses.
"""

from __future__ import annotations

from typing import final


@final
class Refusal(Exception):
    """The request cannot be done; `status` is an HTTP status, `reason` the sentence to show."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason

    def __repr__(self) -> str:
        return f"Refusal({self.status}, {self.reason!r})"


def not_found(reason: str) -> Refusal:
    """404."""
    return Refusal(404, reason)


def conflict(reason: str) -> Refusal:
    """409: it exists already, or something still uses it."""
    return Refusal(409, reason)


def precondition_failed(reason: str) -> Refusal:
    """412: the request is invalid in itself."""
    return Refusal(412, reason)
