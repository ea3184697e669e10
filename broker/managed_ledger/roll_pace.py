"""How fast the topics of a broker replace ledgers that failed, one after another.

A thousand of them must not ask the metadata store for a thousand ledgers at once as long as ledgers
fail. After an outage they must not wait for it either. Turns are therefore far between after a
failure, and come closer with each topic whose entries are stored again.

A turn is taken when its time comes, not before: `queue` holds the topics that wait, in their order,
and one that is closed meanwhile uses no turn.

A bookie that has joined ends the pauses of single topics, because what made their ledgers fail may
be over. The turns of the broker stay as they are: woken topics take them one after another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

if TYPE_CHECKING:
    from broker.managed_ledger.config import ManagedLedgerConfig

_CLOSER: Final = 0.9
"""An interval after a success, as a part of the one before: ten times the pace after 22 of them."""


@final
class RollPace:
    """The turns of one broker. See the module docstring."""

    __slots__ = (
        "_free_at",
        "_interval_s",
        "_longest_s",
        "_shortest_s",
        "arrivals",
        "joined",
        "queue",
    )

    def __init__(self, config: ManagedLedgerConfig) -> None:
        self._longest_s = 1 / config.rolls_per_second_max
        self._shortest_s = 1 / max(
            config.rolls_per_second_max, config.rolls_per_second_recovering_max
        )
        self._interval_s = self._longest_s
        self._free_at = 0.0
        self.queue = trio.Lock()
        """Held by the topic that waits for its time. Others wait for the lock."""
        self.arrivals = 0
        """How often bookies have joined."""
        self.joined = trio.Event()
        """Set when bookies join, and another one then takes its place."""

    def wait_s(self, now: float) -> float:
        """Seconds until the next turn, which the caller takes with this call. It holds `queue`."""
        at = max(now, self._free_at)
        self._free_at = at + self._interval_s
        return at - now

    def bookies_joined(self) -> None:
        """Bookies that take entries have joined."""
        self.arrivals += 1
        self.joined.set()
        self.joined = trio.Event()

    def failed(self) -> None:
        """A ledger failed, or could not be made."""
        self._interval_s = self._longest_s

    def succeeded(self) -> None:
        """A topic whose ledgers failed has stored an entry."""
        self._interval_s = max(self._shortest_s, self._interval_s * _CLOSER)
