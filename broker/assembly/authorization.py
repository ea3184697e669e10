"""Authorization of a broker: whether there is any, and what it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.tenancy.authorization.authorizer import Authorizer, rules_from
from broker.tenancy.authorization.tenant_admins import TenantAdmins
from broker.topics.enforcement import Enforcement

if TYPE_CHECKING:
    import trio

    from broker.ground.config import BrokerConfig
    from broker.tenancy.namespaces.namespaces import Namespaces
    from broker.topics.service import BrokerService
    from metadata.store import MetadataStore


def authorizer_of(
    config: BrokerConfig, store: MetadataStore, namespaces: Namespaces
) -> Authorizer | None:
    """None: everybody may do everything."""
    if not config.authorizationEnabled:
        return None
    return Authorizer(rules_from(config), namespaces, TenantAdmins(store))


async def start_enforcement(
    nursery: trio.Nursery, authorizer: Authorizer | None, service: BrokerService
) -> None:
    """From now on open producers and consumers end with their grants."""
    if authorizer is not None:
        await nursery.start(Enforcement(service.store, authorizer, service.topics).run)
