"""Builds the authorization of a broker, if it is switched on."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.tenancy.authorization.authorizer import Authorizer, rules_from
from broker.tenancy.authorization.tenant_admins import TenantAdmins
from broker.topics.enforcement import Enforcement

if TYPE_CHECKING:
    from collections.abc import Mapping

    import trio

    from broker.ground.config import BrokerConfig
    from broker.tenancy.namespaces.namespaces import Namespaces
    from broker.topics.enforcement import FollowingTopic
    from broker.topics.service import BrokerService
    from metadata.store import MetadataStore
    from protocol.topic_name import TopicName


def authorizer_of(
    config: BrokerConfig, store: MetadataStore, namespaces: Namespaces
) -> Authorizer | None:
    """None: every caller may do everything."""
    if not config.authorizationEnabled:
        return None
    return Authorizer(rules_from(config), namespaces, TenantAdmins(store))


async def start_enforcement(
    nursery: trio.Nursery,
    authorizer: Authorizer | None,
    service: BrokerService,
    shadows: Mapping[str, FollowingTopic],
) -> None:
    """From now on open producers, consumers and shadows end with their grants."""
    if authorizer is not None:
        enforcement = Enforcement(service.store, authorizer, service.topics, shadows)
        await nursery.start(enforcement.run)


@final
class EverybodyMay:
    """The rights of shadows while authorization is off (ShadowRights)."""

    async def check_shadow(self, shadow: TopicName, source: TopicName) -> None:
        """Every role may read everything."""
        del shadow, source
