"""Backlog quotas: their JSON, the nearest level, and retention that they must not exceed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.ground.config import BrokerConfig
from broker.ground.refusal import Refusal
from broker.tenancy.policies.backlog_quotas import (
    ACTIONS,
    AGE,
    EVICT,
    EXCEPTION,
    HOLD,
    SIZE,
    TYPES,
    BacklogQuota,
    default_quota,
    exceeds_retention,
    quota,
    quotas_of,
    record_of,
)
from broker.tenancy.policies.levels import Levels

CONFIG = BrokerConfig(backlogQuotaDefaultLimitGB=10)

limits = st.integers(-5, 2**40)
seconds = st.integers(-5, 2**31 - 1)
some_quota = st.builds(BacklogQuota, limits, seconds, st.sampled_from(ACTIONS))
some_level = st.dictionaries(st.sampled_from(TYPES), some_quota)


def test_gigabytes_precede_bytes():
    assert CONFIG.backlogQuotaDefaultLimitBytes == -1
    assert default_quota(CONFIG) == BacklogQuota(10 * 2**30, -1, HOLD)
    assert default_quota(BrokerConfig(backlogQuotaDefaultLimitBytes=5)).limit_bytes == 5


@given(some_quota)
def test_what_a_request_gives_is_what_is_kept(given_quota):
    record = record_of(given_quota)
    assert quota("t/n", record) == record


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ({"limit": "10240", "policy": HOLD}, (10240, 0)),
        ({"limit": 5, "limitSize": 7, "policy": HOLD}, (7, 0)),
        ({"limitSize": 1.5, "limitTime": 2.5, "policy": HOLD}, (1, 2)),
        ({"limitSize": None, "policy": HOLD}, (0, 0)),
        ({"policy": HOLD}, (0, 0)),
    ],
)
def test_forms_of_requests(body, kept):
    made = quota("t/n", body)
    assert (made["limitSize"], made["limitTime"]) == kept
    assert made["limit"] == made["limitSize"]


@pytest.mark.parametrize("body", [{}, {"limitSize": 1}, {"policy": "nothing"}, {"policy": None}])
def test_a_quota_needs_a_policy(body):
    with pytest.raises(Refusal) as refused:
        quota("t/n", body)
    assert refused.value.status == 400
    assert "the attribute policy cannot be null" in refused.value.reason


@given(some_level, some_level)
def test_each_kind_is_that_of_the_nearest_level(topic, namespace):
    def record(level):
        return {"backlog_quota_map": {kind: record_of(each) for kind, each in level.items()}}

    found = quotas_of(CONFIG, Levels(record(topic), record(namespace)))
    for kind, effective in ((SIZE, found.size), (AGE, found.age)):
        assert effective == topic.get(kind, namespace.get(kind, default_quota(CONFIG)))


def test_a_quota_without_a_policy_limits_nothing():
    stored = {"backlog_quota_map": {SIZE: {"limitSize": 5, "limit": 5, "limitTime": 0}}}
    assert not quotas_of(CONFIG, Levels({}, stored)).limits_size


@pytest.mark.parametrize(
    ("minutes", "megabytes", "limit_bytes", "limit_seconds", "conflicts"),
    [
        (1, 1, 2**20, -1, True),
        (1, 1, 2**20 - 1, 59, False),
        (1, 1, 5, 60, True),
        (-1, 1, 5, 10**6, False),
        (1, -1, 10**12, 59, False),
        (-1, -1, 10**12, 10**6, False),
        (0, 0, 10**12, 10**6, False),
        (3, 3, -1, -1, False),
    ],
)
def test_retention_must_exceed_the_quota(minutes, megabytes, limit_bytes, limit_seconds, conflicts):
    retention = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}
    record = record_of(BacklogQuota(limit_bytes, limit_seconds, EXCEPTION))
    assert exceeds_retention(record, retention, CONFIG) is conflicts
    assert not exceeds_retention(record, None, CONFIG)


def test_without_a_quota_that_of_the_broker_is_compared():
    retention = {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}
    assert exceeds_retention(None, retention, CONFIG)
    assert not exceeds_retention(None, retention, BrokerConfig())


def test_a_limit_of_0_bytes_is_one_and_of_0_seconds_is_none():
    stored = {
        "backlog_quota_map": {
            SIZE: record_of(BacklogQuota(0, 0, EVICT)),
            AGE: record_of(BacklogQuota(0, 0, EVICT)),
        }
    }
    found = quotas_of(CONFIG, Levels({}, stored))
    assert (found.limits_size, found.limits_age) == (True, False)
