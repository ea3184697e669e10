"""Events of `__change_events` as Pulsar 4.0.8 has written them, and as it would read ours."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.ground.config import DEFAULT_CONFIG
from broker.tenancy.policies.change_event_schema import EVENT_SCHEMA_TEXT
from broker.tenancy.policies.effective import flaw_in
from broker.tenancy.policies.topic_events import (
    EVENT_BYTES_MAX,
    NAMES,
    SCHEMA_CHARS_MAX,
    EventSchema,
    Malformed,
    event_of,
    fields_in,
    message_key,
    policies_in,
    topic_of,
    with_fields,
)
from broker.tenancy.policies.topic_policy_map import Kept, TopicPolicyMap
from protocol.topic_name import TopicName

CLUSTER = "standalone"
SCHEMA = EventSchema()
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


def written(key, record):
    return SCHEMA.write(event_of(key, with_fields({}, record, CLUSTER), CLUSTER))


def read(key, payload):
    """The fields, or None: the record says that the topic has no policies any more."""
    policies = policies_in(SCHEMA.read(payload), key)
    return None if policies is None else fields_in(policies, CLUSTER)


def test_the_schema_is_the_one_that_pulsar_registers():
    digest = hashlib.sha256(EVENT_SCHEMA_TEXT.encode()).hexdigest()
    assert digest == "fa39b012b778cf208e13d74373f59e9a24e50940c88559562c1c804779515ce1"


def test_a_record_is_written_as_pulsar_writes_it():
    key = message_key(A, is_global=False)
    assert key == "persistent://public/ce/a"
    assert topic_of(key) == A
    assert written(key, {"max_producers_per_topic": 5}) == ONE_LIMIT


def test_policies_of_pulsar_have_the_names_of_a_namespace():
    record = read(A.full, ALL_POLICIES)
    assert record["delayed_delivery_policies"] == {
        "active": True,
        "tickTime": 1000,
        "maxDeliveryDelayInMillis": 5000,
    }
    assert record["topicDispatchRate"] == {CLUSTER: DISPATCH_RATE}
    assert record["message_ttl_in_seconds"] == 7
    assert record["backlog_quota_map"]["destination_storage"]["limitTime"] == 5
    assert record["subscriptionPolicies"]["s1"]["dispatchRate"]["dispatchThrottlingRateInMsg"] == 7
    assert written(A.full, record) == ALL_POLICIES


def test_policies_for_all_clusters_have_a_key_of_their_own():
    key = message_key(P, is_global=True)
    assert key == "__G__persistent://public/ce/p"
    assert topic_of(key) == P
    assert read(key, GLOBAL_LIMIT) == {"max_producers_per_topic": 8}
    assert written(key, {"max_producers_per_topic": 8}) == GLOBAL_LIMIT


@given(RECORDS)
def test_what_is_written_is_read_again(record):
    assert read(A.full, written(A.full, record)) == record


CUT = st.integers(0, len(ALL_POLICIES)).map(lambda size: ALL_POLICIES[:size])
FLIPPED = st.integers(0, 8 * len(ALL_POLICIES) - 1).map(
    lambda bit: (int.from_bytes(ALL_POLICIES) ^ 1 << bit).to_bytes(len(ALL_POLICIES))
)


A_REMOVAL = SCHEMA.write({**event_of(A.full, {}, CLUSTER), "actionType": "DELETE"})


@given(st.binary(max_size=200) | CUT | FLIPPED)
@example(A_REMOVAL)
def test_bytes_of_strangers_are_policies_or_refused(payload):
    with suppress(Malformed):
        read(A.full, payload)


def test_policies_under_the_key_of_another_topic_are_refused():
    with pytest.raises(Malformed, match="is about"):
        read(P.full, ONE_LIMIT)


@pytest.mark.parametrize("value", ["many", 2**40, [1]])
def test_a_value_of_another_type_is_refused(value):
    with pytest.raises(Malformed, match="not one of its policy"):
        written(A.full, {"max_producers_per_topic": value})


def newer_schema():
    """As a later version of Pulsar might register it: with one more policy."""
    text = json.loads(EVENT_SCHEMA_TEXT)
    content = text["fields"][-1]["type"][1]
    policies = next(each for each in content["fields"] if each["name"] == "policies")["type"][1]
    policies["fields"].append({"name": "zeal", "type": ["null", "int"], "default": None})
    return EventSchema(json.dumps(text))


def test_what_is_not_known_stays_when_something_else_changes():
    newer = newer_schema()
    before = {"maxProducerPerTopic": 5, "zeal": 7, "shadowTopics": ["s"]}
    policies = policies_in(newer.read(newer.write(event_of(A.full, before, CLUSTER))), A.full)
    assert policies == before
    after = with_fields(policies, {"max_producers_per_topic": None}, CLUSTER)
    assert newer.has(after)
    assert not SCHEMA.has(after)
    event = newer.read(newer.write(event_of(A.full, after, CLUSTER)))
    assert policies_in(event, A.full) == {"zeal": 7, "shadowTopics": ["s"]}


@pytest.mark.parametrize("text", ["", "{", "[]", '"string"', '{"type":"record","name":"a"}'])
def test_a_schema_of_something_else_is_refused(text):
    with pytest.raises(Malformed):
        EventSchema(text)


def with_policy(kind):
    """The text of Pulsar's schema with one more policy of this type."""
    text = json.loads(EVENT_SCHEMA_TEXT)
    content = text["fields"][-1]["type"][1]
    policies = next(each for each in content["fields"] if each["name"] == "policies")["type"][1]
    policies["fields"].append({"name": "zeal", "type": kind})
    return json.dumps(text)


