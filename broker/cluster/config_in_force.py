"""The configuration of a broker of a cluster as it is now: dynamic configuration may change it.

Who uses it reads `now` at every use. Who waits for a time that depends on it is told of a change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.cluster.config import ClusterConfig


@final
class ConfigInForce:
    """See the module docstring."""

    def __init__(self, config: ClusterConfig) -> None:
        self.now = config
        self._changed = trio.Event()
        self._watchers: list[Callable[[], None]] = []

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call back after every change, as long as this object is used."""
        self._watchers.append(on_change)

    def use(self, config: ClusterConfig) -> None:
        """It holds from now on."""
        if config == self.now:
            return
        self.now = config
        self._changed.set()
        self._changed = trio.Event()
        for on_change in self._watchers:
            on_change()

    async def wait_changed(self) -> None:
        """Return when another configuration than that of the call holds."""
        await self._changed.wait()
