"""Policies of a namespace: Pulsar's Policies JSON. Unknown fields are preserved. Pure.

`Policies` is immutable; a change makes a new object. `effective` decides which are in force. Field
names and defaults: Policies of Pulsar 4.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from broker.ground.refusal import Refusal
from broker.tenancy.policies.given import DELETED_FIELD, checked
from broker.tenancy.policies.grants import AUTH_FIELD, TOPIC_AUTH, grants_in

if TYPE_CHECKING:
    from broker.ground.config import BrokerConfig
    from broker.tenancy.policies.grants import Grants

Json = dict[str, Any]

_HASH_SPACE: Final = 1 << 32
_BUNDLES_MAX: Final = 16_384
"""Each adds a line to every answer that shows the namespace."""
AUTO_UPDATE_FIELD: Final = "is_allow_auto_update_schema"
"""Records made by Pulsar's tools may lack it. The configuration then decides."""
_FRESH: Final[Json] = {
    "auth_policies": {
        "namespace_auth": {},
        "destination_auth": {},
        "subscription_auth_roles": {},
    },
    "replication_clusters": [],
    "allowed_clusters": [],
    "bundles": None,
    "backlog_quota_map": {},
    "clusterDispatchRate": {},
    "topicDispatchRate": {},
    "subscriptionDispatchRate": {},
    "replicatorDispatchRate": {},
    "clusterSubscribeRate": {},
    "publishMaxMessageRate": {},
    "latency_stats_sample_rate": {},
    DELETED_FIELD: False,
    "encryption_required": False,
    "subscription_auth_mode": "None",
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "schema_compatibility_strategy": "UNDEFINED",
    "schema_validation_enforced": False,
    "subscription_types_enabled": [],
    "properties": {},
    "migrated": False,
}


@final
class Policies:
    """The policies of one namespace."""

    __slots__ = ("_grants", "fields")

    def __init__(self, fields: Json) -> None:
        self.fields = fields
        """The whole JSON object; never changed in place."""
        self._grants: Grants | None = None

    @classmethod
    def fresh(cls, given: Json | None, config: BrokerConfig) -> Policies:
        """Policies of a new namespace: those of the request over the defaults.

        Raises: Refusal: the given policies are wrong, or have no effect yet.
        """
        auto_update = {AUTO_UPDATE_FIELD: config.isAllowAutoUpdateSchemaEnabled}
        fields = {**_FRESH, **auto_update, **checked(given or {})}
        if not fields["replication_clusters"]:
            fields["replication_clusters"] = [config.clusterName]
        fields["auth_policies"] = {**_FRESH["auth_policies"], **fields["auth_policies"]}
        fields["bundles"] = _bundles(fields["bundles"], config.defaultNumberOfNamespaceBundles)
        fields.setdefault("clusterThatCanDeleteNamespace", config.clusterName)
        return cls(fields)

    def with_fields(self, **changed: object) -> Policies:
        """A copy with some fields replaced; None removes one."""
        merged = {**self.fields, **changed}
        return Policies({key: value for key, value in merged.items() if value is not None})

    @property
    def grants(self) -> Grants:
        """The grants; `flaw_in` has checked that they can be read."""
        if self._grants is None:
            self._grants = grants_in(self.fields)
        return self._grants

    def auth(self, part: str) -> Json:
        """One part of `auth_policies` as it is stored."""
        return dict((self.fields.get(AUTH_FIELD) or {}).get(part) or {})

    def with_auth(self, part: str, value: Json) -> Policies:
        """A copy with this part replaced."""
        auth = {**(self.fields.get(AUTH_FIELD) or {}), part: value}
        return self.with_fields(**{AUTH_FIELD: auth})

    def without_topic_grants(self, topic: str) -> Policies:
        """A copy without the grants on one topic (full name)."""
        topics = self.auth(TOPIC_AUTH)
        topics.pop(topic, None)
        return self.with_auth(TOPIC_AUTH, topics)

    def marked(self, *, deleted: bool) -> Policies:
        """A copy of a namespace that is being deleted, or is not any more."""
        return self.with_fields(**{DELETED_FIELD: deleted})

    @property
    def bundles(self) -> Json:
        """Hash ranges: `boundaries` and `numBundles`."""
        bundles: Json = self.fields["bundles"]
        return bundles


def _bundles(given: Json | None, count_default: int) -> Json:
    """Hash ranges of the namespace: boundaries of equal ranges over 32 bits."""
    asked = (given or {}).get("numBundles")
    count = asked if isinstance(asked, int) and asked > 0 else count_default
    if count > _BUNDLES_MAX:
        raise Refusal(400, f"Invalid number of bundles. Vela makes {_BUNDLES_MAX} at most")
    boundaries = (given or {}).get("boundaries")
    if boundaries:
        if len(boundaries) != count + 1:
            raise Refusal(400, "Invalid number of bundles. Must match the boundaries")
        return {"boundaries": list(boundaries), "numBundles": count}
    step = _HASH_SPACE // count
    starts = [f"0x{step * index:08x}" for index in range(count)]
    return {"boundaries": [*starts, "0xffffffff"], "numBundles": count}
