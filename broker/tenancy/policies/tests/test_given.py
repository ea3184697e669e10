"""Policies in requests: refused where they would have no effect or make no sense."""

from __future__ import annotations

from typing import Any

import pytest

from broker.ground.config import DEFAULT_CONFIG
from broker.ground.refusal import Refusal
from broker.tenancy.policies.given import ACTED_ON, NO_EFFECT, checked, without_effect
from broker.tenancy.policies.record import Policies


def refusal(**given: Any) -> tuple[int, str]:
    with pytest.raises(Refusal) as caught:
        checked(given)
    return caught.value.status, caught.value.reason


RATE = {"standalone": {"dispatchThrottlingRateInMsg": 5, "ratePeriodInSecond": 1}}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("clusterDispatchRate", RATE),
    ],
)
def test_a_policy_without_an_effect_is_refused_by_name(field: str, value: object):
    status, reason = refusal(**{field: value})
    assert status == 501
    assert field in reason


def test_a_policy_that_says_nothing_is_taken():
    silent = {name: neutral[0] if neutral else {} for name, neutral in NO_EFFECT.items()}
    assert checked(silent) == silent
    assert checked(dict.fromkeys((*NO_EFFECT, *ACTED_ON))) == {}
    fresh = Policies.fresh(None, DEFAULT_CONFIG)
    assert without_effect(fresh.fields) == []
    assert checked(fresh.fields).items() <= fresh.fields.items()


def retention(minutes: object, megabytes: object) -> dict[str, object]:
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (retention(0, 100), "Setting a single time or size limit to 0 is invalid"),
        (retention(-1, 0), "Setting a single time or size limit to 0 is invalid"),
        ({"retentionTimeInMinutes": 5}, "Setting a single time or size limit to 0 is invalid"),
        (retention(-7, -7), "Invalid retention policy: size limit must be >= -1"),
        (retention(-2, 5), "Invalid retention policy: time limit must be >= -1"),
        (retention("x", 5), "must be a whole number"),
        (retention(2**31, 5), "must be a whole number"),
        ("x", "must be a JSON object"),
    ],
)
def test_wrong_retention_is_refused_as_by_pulsar(value: object, reason: str):
    status, told = refusal(retention_policies=value)
    assert status == 400
    assert reason in told


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (retention(-1, -1), retention(-1, -1)),
        (retention(-1, 5), retention(-1, 5)),
        (retention(0, 0), retention(0, 0)),
        ({}, retention(0, 0)),
        (retention(1.5, 2**40), retention(1, 2**40)),
        ({**retention(5, 5), "other": 1}, retention(5, 5)),
    ],
)
def test_right_retention_is_kept_as_by_pulsar(value: object, kept: object):
    assert checked({"retention_policies": value}) == {"retention_policies": kept}


def test_other_wrong_values():
    assert refusal(message_ttl_in_seconds=-1) == (412, "Invalid value for message TTL")
    assert refusal(max_producers_per_topic="x")[0] == 400
    assert refusal(deduplicationEnabled="perhaps")[0] == 400
    assert refusal(subscription_types_enabled=["shared"])[0] == 400
    assert refusal(subscription_types_enabled="Shared")[0] == 400
    assert refusal(publishMaxMessageRate=5)[0] == 400
    assert refusal(publishMaxMessageRate={"c": {"publishThrottlingRateInMsg": "x"}})[0] == 400
    assert refusal(schema_compatibility_strategy="BAD")[0] == 400
    assert refusal(schema_auto_update_compatibility_strategy={"a": 1})[0] == 400
    assert refusal(autoTopicCreationOverride={"allowAutoTopicCreation": True})[0] == 412


@pytest.mark.parametrize(
    "given",
    [
        {"autoTopicCreationOverride": {"topicType": "partitioned", "defaultNumPartitions": "x"}},
        {"autoTopicCreationOverride": {"topicType": "partitioned", "defaultNumPartitions": [1]}},
        {"autoTopicCreationOverride": {"topicType": ["partitioned"]}},
        {"bundles": {"boundaries": 5}},
        {"bundles": {"numBundles": 1, "boundaries": [0, None]}},
        {"bundles": {"numBundles": 1, "boundaries": ["0x0", "all"]}},
        {"bundles": {"numBundles": "all"}},
        {"auth_policies": {"namespace_auth": 5}},
        {"auth_policies": {"namespace_auth": {"role": "produce"}}},
    ],
)
def test_a_value_of_the_wrong_type_is_refused_before_it_is_stored(given: dict[str, object]):
    """Stored, it made every later use of the namespace fail."""
    assert refusal(**given)[0] == 400


def test_an_override_keeps_the_fields_that_pulsar_knows():
    override = {"allowAutoTopicCreation": "false", "topicType": "partitioned", "other": 1}
    kept = {"allowAutoTopicCreation": False, "topicType": "partitioned"}
    given = {"autoTopicCreationOverride": override}
    assert checked(given) == {"autoTopicCreationOverride": kept}


def test_the_number_of_bundles_has_a_bound():
    def bundles(count: object) -> Any:
        return Policies.fresh({"bundles": {"numBundles": count}}, DEFAULT_CONFIG).bundles

    assert bundles(0)["numBundles"] == 4
    assert bundles(-3)["numBundles"] == 4
    assert len(bundles(16_384)["boundaries"]) == 16_385
    with pytest.raises(Refusal, match="16384 at most"):
        bundles(2**31)
