"""Resource groups in the metadata store, in Pulsar's form and at its path.

`in_force` holds the records as last read from the store. `ResourceGroupChanges` of `assembly` reads
them again when any session has changed them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import structlog

from broker.ground.refusal import not_found, precondition_failed
from broker.tenancy.namespaces.json_nodes import (
    change_json,
    create_json,
    damaged,
    read_json,
)
from broker.tenancy.namespaces.names import (
    POLICIES_PATH,
    RESOURCE_GROUPS_PATH,
    policies_path,
    resource_group_path,
    tenant_path,
)
from broker.tenancy.policies.resource_groups import ResourceGroup, group_in, group_record
from metadata.store import NodeNotFound
from protocol.errors import MetadataError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from metadata.store import MetadataStore

log = structlog.get_logger()

Json = dict[str, Any]


@final
class ResourceGroups:
    """All groups of the cluster."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.in_force: dict[str, ResourceGroup] = {}
        self.use: Callable[[Mapping[str, ResourceGroup]], None] = lambda _groups: None
        """Told of the groups after each reading. Set by the composition root."""

    async def names(self) -> list[str]:
        """All groups, sorted."""
        return await self._store.children(RESOURCE_GROUPS_PATH)

    async def exists(self, name: str) -> bool:
        """Whether there is such a group."""
        return _is_name(name) and await self._store.exists(resource_group_path(name))

    async def get(self, name: str) -> Json:
        """Raises: Refusal, MetadataError."""
        record = await read_json(self._store, resource_group_path(name)) if _is_name(name) else None
        if record is None:
            raise not_found("ResourceGroup does not exist")
        return group_record(record, {})

    async def create_or_change(self, name: str, given: Json) -> None:
        """Create or change a group. It is in force here when this returns.

        Raises: Refusal, MetadataError.
        """
        if not _is_name(name):
            raise precondition_failed("ResourceGroup name is not valid")
        path, fresh = resource_group_path(name), group_record(None, given)
        while not await create_json(self._store, path, fresh):
            if await change_json(self._store, path, lambda before: group_record(before, given)):
                break
        await self.refresh()

    async def delete(self, name: str) -> None:
        """Raises: Refusal: a namespace has it, or there is none."""
        if not await self.exists(name):
            raise not_found("ResourceGroup does not exist")
        if await self._is_used(name):
            raise precondition_failed("ResourceGroup is in use")
        try:
            await self._store.delete(resource_group_path(name))
        except NodeNotFound:
            raise not_found("ResourceGroup does not exist") from None
        await self.refresh()

    async def _is_used(self, name: str) -> bool:
        for tenant in await self._store.children(POLICIES_PATH):
            for namespace in await self._store.children(tenant_path(tenant)):
                fields = await read_json(self._store, policies_path(f"{tenant}/{namespace}"))
                if (fields or {}).get("resource_group_name") == name:
                    return True
        return False

    async def refresh(self) -> None:
        """Read all groups. A damaged record changes nothing for its group.

        Raises: MetadataUnavailable.
        """
        groups: dict[str, ResourceGroup] = {}
        for name in await self.names():
            path = resource_group_path(name)
            try:
                record = await read_json(self._store, path)
                if record is not None:
                    groups[name] = _parsed(record, path)
            except MetadataError as error:
                log.error("resource group stays as it is", group=name, reason=str(error))
                groups[name] = self.in_force.get(name, ResourceGroup())
        self.in_force = groups
        self.use(groups)


def _parsed(record: Json, path: str) -> ResourceGroup:
    try:
        return group_in(record)
    except (TypeError, ValueError, OverflowError) as error:
        raise damaged(path, error) from None


def _is_name(name: str) -> bool:
    """Whether it can be the last element of a path."""
    return name not in ("", ".", "..") and "/" not in name and name.isprintable()
