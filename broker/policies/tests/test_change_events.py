"""Events of `__change_events` as Pulsar 4.0.8 has written them, and as it would read ours."""

from __future__ import annotations

import hashlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.policies.change_event_schema import EVENT_SCHEMA_TEXT
from broker.policies.change_events import ChangeEvent, decode, encode, key_of
from protocol.topic_name import TopicName

CLUSTER = "standalone"
A = TopicName.parse("persistent://public/ce/a")
P = TopicName.parse("persistent://public/ce/p")
ONE_LIMIT = bytes.fromhex(
    "020402000202147374616e64616c6f6e650002021470657273697374656e740204636502000200000000000000000000"
    "000200000000020a00000000000000000000000000000002000200020c7075626c6963020261"
)
"""maxProducers=5."""
ALL_POLICIES = bytes.fromhex(
    "020402000202147374616e64616c6f6e650002021470657273697374656e740204636502020002022664657374696e61"
    "74696f6e5f73746f72616765d00f02d00f0a020400020802010206020102904e02d00f02040206000201000201020078"
    "0200020a020a020a020a020a020a020a020e000202020200000000000004400002281402021"
    "47374616e64616c6f6e650002040206000002060201000204020204020600020204733102100e06000002020200020c"
    "7075626c6963020261"
)
GLOBAL_LIMIT = bytes.fromhex(
    "020402000002021470657273697374656e740204636502000200000000000000000000000201000000021000000000"
    "000000000000000000000002000200020c7075626c6963020270"
)
"""maxProducers=8 with --global."""
DISPATCH_RATE = {
    "dispatchThrottlingRateInByte": 2,
    "dispatchThrottlingRateInMsg": 1,
    "ratePeriodInSecond": 3,
    "relativeToPublishRate": False,
}


def test_the_schema_is_the_one_that_pulsar_registers():
    digest = hashlib.sha256(EVENT_SCHEMA_TEXT.encode()).hexdigest()
    assert digest == "fa39b012b778cf208e13d74373f59e9a24e50940c88559562c1c804779515ce1"


def test_a_record_is_written_as_pulsar_writes_it():
    assert encode(A, {"max_producers_per_topic": 5}, CLUSTER) == ONE_LIMIT
    assert key_of(A) == "persistent://public/ce/a"


def test_policies_of_pulsar_have_the_names_of_a_namespace():
    event = decode(key_of(A), ALL_POLICIES, CLUSTER)
    assert event is not None
    record = event.record
    assert record is not None
    assert record["delayed_delivery_policies"] == {
        "active": True,
        "tickTime": 1000,
        "maxDeliveryDelayInMillis": 5000,
    }
    assert record["topicDispatchRate"] == {CLUSTER: DISPATCH_RATE}
    assert record["message_ttl_in_seconds"] == 7
    assert record["backlog_quota_map"]["destination_storage"]["limitTime"] == 5
    assert record["subscriptionPolicies"]["s1"]["dispatchRate"]["dispatchThrottlingRateInMsg"] == 7
    assert encode(A, record, CLUSTER) == ALL_POLICIES


def test_policies_for_all_clusters_have_a_key_of_their_own():
    key = key_of(P, is_global=True)
    assert key == "__G__persistent://public/ce/p"
    assert decode(key, GLOBAL_LIMIT, CLUSTER) == ChangeEvent(
        P, True, {"max_producers_per_topic": 8}
    )


def test_a_message_without_a_payload_ends_the_policies_of_a_topic():
    assert decode(key_of(A), b"", CLUSTER) == ChangeEvent(A, False, None)


NUMBER_FIELDS = [
    "max_consumers_per_topic",
    "max_producers_per_topic",
    "max_message_size",
    "message_ttl_in_seconds",
    "deduplicationSnapshotIntervalSeconds",
]
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(NUMBER_FIELDS, st.integers(-(2**31), 2**31 - 1)),
        "compaction_threshold": st.integers(-(2**63), 2**63 - 1),
        "deduplicationEnabled": st.booleans(),
        "delayed_delivery_policies": st.fixed_dictionaries(
            {"active": st.booleans(), "tickTime": st.integers(0, 2**40)}
        ),
        "publishMaxMessageRate": st.fixed_dictionaries(
            {
                CLUSTER: st.fixed_dictionaries(
                    {
                        "publishThrottlingRateInByte": st.integers(-1, 2**62),
                        "publishThrottlingRateInMsg": st.integers(-1, 2**31 - 1),
                    }
                )
            }
        ),
        "subscription_types_enabled": st.lists(
            st.sampled_from(["Exclusive", "Shared", "Failover", "Key_Shared"]), min_size=1
        ),
        "replication_clusters": st.lists(st.text(max_size=5), min_size=1, max_size=3),
    },
)


@given(RECORDS)
def test_what_is_written_is_read_again(record):
    event = decode(key_of(A), encode(A, record, CLUSTER), CLUSTER)
    assert event == ChangeEvent(A, False, record)


CUT = st.integers(0, len(ALL_POLICIES)).map(lambda size: ALL_POLICIES[:size])
FLIPPED = st.integers(0, 8 * len(ALL_POLICIES) - 1).map(
    lambda bit: (int.from_bytes(ALL_POLICIES) ^ 1 << bit).to_bytes(len(ALL_POLICIES))
)


@given(st.binary(max_size=200) | CUT | FLIPPED)
def test_bytes_of_strangers_are_an_event_or_refused(payload):
    with suppress(ValueError):
        decode(key_of(A), payload, CLUSTER)


def test_a_policy_without_a_place_in_an_event_is_named():
    with pytest.raises(ValueError, match="no event has a place for rooms"):
        encode(A, {"rooms": 3}, CLUSTER)


@pytest.mark.parametrize("value", ["many", 2**40, [1]])
def test_a_value_of_another_type_is_refused(value):
    with pytest.raises(ValueError, match="fit in no event"):
        encode(A, {"max_producers_per_topic": value}, CLUSTER)
