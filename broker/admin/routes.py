"""All routes of the HTTP side: one line per resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.admin import (
    brokers,
    clusters,
    lookup,
    messages,
    metrics_page,
    namespace_policies,
    namespaces,
    partitions,
    schemas,
    stats,
    subscriptions,
    tenants,
    topics,
)
from broker.admin.missing import missing_routes

if TYPE_CHECKING:
    from broker.admin.router import Route


def all_routes() -> tuple[Route, ...]:
    """Every method and path that is answered. Missing operations of Pulsar answer 501."""
    present = (
        *metrics_page.ROUTES,
        *brokers.ROUTES,
        *clusters.ROUTES,
        *tenants.ROUTES,
        *namespaces.ROUTES,
        *namespace_policies.ROUTES,
        *topics.ROUTES,
        *partitions.ROUTES,
        *subscriptions.ROUTES,
        *messages.ROUTES,
        *stats.ROUTES,
        *schemas.ROUTES,
        *lookup.ROUTES,
    )
    return (*present, *missing_routes(present))
