"""The text of a log line about a failure of a topic."""

from __future__ import annotations

from ledgers.errors import LedgerError
from protocol.errors import BrokerError


def told(error: Exception) -> dict[str, Exception | str]:
    """Its fields. Only a fault of the program needs its trace: a store that is away refuses every
    topic in the same words, and there may be thousands."""
    if isinstance(error, (BrokerError, LedgerError)):
        return {"error": str(error)}
    return {"exc_info": error}
