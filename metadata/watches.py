"""Watches: callbacks for changes below a node. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from metadata.store import OnChange


@final
class Watches:
    """The watches of one store."""

    __slots__ = ("_by_path",)

    def __init__(self) -> None:
        self._by_path: dict[str, list[OnChange]] = {}

    def add(self, path: str, on_change: OnChange) -> Callable[[], None]:
        """Watch a node and everything below it; the result ends the watch."""
        watching = self._by_path.setdefault(path, [])
        watching.append(on_change)

        def stop() -> None:
            watching.remove(on_change)

        return stop

    def tell(self, path: str) -> None:
        """The node at `path` was, or may have been, created, changed or deleted."""
        watched = path
        while True:
            for on_change in tuple(self._by_path.get(watched, ())):
                on_change(path)
            if watched == "/":
                return
            watched = watched.rpartition("/")[0] or "/"
