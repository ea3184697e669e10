"""Policies of a single topic about what it keeps, when it goes, and what it does with messages.

The rest are in `topic_policies`, where the forms of both tables are. Statuses and texts as of
Pulsar 4.0.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.ground.refusal import Refusal, precondition_failed
from broker.http.namespaces.namespace_policies import EMPTY_BODY
from broker.http.topics.topic_policies import TopicPolicy, routes_of
from broker.tenancy.policies import delays, idle
from broker.tenancy.policies.backlog_quotas import conflict_with_retention
from broker.tenancy.policies.bodies import flag
from broker.tenancy.policies.clusters import (
    REPLICATION_FIELD,
    check_replication_of_topic,
    replication_clusters,
)
from broker.tenancy.policies.delays import delayed_delivery
from broker.tenancy.policies.given import (
    auto_subscription,
    compaction_threshold,
    entry_filters,
    retention,
    snapshot_interval,
    strategy,
)
from broker.tenancy.policies.idle import inactive_topics
from broker.tenancy.policies.offload import offload_policies

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.http.context import AdminContext
    from broker.tenancy.policies.given import Check

Json = Any


def _worded(check: Check, text: Callable[[str], str]) -> Check:
    """A check whose refusals of a number have another text than at a namespace."""

    def checked(policy: str, value: Json) -> Json:
        try:
            return check(policy, value)
        except Refusal as refusal:
            if refusal.status != 412:
                raise
            raise precondition_failed(text(policy)) from None

    return checked


def _refuse_other_clusters(context: AdminContext, value: Json) -> None:
    """Raises: Refusal. A name that is no cluster is refused as one that is not this one."""
    own = context.config.clusterName
    check_replication_of_topic(value, own, (own,))


_REPLICATED_NOWHERE: Final = (
    "Please do not use the global topic level policy when namespace-level replication is not "
    "enabled, because the global level policy relies on namespace-level replication"
)
POLICIES: Final = (
    TopicPolicy(
        "autoSubscriptionCreation",
        "autoSubscriptionCreationOverride",
        auto_subscription,
        lambda policies: {"allowAutoSubscriptionCreation": policies.auto_subscription_creation},
        null_removes=True,
    ),
    TopicPolicy(
        "compactionThreshold",
        "compaction_threshold",
        _worded(compaction_threshold, lambda policy: f"Invalid value for {policy}"),
        lambda policies: policies.compaction_threshold_bytes,
        no_body=EMPTY_BODY,
        null=0,
    ),
    TopicPolicy(
        "deduplicationEnabled",
        "deduplicationEnabled",
        flag,
        lambda policies: policies.deduplication,
        null_removes=True,
    ),
    TopicPolicy(
        "deduplicationSnapshotInterval",
        "deduplicationSnapshotIntervalSeconds",
        _worded(snapshot_interval, lambda _policy: "interval must be 0 or more"),
        lambda _policies: None,
        null_removes=True,
    ),
    TopicPolicy(
        "delayedDelivery",
        delays.FIELD,
        delayed_delivery,
        lambda policies: delays.record_of(policies.delays),
        null_removes=True,
    ),
    TopicPolicy(
        "dispatcherPauseOnAckStatePersistent",
        "dispatcherPauseOnAckStatePersistentEnabled",
        flag,
        lambda policies: policies.dispatch_waits_for_acks,
        switched_on=True,
        unset=False,
    ),
    TopicPolicy(
        "entryFilters",
        "entryFilters",
        entry_filters,
        lambda _policies: {"entryFilterNames": ""},
        null_removes=True,
    ),
    TopicPolicy(
        "inactiveTopicPolicies",
        idle.FIELD,
        inactive_topics,
        lambda policies: idle.record_of(policies.idle),
        null_removes=True,
    ),
    TopicPolicy(
        "offloadPolicies",
        "offload_policies",
        offload_policies,
        lambda _policies: None,
        null="",
    ),
    TopicPolicy(
        "replication",
        REPLICATION_FIELD,
        replication_clusters,
        lambda policies: list(policies.replication_clusters),
        null=[],
        refuse=_refuse_other_clusters,
        one_cluster_only=_REPLICATED_NOWHERE,
    ),
    TopicPolicy(
        "retention",
        "retention_policies",
        retention,
        lambda policies: {
            "retentionTimeInMinutes": policies.retention_minutes,
            "retentionSizeInMB": policies.retention_megabytes,
        },
        conflict=conflict_with_retention,
    ),
    TopicPolicy(
        "schemaCompatibilityStrategy",
        "schema_compatibility_strategy",
        strategy,
        lambda policies: policies.schema_strategy,
        null_removes=True,
        setter="PUT",
        neutral="UNDEFINED",
    ),
    TopicPolicy(
        "schemaValidationEnforced",
        "schema_validation_enforced",
        flag,
        lambda policies: policies.schema_validation_enforced,
        no_body=EMPTY_BODY,
        null=False,
        unset=False,
        removable=False,
    ),
)

ROUTES: Final = tuple(route for policy in POLICIES for route in routes_of(policy))
