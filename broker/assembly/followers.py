"""Puts changes of dynamic configuration, policies and resource groups into force in this broker,
whichever session wrote them to the store.

Namespaces read changed records on the next request. Open topics make no requests, so they are
notified of changes. A change made through this broker is in force before its watch reports it; the
report then has no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from broker.assembly.parts import StartError
from broker.tenancy.namespaces.json_nodes import damaged, read_json
from broker.tenancy.namespaces.names import (
    DYNAMIC_CONFIGURATION_PATH,
    POLICIES_PATH,
    RESOURCE_GROUPS_PATH,
    namespace_below,
)
from metadata.store import MetadataUnavailable
from protocol.errors import MetadataError

if TYPE_CHECKING:
    from broker.http.context import AdminContext
    from broker.tenancy.namespaces.namespaces import Namespaces
    from broker.tenancy.namespaces.resource_groups import ResourceGroups
    from metadata.store import MetadataStore

log = structlog.get_logger()

READ_AGAIN_SECONDS: Final = 1.0
"""Pause after the store could not be read."""


@final
class DynamicConfiguration:
    """Run it with `nursery.start(run)`: the values of the store are then in force. A record that is
    damaged changes nothing, and no broker starts with it."""

    def __init__(self, store: MetadataStore, admin: AdminContext) -> None:
        self._store = store
        self._admin = admin
        self._changed = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled. Raises: MetadataUnavailable, StartError: the values cannot be read at
        the start."""
        stop = self._store.watch(DYNAMIC_CONFIGURATION_PATH, self._tell)
        try:
            values = await self._read_first()
            await self._admin.set_dynamic(values)
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
                except MetadataError as error:
                    log.error("dynamic configuration stays as it is", reason=str(error))
                    continue
                if values != self._admin.dynamic:
                    await self._admin.set_dynamic(values)
        finally:
            stop()

    def _tell(self, _path: str) -> None:
        self._changed.set()

    async def _read_first(self) -> dict[str, str]:
        """Raises: MetadataUnavailable, StartError."""
        try:
            return await self._read()
        except MetadataUnavailable:
            raise
        except MetadataError as error:
            raise StartError(str(error)) from error

    async def _read(self) -> dict[str, str]:
        """Raises: MetadataError."""
        values = await read_json(self._store, DYNAMIC_CONFIGURATION_PATH) or {}
        for key, value in values.items():
            if not isinstance(value, str):
                raise damaged(DYNAMIC_CONFIGURATION_PATH, f"the value of {key} is not a text")
        return values


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
        stop = self._store.watch(POLICIES_PATH, self._namespace_changed)
        try:
            task_status.started()
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                changed, self._changed = self._changed, set()
                for namespace_name in sorted(changed):
                    await self._refresh(namespace_name)
        finally:
            stop()

    def _namespace_changed(self, path: str) -> None:
        name, rest = namespace_below(POLICIES_PATH, path)
        if not rest:
            self._tell(name)

    def _tell(self, namespace_name: str) -> None:
        """Empty: the store does not know what has changed."""
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
        except MetadataError as error:
            log.error("policies stay as they are", namespace=namespace_name, reason=str(error))
        except Exception as error:
            # One topic that cannot apply them must not keep the others from it.
            log.error("policies not applied", namespace=namespace_name, exc_info=error)


@final
class ResourceGroupChanges:
    """Run it with `nursery.start(run)`: the groups of the store are then in force."""

    def __init__(self, store: MetadataStore, groups: ResourceGroups) -> None:
        self._store = store
        self._groups = groups
        self._changed = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled. Raises: MetadataUnavailable: they cannot be read at the start."""
        stop = self._store.watch(RESOURCE_GROUPS_PATH, lambda _path: self._changed.set())
        try:
            await self._groups.refresh()
            task_status.started()
            while True:
                await self._changed.wait()
                self._changed = trio.Event()
                try:
                    await self._groups.refresh()
                except MetadataUnavailable as error:
                    log.warning("resource groups not read", reason=str(error))
                    self._changed.set()
                    await trio.sleep(READ_AGAIN_SECONDS)
        finally:
            stop()


async def start_followers(nursery: trio.Nursery, store: MetadataStore, admin: AdminContext) -> None:
    """All of this module, in force when this returns. Raises: MetadataUnavailable, StartError."""
    await nursery.start(DynamicConfiguration(store, admin).run)
    await nursery.start(PolicyChanges(store, admin.namespaces).run)
    await nursery.start(ResourceGroupChanges(store, admin.namespaces.resource_groups).run)
