"""Backlog quotas in policies: their JSON and its meaning. Pure.

A topic has two of them: one for the size of its backlog, one for the age of the oldest message in
it. Each has a limit of both kinds in its JSON and uses only its own.

Source: BacklogQuota, AdminResource.checkBacklogQuota and BacklogQuotaManager of Pulsar 4.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from broker.ground.refusal import Refusal
from broker.tenancy.policies.bodies import INT, LONG, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.ground.config import BrokerConfig
    from broker.tenancy.policies.levels import Levels

Json = Any

FIELD: Final = "backlog_quota_map"
SIZE: Final = "destination_storage"
AGE: Final = "message_age"
TYPES: Final = (SIZE, AGE)

EVICT: Final = "consumer_backlog_eviction"
EXCEPTION: Final = "producer_exception"
HOLD: Final = "producer_request_hold"
ACTIONS: Final = (HOLD, EXCEPTION, EVICT)

QUOTA_KEYS: Final = frozenset(
    {
        "backlogQuotaDefaultLimitBytes",
        "backlogQuotaDefaultLimitGB",
        "backlogQuotaDefaultLimitSecond",
        "backlogQuotaDefaultRetentionPolicy",
    }
)
"""Keys of the configuration that these policies override."""
_GIB: Final = 1024**3
_MIB: Final = 1024**2


@final
@dataclass(frozen=True, slots=True)
class BacklogQuota:
    """One quota. A negative limit is none; an age of 0 is none either."""

    limit_bytes: int
    limit_seconds: int
    action: str
    """One of `ACTIONS`."""


@final
@dataclass(frozen=True, slots=True)
class BacklogQuotas:
    """The quotas in force for a topic."""

    size: BacklogQuota
    age: BacklogQuota

    @property
    def limits_size(self) -> bool:
        """Whether the size has a limit. One of 0 takes no message, as in Pulsar."""
        return self.size.limit_bytes >= 0

    @property
    def limits_age(self) -> bool:
        """Whether the age has a limit."""
        return self.age.limit_seconds > 0


def default_quota(config: BrokerConfig) -> BacklogQuota:
    """The quotas of the configuration, for both kinds."""
    gigabytes = config.backlogQuotaDefaultLimitGB
    return BacklogQuota(
        int(gigabytes * _GIB) if gigabytes > 0 else config.backlogQuotaDefaultLimitBytes,
        config.backlogQuotaDefaultLimitSecond,
        config.backlogQuotaDefaultRetentionPolicy,
    )


def quotas_of(config: BrokerConfig, levels: Levels) -> BacklogQuotas:
    """The quotas in force. Each kind is that of the nearest level that has it."""
    size, age = (_nearest(config, levels, kind) for kind in TYPES)
    return BacklogQuotas(size, age)


def _nearest(config: BrokerConfig, levels: Levels, kind: str) -> BacklogQuota:
    said = ((each.get(FIELD) or {}).get(kind) for each in levels)
    record = next((each for each in said if each), None)
    return default_quota(config) if record is None else _quota_in(record)


def _quota_in(record: Mapping[str, Json]) -> BacklogQuota:
    """The quota of a level. Pulsar keeps a quota without a policy if a namespace is created with
    it, and fails when it is exceeded: such a quota limits nothing here."""
    action = record.get("policy")
    if action not in ACTIONS:
        return BacklogQuota(-1, -1, HOLD)
    size = record.get("limitSize")
    size = record.get("limit") if size is None else size
    return BacklogQuota(int(size or 0), int(record.get("limitTime") or 0), action)


def record_of(quota: BacklogQuota) -> dict[str, Json]:
    """The JSON of a quota. `limit` is a former name of `limitSize`."""
    return {
        "limit": quota.limit_bytes,
        "limitSize": quota.limit_bytes,
        "limitTime": quota.limit_seconds,
        "policy": quota.action,
    }


def quota(where: str, value: Json) -> dict[str, Json]:
    """A quota of a request, complete. `where`: `tenant/namespace`. Raises: Refusal."""
    if not isinstance(value, dict):
        raise Refusal(400, "A backlog quota must be a JSON object")
    size = value.get("limitSize", value.get("limit", 0))
    limit_bytes = 0 if size is None else whole("limitSize", size, LONG)
    seconds = value.get("limitTime", 0)
    limit_seconds = 0 if seconds is None else whole("limitTime", seconds, INT)
    action = value.get("policy")
    if action not in ACTIONS:
        raise Refusal(
            400,
            f"Set namespace[{where}] backlog quota failed because the data validation failed. "
            "the attribute policy cannot be null",
        )
    return record_of(BacklogQuota(limit_bytes, limit_seconds, action))


def quotas(policy: str, value: Json) -> Json:
    """The quotas of a new namespace, by type. Raises: Refusal."""
    if not isinstance(value, dict) or not set(value) <= set(TYPES):
        raise Refusal(400, f"{policy} must be an object with {' and '.join(TYPES)}")
    return {kind: quota(policy, each) for kind, each in value.items() if each is not None}


def exceeds_retention(
    record: Mapping[str, Json] | None, retention: Mapping[str, Json] | None, config: BrokerConfig
) -> bool:
    """Whether a quota would let more pile up than retention keeps. None: there is no such policy;
    the quota is then the broker's, as in Pulsar."""
    megabytes = int((retention or {}).get("retentionSizeInMB", 0))
    minutes = int((retention or {}).get("retentionTimeInMinutes", 0))
    said = default_quota(config) if record is None else _quota_in(record)
    return (0 < megabytes * _MIB <= said.limit_bytes) or (0 < minutes * 60 <= said.limit_seconds)


def conflict_with_retention(levels: Levels, value: Json, config: BrokerConfig) -> str:
    """Why a topic cannot have this retention; empty: it can. Both of its quotas are compared, also
    those that are the broker's."""
    for kind in TYPES:
        said = ((each.get(FIELD) or {}).get(kind) for each in levels)
        if exceeds_retention(next(filter(None, said), None), value, config):
            return (
                "Retention Quota must exceed configured backlog quota for topic. Please increase "
                "retention quota and retry"
            )
    return ""
