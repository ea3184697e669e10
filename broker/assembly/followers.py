"""What any session wrote to the store comes into force here: dynamic configuration and policies.

Namespaces read what changed when they are asked. Topics that are open ask for nothing, so that
changes are brought to them. A change made through this broker is in force before its watch tells of
it, and finds nothing to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from broker.namespaces.json_nodes import read_json
from broker.namespaces.names import (
    DYNAMIC_CONFIGURATION_PATH,
    POLICIES_PATH,
    TOPIC_POLICIES_PATH,
    namespace_below,
)
from metadata.store import MetadataUnavailable

if TYPE_CHECKING:
    from broker.admin.context import AdminContext
    from broker.namespaces.namespaces import Namespaces
    from metadata.store import MetadataStore

log = structlog.get_logger()

READ_AGAIN_SECONDS: Final = 1.0
"""Pause after the store could not be read."""


@final
class DynamicConfiguration:
    """Run it with `nursery.start(run)`: the values of the store are then in force."""

    def __init__(self, store: MetadataStore, admin: AdminContext) -> None:
        self._store = store
        self._admin = admin
        self._changed = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled. Raises: MetadataUnavailable: the values cannot be read at the start."""
        stop = self._store.watch(DYNAMIC_CONFIGURATION_PATH, self._tell)
        try:
            await self._admin.set_dynamic(await self._read())
            task_status.started()
            while True:
                await self._changed.wait()
                self._changed = trio.Event()
                try:
                    values = await self._read()
                except MetadataUnavailable as error:
                    log.warning("dynamic configuration not read", reason=str(error))
                    self._changed.set()
                    await trio.sleep(READ_AGAIN_SECONDS)
                    continue
                if values != self._admin.dynamic:
                    await self._admin.set_dynamic(values)
        finally:
            stop()

    def _tell(self, _path: str) -> None:
        self._changed.set()

    async def _read(self) -> dict[str, str]:
        return await read_json(self._store, DYNAMIC_CONFIGURATION_PATH) or {}


@final
class PolicyChanges:
    """Run it with `nursery.start(run)`."""

    def __init__(self, store: MetadataStore, namespaces: Namespaces) -> None:
        self._store = store
        self._namespaces = namespaces
        self._changed: set[str] = set()
        self._wake = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled."""
        stops = [
            self._store.watch(POLICIES_PATH, self._namespace_changed),
            self._store.watch(TOPIC_POLICIES_PATH, self._topic_changed),
        ]
        try:
            task_status.started()
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                changed, self._changed = self._changed, set()
                for namespace_name in sorted(changed):
                    await self._refresh(namespace_name)
        finally:
            for stop in stops:
                stop()

    def _namespace_changed(self, path: str) -> None:
        name, rest = namespace_below(POLICIES_PATH, path)
        if not rest:
            self._tell(name)

    def _topic_changed(self, path: str) -> None:
        name, _rest = namespace_below(TOPIC_POLICIES_PATH, path)
        self._tell(name)

    def _tell(self, namespace_name: str) -> None:
        """Empty: the store cannot tell what has changed."""
        if not namespace_name:
            self._changed.update(self._namespaces.in_memory)
        elif namespace_name in self._namespaces.in_memory:
            self._changed.add(namespace_name)
        if self._changed:
            self._wake.set()

    async def _refresh(self, namespace_name: str) -> None:
        try:
            await self._namespaces.find(namespace_name)
        except MetadataUnavailable as error:
            log.warning("policies not read", namespace=namespace_name, reason=str(error))
            await trio.sleep(READ_AGAIN_SECONDS)
            self._changed.add(namespace_name)
            self._wake.set()
        except Exception as error:
            # One topic that cannot apply them must not keep the others from it.
            log.error("policies not applied", namespace=namespace_name, exc_info=error)
