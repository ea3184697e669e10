"""Checks the policies in a request about a namespace. Pure.

A policy without effect in Vela is refused by name unless its value sets nothing: if it were
accepted, a limit would appear to apply and would not. Wrong values are refused with the statuses
and texts of Pulsar 4.0.8. Fields that Pulsar does not know are dropped, as in Pulsar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

from broker.ground.config import SUBSCRIPTION_TYPES, SchemaStrategy
from broker.ground.refusal import Refusal, precondition_failed
from broker.tenancy.policies.backlog_quotas import quotas
from broker.tenancy.policies.bodies import INT, LONG, flag, number_in, object_of, whole
from broker.tenancy.policies.delays import delayed_delivery
from broker.tenancy.policies.delivery_rates import (
    REPLICATOR_DISPATCH,
    SUBSCRIBE,
    SUBSCRIPTION_DISPATCH,
    TOPIC_DISPATCH,
    dispatch_rate,
    subscribe_rate,
)
from broker.tenancy.policies.grants import (
    ACTIONS,
    AUTH_FIELD,
    AUTH_MODES,
    NAMESPACE_AUTH,
    TOPIC_AUTH,
    grants_in,
)
from broker.tenancy.policies.idle import inactive_topics
from broker.tenancy.policies.offload import offload_lag, offload_policies, offload_threshold
from broker.tenancy.policies.persistence import persistence
from broker.tenancy.policies.rates import publish_rate

Json = Any
Check = Callable[[str, Json], Json]
"""(policy, value of the body) -> the value to keep. Raises: Refusal."""

NOT_IMPLEMENTED: Final = 501
_BOUNDARY: Final = re.compile(r"0x[0-9a-fA-F]{1,8}")
AUTO_UPDATE_STRATEGIES: Final[Mapping[str, SchemaStrategy]] = {
    "AutoUpdateDisabled": "ALWAYS_INCOMPATIBLE",
    "Backward": "BACKWARD",
    "Forward": "FORWARD",
    "Full": "FULL",
    "AlwaysCompatible": "ALWAYS_COMPATIBLE",
    "BackwardTransitive": "BACKWARD_TRANSITIVE",
    "ForwardTransitive": "FORWARD_TRANSITIVE",
    "FullTransitive": "FULL_TRANSITIVE",
}
"""The former kind of schema compatibility strategies."""
_NO_AUTO_TOPIC: Final = "Invalid configuration for autoTopicCreationOverride. the detail is "


def whole_number(policy: str, value: Json) -> int:
    """A number of 32 bits."""
    return whole(policy, value, INT)


def not_negative(number: int, refusal: str) -> int:
    """The number. Raises: Refusal: with this text, if it is below 0."""
    if number < 0:
        raise precondition_failed(refusal)
    return number


def limit(policy: str, value: Json) -> int:
    """A number that is 0 or more."""
    return not_negative(whole_number(policy, value), f"{policy} must be 0 or more")


def snapshot_interval(policy: str, value: Json) -> int:
    """Seconds between two snapshots for deduplication; 0: only the number of entries counts."""
    return not_negative(whole_number(policy, value), "interval must be greater than or equal to 0")


def compaction_threshold(policy: str, value: Json) -> int:
    """Bytes of backlog after which a topic is to be compacted; 0: never."""
    return not_negative(whole(policy, value, LONG), f"{policy} must be 0 or more")


def entry_filters(policy: str, value: Json) -> Json:
    """Names of filters of entries. Vela runs none, so none is found."""
    names = object_of(policy, value).get("entryFilterNames") or ""
    if not isinstance(names, str):
        raise Refusal(400, "entryFilterNames must be a text")
    if not names:
        raise Refusal(
            400, "entryFilterNames can't be empty. To remove entry filters use the remove method."
        )
    raise Refusal(400, f"Entry filter '{names.split(',')[0]}' not found")


def auto_update_strategy(policy: str, value: Json) -> str:
    """One of them, which decides where the namespace has no strategy of the present kind."""
    if not isinstance(value, str) or value not in AUTO_UPDATE_STRATEGIES:
        raise Refusal(400, f"{policy} must be one of {', '.join(AUTO_UPDATE_STRATEGIES)}")
    return str(value)


def time_to_live(policy: str, value: Json) -> int:
    """How long messages wait in the backlog, of a new namespace or of a topic."""
    return not_negative(whole_number(policy, value), "Invalid value for message TTL")


def by_cluster(check: Check) -> Check:
    """A value for each cluster, each of which the check keeps. Clusters without one are dropped."""

    def checked_by_cluster(policy: str, value: Json) -> Json:
        given = object_of(policy, value)
        return {name: check(policy, each) for name, each in given.items() if each is not None}

    return checked_by_cluster


def strategy(policy: str, value: Json) -> str:
    """A schema compatibility strategy."""
    if value is None:
        return "UNDEFINED"
    if value not in get_args(SchemaStrategy):
        raise Refusal(400, f"{policy} must be one of {', '.join(get_args(SchemaStrategy))}")
    return str(value)


def auto_topic(policy: str, value: Json) -> Json:
    """autoTopicCreationOverride."""
    given = object_of(policy, value)
    count, kind = given.get("defaultNumPartitions"), given.get("topicType")
    if count is not None:
        count = whole_number("defaultNumPartitions", count)
    if not isinstance(kind, str | None):
        raise Refusal(400, "topicType must be a text")
    allowed = flag(policy, given.get("allowAutoTopicCreation", False))
    kept = {"allowAutoTopicCreation": allowed, "topicType": kind, "defaultNumPartitions": count}
    kept = {name: each for name, each in kept.items() if each is not None}
    if not allowed:
        return kept
    if kind not in ("partitioned", "non-partitioned"):
        raise precondition_failed(f"{_NO_AUTO_TOPIC}Unknown topic type [{kind}]")
    if kind == "non-partitioned":
        if count is not None:
            raise precondition_failed(
                f"{_NO_AUTO_TOPIC}[defaultNumPartitions] is not allowed to be set when the type is "
                "non-partition."
            )
    elif count is None:
        raise precondition_failed(
            f"{_NO_AUTO_TOPIC}[defaultNumPartitions] cannot be null when the type is partitioned."
        )
    elif count < 1:
        raise precondition_failed(
            f"{_NO_AUTO_TOPIC}[defaultNumPartitions] cannot be less than 1 for partition type."
        )
    return kept


def auto_subscription(policy: str, value: Json) -> Json:
    """autoSubscriptionCreationOverride."""
    name = "allowAutoSubscriptionCreation"
    return {name: flag(policy, object_of(policy, value).get(name, False))}


def retention(policy: str, value: Json) -> Json:
    """Both limits, -1 for none; or both 0."""
    given = object_of(policy, value)
    minutes = number_in(given, "retentionTimeInMinutes", 0, INT)
    megabytes = number_in(given, "retentionSizeInMB", 0, LONG)
    prefix = "Invalid retention policy:"
    if megabytes < -1:
        raise Refusal(400, f"{prefix} size limit must be >= -1")
    if minutes < -1:
        raise Refusal(400, f"{prefix} time limit must be >= -1")
    if (minutes == 0) != (megabytes == 0):
        raise Refusal(
            400,
            f"{prefix} Setting a single time or size limit to 0 is invalid when one of the limits "
            "has a non-zero value. Use the value of -1 instead of 0 to ignore a specific limit. To "
            "disable retention both limits must be set to 0.",
        )
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}


def subscription_types(policy: str, value: Json) -> list[str]:
    """Names of types, each once. Pulsar fails with an exception where this refuses."""
    if not isinstance(value, list) or not all(each in SUBSCRIPTION_TYPES for each in value):
        raise Refusal(
            400, f"{policy} must be an array of types, of {', '.join(SUBSCRIPTION_TYPES)}"
        )
    return list(dict.fromkeys(value))


def _text(policy: str, value: Json) -> str:
    if not isinstance(value, str):
        raise Refusal(400, f"{policy} must be a name")
    return value


def _texts(policy: str, value: Json) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise Refusal(400, f"{policy} must be an array of names")
    return value


def _auth_policies(policy: str, value: Json) -> Json:
    given = object_of(policy, value)
    try:
        grants_in({AUTH_FIELD: given})
    except (TypeError, ValueError) as error:
        raise Refusal(400, f"{policy}: {error}") from None
    for roles in (given.get(NAMESPACE_AUTH), *(given.get(TOPIC_AUTH) or {}).values()):
        for role, actions in (roles or {}).items():
            if not set(actions or ()) <= set(ACTIONS):
                known = ", ".join(ACTIONS)
                raise Refusal(400, f"{policy}: actions of {role!r} must be some of {known}")
    return {name: each for name, each in given.items() if each is not None}


def auth_mode(policy: str, value: Json) -> str:
    """Whether the names of subscriptions begin with the role that uses them."""
    if value is None:
        return AUTH_MODES[0]
    if value not in AUTH_MODES:
        raise Refusal(400, f"{policy} must be one of {', '.join(AUTH_MODES)}")
    return str(value)


def _bundles(policy: str, value: Json) -> Json:
    given = object_of(policy, value)
    if not isinstance(given.get("numBundles"), int | None):
        raise Refusal(400, "numBundles must be a whole number")
    boundaries = _texts(policy, given.get("boundaries") or [])
    if not all(map(_BOUNDARY.fullmatch, boundaries)):
        raise Refusal(400, f"{policy} must have boundaries such as 0x40000000")
    return given


DELETED_FIELD: Final = "deleted"
"""True while the namespace is being deleted, as brokers of Pulsar write it."""


def _not_deleted(field: str, value: Json) -> Json:
    if value is not False:
        raise Refusal(NOT_IMPLEMENTED, f"A new namespace cannot be {field}: leave that out")
    return value


ACTED_ON: Final[Mapping[str, Check]] = {
    "allowed_clusters": _texts,
    "auth_policies": _auth_policies,
    "backlog_quota_map": quotas,
    "autoSubscriptionCreationOverride": auto_subscription,
    "autoTopicCreationOverride": auto_topic,
    "bundles": _bundles,
    SUBSCRIBE: by_cluster(subscribe_rate),
    "compaction_threshold": compaction_threshold,
    "deduplicationEnabled": flag,
    "deduplicationSnapshotIntervalSeconds": snapshot_interval,
    "delayed_delivery_policies": delayed_delivery,
    "dispatcherPauseOnAckStatePersistentEnabled": flag,
    "encryption_required": flag,
    "entryFilters": entry_filters,
    "inactive_topic_policies": inactive_topics,
    "is_allow_auto_update_schema": flag,
    "max_consumers_per_subscription": whole_number,
    "max_consumers_per_topic": whole_number,
    "max_producers_per_topic": whole_number,
    "max_subscriptions_per_topic": whole_number,
    "max_topics_per_namespace": whole_number,
    "max_unacked_messages_per_consumer": whole_number,
    "max_unacked_messages_per_subscription": whole_number,
    "message_ttl_in_seconds": time_to_live,
    "offload_deletion_lag_ms": offload_lag,
    "offload_policies": offload_policies,
    "offload_threshold": offload_threshold,
    "offload_threshold_in_seconds": offload_threshold,
    "persistence": persistence,
    "properties": object_of,
    "publishMaxMessageRate": by_cluster(publish_rate),
    "replication_clusters": _texts,
    REPLICATOR_DISPATCH: by_cluster(dispatch_rate),  # kept and shown: there are no replicators
    "resource_group_name": _text,
    "retention_policies": retention,
    "schema_auto_update_compatibility_strategy": auto_update_strategy,
    "schema_compatibility_strategy": strategy,
    "schema_validation_enforced": flag,
    SUBSCRIPTION_DISPATCH: by_cluster(dispatch_rate),
    DELETED_FIELD: _not_deleted,
    "subscription_auth_mode": auth_mode,
    "subscription_expiration_time_minutes": whole_number,
    "subscription_types_enabled": subscription_types,
    TOPIC_DISPATCH: by_cluster(dispatch_rate),
}
"""Fields of Policies with an effect, and the checks of their values."""

NO_EFFECT: Final[Mapping[str, tuple[Json, ...]]] = {
    "clusterDispatchRate": (),
    "latency_stats_sample_rate": (),
    "migrated": (False,),
}
"""Fields of Policies without effect in Vela yet, and values of them that set nothing, in addition
to null, {}, [] and an empty text."""


def checked(given: Mapping[str, Json]) -> dict[str, Json]:
    """The policies of a new namespace that a request gives, without those that are null.

    Raises: Refusal: 501 of a policy without an effect, 400 or 412 of a wrong value.
    """
    without = without_effect(given)
    if without:
        raise Refusal(
            NOT_IMPLEMENTED,
            f"Vela does not act on these policies of a namespace yet: {', '.join(without)}."
            " Leave them out",
        )
    said = {name: value for name, value in given.items() if value is not None}
    kept = {name: said[name] for name in NO_EFFECT if name in said}
    return kept | {
        name: check(name, said[name]) for name, check in ACTED_ON.items() if name in said
    }


def without_effect(fields: Mapping[str, Json]) -> list[str]:
    """Names of the fields that request something Vela does not do."""
    return [
        name
        for name, neutral in NO_EFFECT.items()
        if fields.get(name) not in (None, {}, [], "", *neutral)
    ]
