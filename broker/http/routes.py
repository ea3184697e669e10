"""All routes of the HTTP side: one line per resource."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker.http import lookup
from broker.http.clusters import (
    anti_affinity,
    bookies,
    brokers,
    bundles,
    clusters,
    failure_domains,
    isolation_policies,
    migration,
    resource_groups,
)
from broker.http.metrics import metrics_page
from broker.http.missing import missing_routes, with_questions
from broker.http.namespaces import (
    backlog_quotas,
    namespace_backlogs,
    namespace_clusters,
    namespace_policies,
    namespace_properties,
    namespaces,
    permissions,
    tenants,
)
from broker.http.topics import (
    messages,
    non_persistent,
    partitions,
    schemas,
    stats,
    subscription_policies,
    subscriptions,
    topic_behaviour,
    topic_policies,
    topics,
)
from broker.http.topics.parts import by_parts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.http.router import Route


def at_owner(routes: Iterable[Route]) -> tuple[Route, ...]:
    """The same routes; those of one topic are answered by its owner."""
    return tuple(
        replace(route, at_owner=True) if "{topic}" in route.path else route for route in routes
    )


def all_routes() -> tuple[Route, ...]:
    """Every method and path that is answered, with what it asks the authorization. Missing
    operations of Pulsar answer 501."""
    present = (
        *metrics_page.ROUTES,
        *brokers.ROUTES,
        *bookies.ROUTES,
        *clusters.ROUTES,
        *migration.ROUTES,
        *isolation_policies.ROUTES,
        *failure_domains.ROUTES,
        *anti_affinity.ROUTES,
        *tenants.ROUTES,
        *namespaces.ROUTES,
        *bundles.ROUTES,
        *permissions.ROUTES,
        *namespace_policies.ROUTES,
        *resource_groups.ROUTES,
        *namespace_clusters.ROUTES,
        *namespace_properties.ROUTES,
        *namespace_backlogs.ROUTES,
        *at_owner(backlog_quotas.ROUTES),
        *non_persistent.ROUTES,
        *by_parts(at_owner(topics.ROUTES)),
        *at_owner(topic_policies.ROUTES),
        *at_owner(topic_behaviour.ROUTES),
        *at_owner(subscription_policies.ROUTES),
        *by_parts(partitions.ROUTES),
        *by_parts(at_owner(subscriptions.ROUTES)),
        *at_owner(messages.ROUTES),
        *by_parts(at_owner(stats.ROUTES)),
        *at_owner(schemas.ROUTES),
        *lookup.ROUTES,
    )
    return (*with_questions(present), *missing_routes(present))
