"""Topic names are valid, equal and numbered as in Apache Pulsar 4.0.8 (vectors observed there)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import InvalidTopicName
from protocol.topic_name import (
    REMEMBERED_MAX,
    REMEMBERED_TEXT_MAX,
    TopicName,
    decode_name,
    encode_name,
    has_system_name,
)

VALID = [
    ("x", "persistent://public/default/x", -1),
    ("a/b/c", "persistent://a/b/c", -1),
    ("//x", "persistent://public/default/x", -1),
    ("persistent://a/b/c", "persistent://a/b/c", -1),
    ("non-persistent://a/b/c-partition-3", "non-persistent://a/b/c-partition-3", 3),
    ("c-partition-0", "persistent://public/default/c-partition-0", 0),
    ("c-partition-03", "persistent://public/default/c-partition-03", -1),
    ("c-partition--1", "persistent://public/default/c-partition--1", -1),
    ("c-partition-+1", "persistent://public/default/c-partition-+1", -1),
    ("c-partition-2147483647", "persistent://public/default/c-partition-2147483647", 2147483647),
    ("c-partition-2147483648", "persistent://public/default/c-partition-2147483648", -1),
    ("c-partition-" + "9" * 5000, "persistent://public/default/c-partition-" + "9" * 5000, -1),
    ("c-partition-3-partition-x", "persistent://public/default/c-partition-3-partition-x", -1),
    ("c-partition-3-partition-2", "persistent://public/default/c-partition-3-partition-2", 2),
    ("persistent://a/b/c%2Fd", "persistent://a/b/c%2Fd", -1),
    ("persistent://a=.:-_1/b/c d~é*+&", "persistent://a=.:-_1/b/c d~é*+&", -1),
]


@pytest.mark.parametrize(("text", "full", "index"), VALID)
def test_valid_names(text, full, index):
    name = TopicName.parse(text)
    assert name.full == str(name) == full
    assert name.partition_index == index
    assert name.is_partition == (index >= 0)
    assert TopicName.parse(full) == name
    assert hash(TopicName.parse(full)) == hash(name)


INVALID = [
    ("a/b", "Invalid short topic name 'a/b', it should be in the format of"),
    ("a/b/c/d", "Invalid short topic name"),
    ("", "Invalid short topic name ''"),
    ("a/b/", "Invalid short topic name"),
    ("persistent://a/b/", "Topic local name must not be blank."),
    ("persistent://a/b/ ", "Topic local name must not be blank."),
    ("persistent://a b/c/d", "Invalid named entity: a b"),
    ("persistent://a/é/c", "Invalid named entity: é"),
    ("foo://a/b/c", "Invalid topic domain: 'foo'"),
    ("://a/b/c", "Invalid topic domain: ''"),
    ("persistent://a/b", "Invalid topic name: persistent://a/b"),
    ("persistent://", "Invalid topic name: persistent://"),
    ("persistent:///b/c", "Invalid namespace format. namespace: /b"),
    ("persistent://a//c", "Invalid namespace format. namespace: a/"),
    ("persistent://property/cluster/namespace/topic", "names with a cluster"),
]


@pytest.mark.parametrize(("text", "reason"), INVALID)
def test_invalid_names_say_why(text, reason):
    with pytest.raises(InvalidTopicName) as caught:
        TopicName.parse(text)
    assert reason in caught.value.message


def test_partitions_and_their_base():
    base = TopicName.parse("non-persistent://a/b/c")
    partition = base.partition(7)
    assert partition.full == "non-persistent://a/b/c-partition-7"
    assert partition.partitioned_base == base
    assert base.partitioned_base == base
    assert partition.namespace_name == "a/b"
    assert not partition.persistent


def test_storage_names_are_encoded_as_pulsar_does():
    name = TopicName.parse("persistent://a/b/c d~é*+&")
    assert name.managed_ledger_name == "a/b/persistent/c+d%7E%C3%A9*%2B%26"
    assert name.lookup_path == "persistent/a/b/c+d%7E%C3%A9*%2B%26"
    assert TopicName.parse("persistent://a/b/c%2Fd").managed_ledger_name == (
        "a/b/persistent/c%252Fd"
    )


@given(st.text())
def test_encoding_is_reversible(text):
    assert decode_name(encode_name(text)) == text
    assert "/" not in encode_name(text)


@given(st.text(min_size=1, max_size=20))
def test_any_text_is_a_topic_or_refused(text):
    try:
        name = TopicName.parse(text)
    except InvalidTopicName:
        return
    assert TopicName.parse(name.full) == name
    assert TopicName.from_managed_ledger_name(name.managed_ledger_name) == name


def test_a_name_is_parsed_once_and_what_is_remembered_is_bounded():
    name = TopicName.parse("remembered")
    assert TopicName.parse("remembered") is name
    for number in range(REMEMBERED_MAX):
        TopicName.parse(f"other-{number}")
    assert TopicName.parse("remembered") is not name
    assert TopicName.parse("remembered") == name
    huge = "x" * (REMEMBERED_TEXT_MAX + 1)
    assert TopicName.parse(huge) is not TopicName.parse(huge)
    assert TopicName.parse(huge) == TopicName.parse(huge)


@pytest.mark.parametrize(
    ("name", "is_system"),
    [
        ("__change_events", True),
        ("persistent://a/b/__change_events-partition-1", True),
        ("persistent://a/b/__transaction_buffer_snapshot", True),
        ("persistent://a/b/t-sub__transaction_pending_ack", True),
        ("persistent://a/b/__transaction_buffer_snapshot_segments", True),
        ("persistent://pulsar/system/anything", True),
        ("persistent://pulsar/host.name:8080/healthcheck", True),
        ("persistent://a/host.name:8080/healthcheck", False),
        ("persistent://a/b/healthcheck", False),
        ("persistent://a/b/__transaction_log_1", False),
        ("persistent://pulsar/other/anything", False),
        ("__change_events2", False),
        ("t", False),
    ],
)
def test_topics_of_brokers_are_told_from_those_of_clients(name, is_system):
    assert TopicName.parse(name).is_system is is_system


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("persistent://pulsar/system/anything", True),
        ("persistent://pulsar/system/transaction_coordinator_assign-partition-3", False),
        ("persistent://pulsar/system/__transaction_log_3", False),
        ("persistent://a/b/__change_events-partition-1", False),
        ("persistent://a/b/__change_events-partition-x", True),
    ],
)
def test_clients_are_not_told_of_names_that_are_reserved_for_brokers(name, told):
    assert has_system_name(TopicName.parse(name).full) is not told
