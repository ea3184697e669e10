"""The differences between Vela's admin API and Pulsar's, with reasons. Any other is a defect.

Vela answers as 4.0.8 where the releases differ. What only one release answers differently is listed
with that release and both statuses, and fails the comparison once it is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.http.missing import Endpoint
    from compat_tests.endpoint_probes import Answer

NO_ANSWER: Final = "Pulsar does not answer"
EXCEPTION: Final = "Pulsar fails with an exception"
BODY: Final = (
    "Vela looks at the body first, and wants one; Pulsar takes none for a removal, or null"
)
ONE_BOOKIE: Final = "Vela's standalone broker has one bookie, so it has no groups to choose from"
ABSENT: Final = "both say 404, in other words"

_WANT_A_BODY: Final = frozenset(
    {
        "createPartitionedTopic",
        "grantPermissionsOnTopic",
        "setRetention",
        "setSchemaCompatibilityStrategy",
    }
)
NO_NAMESPACE: Final = "Vela says that there is no such namespace"
NO_OWNER: Final = "Pulsar wants the broker to own the bundle already"
_OF_NAMESPACES: Final = frozenset(
    {
        "clearNamespaceBacklog",
        "clearNamespaceBacklogForSubscription",
        "removeOffloadPolicies",
        "unsubscribeNamespace",
    }
)
_OF_BUNDLES: Final = frozenset(
    {
        "clearNamespaceBundleBacklog",
        "clearNamespaceBundleBacklogForSubscription",
        "unsubscribeNamespaceBundle",
    }
)
_OF_SEVERAL_BOOKIES: Final = frozenset({"deleteBookieAffinityGroup", "setBookieAffinityGroup"})
_REASONS: Final = {
    ("deleteSchema", "no tenant"): "Vela finds no schema to delete",
    ("deleteSubscription", "non-persistent"): "Vela keeps a subscription that has consumers",
    ("deleteTopic", "non-persistent"): "Vela counts consumers and producers apart",
    ("getInternalStats", "non-persistent"): "nothing is stored, so there is nothing to show",
    ("getManagedLedgerInfo", "partitioned"): "Vela has it for single partitions",
    ("getNamespaceBundle", "no namespace"): "Vela does not name a bundle of nothing",
    ("getNamespaceBundle", "no tenant"): "Vela does not name a bundle of nothing",
    ("getReplicatedSubscriptionStatus", "no subscription"): "a peek before has made it in Pulsar",
    ("peekNthMessage", "no subscription"): "Vela says that it is the subscription",
    ("resetCursor", "non-persistent"): "Vela does not accept what has no effect",
    ("updateClusterMigration", "there"): "Vela does not migrate clusters",
    ("updateProperties", "no namespace"): "Vela does not accept what has no effect",
    ("updateProperties", "no tenant"): "Vela does not accept what has no effect",
    ("updateProperties", "no topic"): "Vela does not accept what has no effect",
}


@dataclass(frozen=True)
class OfRelease:
    """What one release answers differently from the other one, which Vela follows."""

    vela: int
    """Vela's status, that of the other release."""
    oracle: int
    why: str


_NULL_BODY: Final = "5.0.1 shows no group as an empty body; clients read none from either"
_OTHER_WORDS: Final = "5.0.1 says so in other words"
_BUNDLE_FIRST: Final = "5.0.1 looks for the bundle before it looks for its namespace"
_ANYWHERE: Final = ("no tenant", "no namespace", "there")
OF_RELEASES: Final[Mapping[str, Mapping[tuple[str, str], OfRelease]]] = {
    "5.0.1": {
        **{
            ("getTopicHashPositions", variant): OfRelease(404, 412, _BUNDLE_FIRST)
            for variant in ("no tenant", "no namespace")
        },
        ("getBookieAffinityGroup", "there"): OfRelease(204, 200, _NULL_BODY),
        **{
            ("getNamespaceAntiAffinityGroup", variant): OfRelease(204, 200, _NULL_BODY)
            for variant in _ANYWHERE
        },
        **{
            ("setNamespaceAntiAffinityGroup", variant): OfRelease(412, 412, _OTHER_WORDS)
            for variant in _ANYWHERE
        },
    }
}
"""By release, then by operation and variant."""


def reason_of_difference(
    version: str, endpoint: Endpoint, variant: str, vela: Answer, oracle: Answer
) -> str | None:
    """None: the answers are equal. Empty: they differ, and nobody has said why they may.

    version: the release of the oracle.
    """
    told = "" if "\n" in oracle.reason.strip() else oracle.reason.strip()
    if vela.status == oracle.status and (not told or vela.reason == told):
        return None
    listed = OF_RELEASES.get(version, {}).get((endpoint.name, variant))
    if listed is not None and (vela.status, oracle.status) == (listed.vela, listed.oracle):
        return listed.why
    if not oracle.status:
        return NO_ANSWER
    if oracle.status == 500 and vela.status < 500:
        return EXCEPTION
    if vela.status == 501 and endpoint.name in _OF_SEVERAL_BOOKIES:
        return ONE_BOOKIE
    if vela.status == 404 and endpoint.name in _OF_NAMESPACES:
        return NO_NAMESPACE
    if oracle.status == 412 and endpoint.name in _OF_BUNDLES:
        return NO_OWNER
    if endpoint.name == "getSubscriptionTypesEnabled" and oracle.status == 204:
        return "Pulsar shows types once the topic has any policy"
    if vela.status in (400, 412) and endpoint.name in _WANT_A_BODY:
        return BODY
    if vela.status == oracle.status == 404:
        return _REASONS.get((endpoint.name, variant), ABSENT)
    return _REASONS.get((endpoint.name, variant), "")