LOOP = {"type": "record", "name": "Loop", "fields": [{"name": "next", "type": ["null", "Loop"]}]}
DEEP = "int"
for _ in range(40):
    DEEP = {"type": "array", "items": DEEP}


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "array", "items": "null"},
        {"type": "array", "items": {"type": "record", "name": "E", "fields": []}},
        {"type": "map", "values": {"type": "fixed", "name": "F", "size": 0}},
        {"type": "array", "items": {"type": "record", "name": "E", "fields": [
            {"name": "x", "type": "int"}, {"name": "y", "type": "null"}]}},
        "null",
        LOOP,
        DEEP,
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        ["null", {"type": "long", "logicalType": "timestamp-millis"}],
    ],
)  # fmt: skip
def test_a_schema_in_which_few_bytes_stand_for_much_is_refused(kind):
    """Whoever may produce to the log registers what it likes."""
    with pytest.raises(Malformed, match="its schema"):
        EventSchema(with_policy(kind))


def test_types_that_are_named_twice_are_no_loop():
    schema = EventSchema(
        with_policy(["null", "org.apache.pulsar.common.policies.data.RetentionPolicies"])
    )
    event = event_of(A.full, {"zeal": {"retentionTimeInMinutes": 5}}, CLUSTER)
    assert policies_in(schema.read(schema.write(event)), A.full)["zeal"]


def test_a_schema_or_a_value_that_is_very_large_is_refused():
    with pytest.raises(Malformed, match="characters"):
        EventSchema(EVENT_SCHEMA_TEXT + " " * SCHEMA_CHARS_MAX)
    with pytest.raises(Malformed, match="its value has over"):
        SCHEMA.read(bytes(EVENT_BYTES_MAX + 1))
    with pytest.raises(Malformed, match="would have over"):
        written(A.full, {"replication_clusters": ["c" * 100] * 2_000})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["limit", "policy", "bookkeeperEnsemble", "active"]), inner
        )
    ),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted({*NAMES, "delayed_delivery_policies"})), JSON))
def test_fields_of_any_types_are_policies_or_damage(fields):
    """A schema of a stranger may have any types."""
    assert isinstance(flaw_in(fields, DEFAULT_CONFIG), str)


CHANGES = st.lists(
    st.tuples(
        st.sampled_from([A, P]),
        st.booleans(),
        st.fixed_dictionaries(
            {},
            optional={
                name: st.none() | st.integers(0, 99)
                for name in ("max_producers_per_topic", "max_consumers_per_topic")
            }
            | {"deduplicationEnabled": st.none() | st.booleans()},
        )
        | st.none(),
    ),
    max_size=20,
)


@given(CHANGES)
def test_the_messages_of_any_changes_result_in_what_the_changes_say(changes):
    """None: all policies of the topic are removed, by a message without value."""
    read_map = TopicPolicyMap(CLUSTER, lambda _fields: "")
    expected = {}
    for number, (topic, is_global, change) in enumerate(changes):
        key = message_key(topic, is_global=is_global)
        kept = read_map.of(key)
        policies = None
        if change is not None:
            own = expected.setdefault((topic, is_global), {})
            own.update(change)
            before = {} if kept is None else kept.policies
            payload = SCHEMA.write(event_of(key, with_fields(before, change, CLUSTER), CLUSTER))
            policies = policies_in(SCHEMA.read(payload), key)
        else:
            expected.pop((topic, is_global), None)
        read_map.apply(key, Kept((0, number), policies=policies))
    for topic in (A, P):
        said = [expected.get((topic, each), {}) for each in (True, False)]
        own = [{name: value for name, value in each.items() if value is not None} for each in said]
        assert [read_map.own_fields(topic, is_global=each) for each in (True, False)] == own
        assert read_map.fields.get(("persistent", topic.local_name), {}) == own[0] | own[1]
    assert not read_map.damage


def test_a_message_that_cannot_be_read_leaves_its_topic_in_doubt_and_no_other():
    read_map = TopicPolicyMap(CLUSTER, lambda fields: "too many" if len(fields) > 1 else "")
    for topic in (A, P):
        read_map.apply(topic.full, Kept((0, 0), policies={"maxProducerPerTopic": 5}))
    read_map.apply(A.full, Kept((0, 1), flaw="torn"))
    key = ("persistent", "a")
    assert "torn" in read_map.damage[key].message
    assert read_map.fields[key] == {"max_producers_per_topic": 5}
    assert list(read_map.damage) == [key]
    read_map.apply(A.full, Kept((0, 2), policies={"maxProducerPerTopic": 6}))
    assert not read_map.damage
    assert read_map.fields[key] == {"max_producers_per_topic": 6}
    two = {"maxProducerPerTopic": 6, "maxConsumerPerTopic": 1}
    read_map.apply(A.full, Kept((0, 3), policies=two))
    assert "too many" in read_map.damage[key].message
    for odd in ("x://y", "a", f"{A.full}-partition-1", "__G__a"):
        with pytest.raises(Malformed):
            read_map.apply(odd, Kept((0, 4)))
