"""Options: a user who misspells or mixes them up is told what to write."""

from __future__ import annotations

import pytest

from pipeline.options import (
    InvalidOption,
    check_not_ahead,
    pattern_namespace,
    sink_options,
    source_options,
    topic_matches,
)


def test_names_of_the_connector_are_taken_in_any_case() -> None:
    options = source_options(
        {
            "SERVICE.URL": "pulsar://h:1",
            "admin.url": "http://h:2/",
            "TOPIC": "a",
            "failondataloss": "TRUE",
            "waitingForNonExistedTopic": "true",
        },
        streaming=False,
    )

    assert options.connection.service_url == "pulsar://h:1"
    assert options.connection.admin_url == "http://h:2"
    assert options.topics == ("persistent://public/default/a",)
    assert options.fail_on_data_loss
    assert options.wait_for_topic


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("startingOfsets", "startingOffsets"),
        ("failondatalos", "failOnDataLoss"),
        ("service_url", "service.url"),
        ("pulsar.client.authParam", "pulsar.client.authParams"),
    ],
)
def test_a_misspelt_option_is_named_with_the_right_one(given: str, meant: str) -> None:
    with pytest.raises(InvalidOption) as refusal:
        source_options({"topic": "a", given: "1"}, streaming=False)

    assert given.lower() in str(refusal.value)
    assert f"did you mean '{meant}'?" in str(refusal.value)


def test_an_option_like_no_other_gets_the_list() -> None:
    with pytest.raises(InvalidOption, match=r"unknown option 'zzz'; known: service\.url"):
        sink_options({"topic": "a", "zzz": "1"})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "exactly one of topic, topics"),
        ({"topic": "a", "topics": "b"}, "got topic and topics"),
        ({"topic": "non-persistent://public/default/a"}, "keeps nothing"),
        ({"topic": "a/b"}, "Invalid short topic name"),
        ({"topic": "a", "failOnDataLoss": "yes"}, "must be true or false"),
        ({"topic": "a", "minPartitions": "0"}, "whole number from 1 on"),
        ({"topic": "a", "readEngine": "bookies"}, "one of auto, broker, bookie"),
        ({"topic": "a", "startingOffsets": "newest"}, "startingOffsets: must be earliest, latest"),
        ({"topic": "a", "startingTime": "1", "startingOffsets": "earliest"}, "not both"),
        ({"topic": "a", "startingOffsets": "latest"}, "a batch would be empty"),
        ({"topic": "a", "service.url": "localhost"}, "must begin with pulsar://"),
        ({"topicsPattern": "persistent://t/n/("}, "no regular expression"),
        ({"topic": "a", "pulsar.client.authPluginClassName": "x.AuthenticationTls"}, "Token"),
    ],
)
def test_values_that_cannot_be_used_are_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidOption, match=text):
        source_options(given, streaming=False)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(InvalidOption, match="a stream has no end"):
        source_options({"topic": "a", "endingTime": "5"}, streaming=True)


def test_a_pattern_takes_the_partitions_of_the_topics_it_names() -> None:
    pattern = source_options({"topicsPattern": "city/areas/.*-a"}, streaming=True).topics_pattern

    assert pattern_namespace(pattern) == ("persistent", "city/areas")
    assert topic_matches(pattern, "persistent://city/areas/north-a-partition-3")
    assert topic_matches(pattern, "persistent://city/areas/north-a")
    assert not topic_matches(pattern, "persistent://city/areas/north-ab")


def test_a_token_reaches_the_connection() -> None:
    options = sink_options(
        {
            "pulsar.client.authPluginClassName": "org.apache.pulsar.AuthenticationToken",
            "pulsar.client.authParams": "token:abc",
        }
    )

    assert options.connection.token == "abc"


def test_a_time_range_that_holds_nothing_is_refused() -> None:
    with pytest.raises(InvalidOption, match="startingTime 5 is not before endingTime 5"):
        source_options({"topic": "t", "startingTime": "5", "endingTime": "5"}, streaming=False)
    options = source_options({"topic": "t", "startingTime": "700000"}, streaming=False)
    check_not_ahead(options, 100_000)
    with pytest.raises(InvalidOption, match=r"startingTime 700000 lies 600 s in the future"):
        check_not_ahead(options, 99_999)


def test_dead_letters_need_a_mode_that_passes_over_messages() -> None:
    with pytest.raises(InvalidOption, match=r"deadLetterTopic .* set mode=PERMISSIVE"):
        source_options({"topic": "t", "deadLetterTopic": "dead"}, streaming=False)
    options = source_options(
        {"topic": "t", "deadLetterTopic": "dead", "mode": "dropmalformed"}, streaming=True
    )
    assert options.malformed.dead_letter_topic == "persistent://public/default/dead"
    assert options.malformed.drops
