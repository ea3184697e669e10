"""Heartbeat namespaces: each broker has two of its own, for checks of its health. Pure.

`pulsar/<cluster>/<host:port>` is a name of Pulsar 1, `pulsar/<host:port>` one of Pulsar 2. Each is
one bundle, owned by that broker alone as long as it is a member, never moved or split, and in no
load report. Nobody creates them: they have no policies. Source: NamespaceService of Pulsar 4.0.8.
"""

from __future__ import annotations

import re
from typing import Final

HEALTH_CHECK_TOPIC: Final = "healthcheck"
"""The local name of the topic that is written and read in a check."""
_TENANT: Final = "pulsar"
_HEARTBEAT: Final = re.compile(r"pulsar/(?:[^/]+/)?([^/]+:[0-9]+)")


def heartbeat_namespaces(cluster: str, broker_id: str) -> tuple[str, str]:
    """The names of one broker's namespaces, in the form of Pulsar 1 and of Pulsar 2."""
    return f"{_TENANT}/{cluster}/{broker_id}", f"{_TENANT}/{broker_id}"


def heartbeat_broker(namespace_name: str) -> str:
    """The id of the broker whose heartbeat namespace it is; empty: it is none."""
    found = _HEARTBEAT.fullmatch(namespace_name)
    return found[1] if found is not None else ""
