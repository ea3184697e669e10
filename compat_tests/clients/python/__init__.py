"""Scenarios run by the stock Python client; importing this package registers them all."""

from __future__ import annotations

from compat_tests.clients.python import (
    acknowledgement,
    backlogs,
    connector_admin,
    connector_driver,
    counts,
    delivery_rates,
    limits,
    markers,
    messages,
    policies,
    policies_in_use,
    positions,
    producers,
    refusals,
    resource_groups,
    restarts,
    schema_verdicts,
    schemas,
    subscriptions,
    topic_behaviour,
    topics,
)
from compat_tests.clients.python.scenario import SCENARIOS

__all__ = [
    "SCENARIOS",
    "acknowledgement",
    "backlogs",
    "connector_admin",
    "connector_driver",
    "counts",
    "delivery_rates",
    "limits",
    "markers",
    "messages",
    "policies",
    "policies_in_use",
    "positions",
    "producers",
    "refusals",
    "resource_groups",
    "restarts",
    "schema_verdicts",
    "schemas",
    "subscriptions",
    "topic_behaviour",
    "topics",
]
