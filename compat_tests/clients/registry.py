"""The scenarios of a program, by the names the matrix shows.

Standard library only: the Spark program runs in an environment of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Stage = TypeVar("Stage")


@dataclass(frozen=True)
class Entry(Generic[Stage]):
    """A registered scenario; `own_server` ones stop, kill and start the server they get."""

    name: str
    play: Callable[[Stage], None]
    own_server: bool


class Registry(Generic[Stage]):
    """Fills while the modules of scenarios are imported."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry[Stage]] = {}

    def scenario(
        self, name: str, own_server: bool = False
    ) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
        """Decorator: register a scenario under the name."""

        def register(play: Callable[[Stage], None]) -> Callable[[Stage], None]:
            assert name not in self.entries, f"two scenarios are called {name}"
            self.entries[name] = Entry(name, play, own_server)
            return play

        return register
