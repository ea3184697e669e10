"""Filters in the source keep what Spark would keep, and their bounds never cut a row off."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.decode import Message
from pipeline.filters import (
    COMPARISONS,
    Condition,
    condition,
    keeps_topic,
    kept,
    publish_time_range_ms,
)

TOPICS = ("persistent://a/b/one", "persistent://a/b/one-partition-1", "persistent://a/b/two")
TIMES = ("EqualTo", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual", "In")


def message(key: bytes | None = None, publish_ms: int = 1000, event_ms: int = 0) -> Message:
    return Message(1, 2, -1, 0, key, b"x", publish_ms, event_ms, [], b"")


def moment(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


@pytest.mark.parametrize(
    ("column", "kind", "value"),
    [
        ("value", "EqualTo", b"x"),
        ("__messageId", "EqualTo", b"x"),
        ("__topic", "EqualNullSafe", "a"),
        ("__key", "EqualTo", "text"),
        ("__key", "In", (b"a", None)),
        ("__publishTime", "EqualTo", datetime(2026, 1, 1)),
        ("__publishTime", "EqualTo", 5),
    ],
)
def test_what_cannot_be_decided_here_is_left_to_spark(
    column: str, kind: str, value: object
) -> None:
    assert condition(column, kind, value) is None


@pytest.mark.parametrize("kind", [*COMPARISONS, "IsNull"])
@pytest.mark.parametrize("negated", [False, True])
def test_a_comparison_with_null_keeps_nothing_and_null_itself_can_be_asked_for(
    kind: str, negated: bool
) -> None:
    value = frozenset({b"a"}) if kind == "In" else b"a"

    kept_null = kind == "IsNull" and not negated
    assert Condition("__key", kind, value, negated).keeps(None) is kept_null


def test_topics_are_left_out_whole() -> None:
    def chosen(kind: str, value: object, *, negated: bool = False) -> list[str]:
        made = condition("__topic", kind, value, negated=negated)
        assert made is not None
        return [topic for topic in TOPICS if keeps_topic([made], topic)]

    assert chosen("EqualTo", TOPICS[0]) == [TOPICS[0]]
    assert chosen("EqualTo", TOPICS[0], negated=True) == list(TOPICS[1:])
    assert chosen("In", TOPICS[1:]) == list(TOPICS[1:])
    assert chosen("StringStartsWith", TOPICS[0]) == list(TOPICS[:2])
    assert chosen("StringEndsWith", "two") == [TOPICS[2]]


def test_keys_and_event_times_are_compared_as_spark_does() -> None:
    rows = [message(b"a"), message(b"b", event_ms=5), message(None, event_ms=7), message(b"\xff")]

    def chosen(column: str, kind: str, value: object) -> list[Message]:
        made = condition(column, kind, value)
        assert made is not None
        return [each for _, group in kept([made], [("t", rows)]) for each in group]

    assert chosen("__key", "EqualTo", bytearray(b"a")) == [rows[0]]
    assert chosen("__key", "GreaterThan", b"a") == [rows[1], rows[3]]
    assert chosen("__key", "IsNull", None) == [rows[2]]
    assert chosen("__eventTime", "LessThan", moment(7000)) == [rows[1]]
    assert chosen("__eventTime", "IsNotNull", None) == [rows[1], rows[2]]
    assert chosen("__eventTime", "In", (moment(5000), moment(6500))) == [rows[1]]


microseconds = st.integers(min_value=0, max_value=20_000)


@st.composite
def time_conditions(draw: st.DrawFn) -> Condition:
    kind = draw(st.sampled_from(TIMES))
    value = draw(st.frozensets(microseconds, max_size=3) if kind == "In" else microseconds)
    return Condition("__publishTime", kind, value, draw(st.booleans()))


@given(st.lists(time_conditions(), max_size=4), st.integers(min_value=0, max_value=20))
def test_what_the_conditions_keep_lies_inside_the_bounds(
    conditions: list[Condition], publish_ms: int
) -> None:
    least, end = publish_time_range_ms(conditions)

    if list(kept(conditions, [("t", [message(publish_ms=publish_ms)])])):
        assert least is None or least <= publish_ms
        assert end is None or publish_ms < end


@given(st.sampled_from(TIMES[:-1]), st.integers(min_value=0, max_value=20))
def test_the_bounds_of_one_comparison_are_tight(kind: str, value_ms: int) -> None:
    made = Condition("__publishTime", kind, value_ms * 1000)
    least, end = publish_time_range_ms([made])

    inside = [each for each in range(30) if made.keeps(each * 1000)]
    assert inside == list(range(least or 0, min(30, 30 if end is None else end)))
