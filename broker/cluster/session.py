"""The session that holds a broker's ephemeral nodes, with a name for each one.

A store begins a new session after it has lost one. Everything done under the lost session is void.
So each session has its own name, which is written into its nodes, and code that awaits compares the
names before and after. The name changes before the loss is reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from metadata.store import SessionState
from protocol.errors import ServiceNotReady

if TYPE_CHECKING:
    from collections.abc import Callable

    from metadata.store import MetadataStore


@final
class ClusterSession:
    """See the module docstring."""

    def __init__(self, store: MetadataStore, process_name: str) -> None:
        """`process_name` is different for every process that ever used the store."""
        self._store = store
        self._process_name = process_name
        self._number = 0
        self._listeners: list[Callable[[SessionState], None]] = []
        self._end = store.watch_session(self._changed)

    @property
    def name(self) -> str:
        """The name of the session that is live, or will be next."""
        return f"{self._process_name}-{self._number}"

    @property
    def is_live(self) -> bool:
        """Whether its nodes are sure to exist."""
        return self._store.session_state is SessionState.LIVE

    def is_still(self, name: str) -> bool:
        """Whether that session is live."""
        return self.is_live and self.name == name

    def check_live(self) -> str:
        """The name of the live session. Raises: ServiceNotReady: there is none."""
        if not self.is_live:
            raise ServiceNotReady(
                "This broker has no connection to the metadata store and owns no topics; try again"
            )
        return self.name

    def watch(self, on_change: Callable[[SessionState], None]) -> None:
        """Call back when the state changes, in the order of the calls to `watch`."""
        self._listeners.append(on_change)

    def close(self) -> None:
        """Follow the store no more."""
        self._end()

    def _changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._number += 1
        for on_change in self._listeners:
            on_change(state)
