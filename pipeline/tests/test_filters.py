"""Filters in the source keep what Spark would keep, and their bounds never cut a row off."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.filters import (
    COMPARISONS,
    Condition,
    condition,
    keeps_topic,
    kept,
    publish_time_range_ms,
)
from pipeline.rows import EntryHead, Rows, rows_of_parts

TOPICS = ("persistent://a/b/one", "persistent://a/b/one-partition-1", "persistent://a/b/two")
TIMES = ("EqualTo", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual", "In")


def batch(*messages: tuple[bytes | None, int], publish_ms: int = 1000) -> Rows:
    """Keys and event times."""
    head = EntryHead(1, 2, len(messages), publish_ms, b"")
    parts = [(index, key, b"x", event_ms) for index, (key, event_ms) in enumerate(messages)]
    return rows_of_parts(head, parts, {})


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
    rows = batch((b"a", 0), (b"b", 5), (None, 7), (b"\xff", 0))

    def chosen(column: str, kind: str, value: object) -> list[int]:
        made = condition(column, kind, value)
        assert made is not None
        return [each for _, group in kept([made], [("t", rows)]) for each in group.batch_indexes]

    assert chosen("__key", "EqualTo", bytearray(b"a")) == [0]
    assert chosen("__key", "GreaterThan", b"a") == [1, 3]
    assert chosen("__key", "IsNull", None) == [2]
    assert chosen("__eventTime", "LessThan", moment(7000)) == [1]
    assert chosen("__eventTime", "IsNotNull", None) == [1, 2]
    assert chosen("__eventTime", "In", (moment(5000), moment(6500))) == [1]


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

    if list(kept(conditions, [("t", batch((None, 0), publish_ms=publish_ms))])):
        assert least is None or least <= publish_ms
        assert end is None or publish_ms < end


@given(st.sampled_from(TIMES[:-1]), st.integers(min_value=0, max_value=20))
def test_the_bounds_of_one_comparison_are_tight(kind: str, value_ms: int) -> None:
    made = Condition("__publishTime", kind, value_ms * 1000)
    least, end = publish_time_range_ms([made])

    inside = [each for each in range(30) if made.keeps(each * 1000)]
    assert inside == list(range(least or 0, min(30, 30 if end is None else end)))
