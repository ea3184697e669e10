"""State shared by all managed ledgers of a broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.ground.entry import Entry
    from broker.managed_ledger.config import ManagedLedgerConfig
    from broker.managed_ledger.entry_cache import EntryCache
    from broker.managed_ledger.kept_readers import LedgerReaders
    from broker.managed_ledger.roll_pace import RollPace
    from broker.managed_ledger.tenure import Tenure
    from ledgers.client import LedgerClient
    from metadata.store import MetadataStore
    from protocol.errors import BrokerError
    from runtime.clock import Clock


class AppendListener(Protocol):
    """Receives the outcome of appends: the topic.

    Outcomes of entries with the same context, which are all of a run, come in the order of the
    entries, whether they are stored or fail.
    """

    def on_appended(self, entries: list[Entry], contexts: list[object]) -> None:
        """The entries are durable, in order, with their positions and with the context that was
        given to `append` with each of them. `last_confirmed` has moved and they can be read. Once
        per group."""

    def on_append_failed(self, context: object, error: BrokerError) -> None:
        """This entry was not stored, or its outcome is unknown after a crash of storage."""

    def on_fenced(self) -> None:
        """Nothing can be stored any more, neither entries nor cursors, until the ledger is closed
        and opened again. Called once, also when no append is under way."""

    def on_terminated(self) -> None:
        """Another broker has ended the topic: there will be no more entries. Called once, after
        `on_appended` for the last ones."""


@final
class _NoListener:
    """Takes the place of a topic that has ended, whose producers have been disconnected."""

    def on_appended(self, entries: list[Entry], contexts: list[object]) -> None:
        pass

    def on_append_failed(self, context: object, error: BrokerError) -> None:
        pass

    def on_fenced(self) -> None:
        pass

    def on_terminated(self) -> None:
        pass


NO_LISTENER: Final[AppendListener] = _NoListener()


@final
@dataclass(frozen=True, slots=True)
class LedgerContext:
    """Supplied by the factory. `spawn` starts a background task that the factory owns."""

    store: MetadataStore
    client: LedgerClient
    config: ManagedLedgerConfig
    clock: Clock
    cache: EntryCache
    spawn: Callable[..., None]
    roll_pace: RollPace
    readers: LedgerReaders
    """Where entries are read that are not in memory."""
    tenure: Tenure
    """The tenure of the session under which the ledgers with this context were opened."""
