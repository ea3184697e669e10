"""The open ledgers that were confirmed further than was last reported. Pure."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar, final


class OpenLedger(Protocol):
    """A ledger that is being written."""

    last_add_confirmed: int

    @property
    def is_stopped(self) -> bool:
        """Nothing can be added any more."""


_L = TypeVar("_L", bound=OpenLedger)


@final
class OpenLedgers(Generic[_L]):
    """See the module docstring. A ledger that is not written any more is forgotten."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: dict[_L, int] = {}
        """The last entry that was reported for each ledger."""

    def __len__(self) -> int:
        return len(self._told)

    def opened(self, ledger: _L) -> None:
        """A new ledger without an entry."""
        self._told[ledger] = -1

    def due(self) -> list[tuple[_L, int]]:
        """(ledger, its last confirmed entry) of those to be reported."""
        self._told = {each: told for each, told in self._told.items() if not each.is_stopped}
        return [
            (each, each.last_add_confirmed)
            for each, told in self._told.items()
            if each.last_add_confirmed > told
        ]

    def told(self, ledger: _L, confirmed: int) -> None:
        """Its readers may know of all entries up to this one."""
        if ledger in self._told:
            self._told[ledger] = confirmed
