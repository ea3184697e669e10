"""The clusters of a namespace or a topic: this one, and no other. Pure.

Statuses and texts are those of Pulsar 4.0.8. Another existing cluster is refused, because Vela does
not replicate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.ground.refusal import Refusal, precondition_failed
from broker.tenancy.policies.bodies import names_of

if TYPE_CHECKING:
    from collections.abc import Collection

Json = Any
REPLICATION_FIELD: Final = "replication_clusters"
ALLOWED_FIELD: Final = "allowed_clusters"
_NOT_IMPLEMENTED: Final = 501


def replication_clusters(policy: str, value: Json) -> list[str]:
    """The body of a request, each name once. Raises: Refusal."""
    names = [] if value is None else list(dict.fromkeys(names_of(policy, value)))
    if not names:
        raise precondition_failed("ClusterIds should not be null or empty")
    if "global" in names:
        raise precondition_failed("Cannot specify global in the list of replication clusters")
    return names


def allowed_clusters(policy: str, value: Json) -> list[str]:
    """The body of a request, each name once. Raises: Refusal."""
    return list(dict.fromkeys(names_of(policy, [] if value is None else value)))


def check_replication(names: Collection[str], own: str, known: Collection[str]) -> None:
    """Whether a namespace may be replicated to these. `known`: the clusters that exist.

    Raises: Refusal.
    """
    for name in names:
        if name not in known:
            raise Refusal(403, f"Invalid cluster id: {name}")
    _refuse_others(names, own)


def check_replication_of_topic(names: Collection[str], own: str, known: Collection[str]) -> None:
    """As `check_replication`. Raises: Refusal."""
    if own not in names:
        raise precondition_failed(
            "Can not remove local cluster from the local topic-level replication clusters policy"
        )
    check_replication(names, own, known)


def check_allowed(
    names: Collection[str],
    own: str,
    tenant: str,
    of_tenant: Collection[str],
    replicated: Collection[str],
) -> None:
    """Whether these may be all that a namespace may use. Raises: Refusal."""
    for name in names:
        if name not in of_tenant:
            raise Refusal(
                403,
                f"Cluster [{name}] is not in the list of allowed clusters list for tenant "
                f"[{tenant}]",
            )
    for name in replicated:
        if name not in names:
            raise Refusal(
                400,
                f"Allowed clusters do not contain the replication cluster [{name}]. Please remove "
                "the replication cluster if the cluster is not allowed for this namespace",
            )
    _refuse_others(names, own)


def _refuse_others(names: Collection[str], own: str) -> None:
    for name in names:
        if name != own:
            raise Refusal(
                _NOT_IMPLEMENTED, f"Vela does not replicate to other clusters yet: leave out {name}"
            )
