"""Scenarios run by the stock Python client; importing this package registers them all."""

from __future__ import annotations

from compat_tests.clients.python import (
    acknowledgement,
    connector_admin,
    connector_driver,
    counts,
    limits,
    markers,
    messages,
    policies,
    positions,
    producers,
    resource_groups,
    restarts,
    schema_verdicts,
    schemas,
    subscriptions,
    topics,
)
from compat_tests.clients.python.scenario import SCENARIOS

__all__ = [
    "SCENARIOS",
    "acknowledgement",
    "connector_admin",
    "connector_driver",
    "counts",
    "limits",
    "markers",
    "messages",
    "policies",
    "positions",
    "producers",
    "resource_groups",
    "restarts",
    "schema_verdicts",
    "schemas",
    "subscriptions",
    "topics",
]
