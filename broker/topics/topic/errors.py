"""Refusals that topics and the broker service raise for administrative calls, and the text of a log
line about a failure of a topic."""

from __future__ import annotations

from typing import final

from ledgers.errors import LedgerError
from protocol.errors import BrokerError, ServerError


@final
class TopicBusy(BrokerError):
    """Not deleted: producers, consumers or subscriptions still use the topic."""

    def __init__(self, message: str) -> None:
        super().__init__(ServerError.NotAllowedError, message)


def told(error: Exception) -> dict[str, Exception | str]:
    """The fields of a log line. Only a fault of the program needs its trace: a store that is away
    refuses every topic in the same words, and there may be thousands."""
    if isinstance(error, (BrokerError, LedgerError)):
        return {"error": str(error)}
    return {"exc_info": error}
