"""Refusals that topics and the broker service raise for administrative calls."""

from __future__ import annotations

from typing import final

from protocol.errors import BrokerError, ServerError


@final
class TopicBusy(BrokerError):
    """Not deleted: producers, consumers or subscriptions still use the topic."""

    def __init__(self, message: str) -> None:
        super().__init__(ServerError.NotAllowedError, message)
