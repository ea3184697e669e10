"""The roles that administer tenants, in memory: read on first use, and as current as the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.tenancy.namespaces.json_nodes import damaged, read_json
from broker.tenancy.namespaces.names import POLICIES_PATH, tenant_path
from protocol.topic_name import is_entity_name

if TYPE_CHECKING:
    from metadata.store import MetadataStore

ADMINS_FIELD: Final = "adminRoles"


@final
class TenantAdmins:
    """See the module docstring. Only tenants that exist take memory."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._found: dict[str, frozenset[str]] = {}
        self._reads_void = 0
        """How often a tenant may have changed: what was being read meanwhile is void."""
        store.watch(POLICIES_PATH, self._changed)

    def in_memory(self, tenant: str) -> frozenset[str] | None:
        """The roles; None: call `find`."""
        return self._found.get(tenant)

    async def find(self, tenant: str) -> frozenset[str] | None:
        """The roles; None: there is no such tenant. Raises: MetadataError."""
        while True:
            found = self._found.get(tenant)
            if found is not None:
                return found
            if not is_entity_name(tenant):
                return None
            void = self._reads_void
            found = await self._read(tenant)
            if void == self._reads_void:
                if found is not None:
                    self._found[tenant] = found
                return found

    async def _read(self, tenant: str) -> frozenset[str] | None:
        path = tenant_path(tenant)
        info = await read_json(self._store, path)
        if info is None:
            return None
        roles = info.get(ADMINS_FIELD) or []
        if not isinstance(roles, list) or not all(isinstance(each, str) for each in roles):
            raise damaged(path, f"{ADMINS_FIELD} is not an array of names")
        return frozenset(roles)

    def _changed(self, path: str) -> None:
        """Namespaces lie one level below."""
        tenant = path.removeprefix(POLICIES_PATH).lstrip("/")
        if not tenant:  # the store does not know what has changed
            self._found.clear()
        elif "/" not in tenant:
            self._found.pop(tenant, None)
        else:
            return
        self._reads_void += 1
