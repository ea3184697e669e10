"""Filters that Spark hands to the source: which rows they keep, and what need not be read. Pure.

A query's filters are a conjunction; each becomes a `Condition` on one metadata column. Conditions
are checked message by message before values are decoded, exactly as Spark would, so Spark need not
check them again. Conditions on `__topic` leave out whole topics, and those on `__publishTime` move
the bounds of the read.

Publish times are producers' clocks. They are searched as if they ascended, so the search is asked
for a time further outside: when every clock is right within E, times are out of order by at most
2 E, and with that margin no message that fulfils the condition is outside the bounds.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pipeline.rows import Message, Rows

TOPIC: Final = "__topic"
KEY: Final = "__key"
PUBLISH_TIME: Final = "__publishTime"
EVENT_TIME: Final = "__eventTime"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "EqualTo": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "In": lambda value, choices: value in choices,
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": lambda value, part: part in value,
}
"""By the name of Spark's filter."""
NULL_CHECKS: Final = ("IsNull", "IsNotNull")
_OF_TEXT: Final = ("StringStartsWith", "StringEndsWith", "StringContains")


@final
@dataclass(frozen=True, slots=True)
class Condition:
    """`kind` is a name in `COMPARISONS` or `NULL_CHECKS`. `value` is text for the topic, bytes for
    the key, microseconds since 1970 for times; a frozenset of those for `In`. A comparison with
    null keeps nothing, negated or not."""

    column: str
    kind: str
    value: Any = None
    negated: bool = False

    def keeps(self, value: object) -> bool:
        """Whether a row with this value in the column stays."""
        if self.kind in NULL_CHECKS:
            return ((value is None) == (self.kind == "IsNull")) != self.negated
        if value is None:
            return False
        return COMPARISONS[self.kind](value, self.value) != self.negated


def condition(column: str, kind: str, value: object, *, negated: bool = False) -> Condition | None:
    """None when Spark must check it itself: another column, filter, or kind of value."""
    if column not in _CONVERSIONS:
        return None
    if kind in NULL_CHECKS:
        return Condition(column, kind, None, negated)
    if kind not in COMPARISONS or (kind in _OF_TEXT and column != TOPIC):
        return None
    if kind == "In":
        if not isinstance(value, (tuple, list, set, frozenset)):
            return None
        # A null among the choices would make a negated In null.
        values = [_CONVERSIONS[column](each) for each in value]
        return None if None in values else Condition(column, kind, frozenset(values), negated)
    converted = _CONVERSIONS[column](value)
    return None if converted is None else Condition(column, kind, converted, negated)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _bytes(value: object) -> bytes | None:
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else None


def _microseconds(value: object) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND


_CONVERSIONS: Final[dict[str, Callable[[object], Any]]] = {
    TOPIC: _text,
    KEY: _bytes,
    PUBLISH_TIME: _microseconds,
    EVENT_TIME: _microseconds,
}


def keeps_topic(conditions: Iterable[Condition], topic: str) -> bool:
    """Whether any message of a topic (a partition) can stay."""
    return all(each.keeps(topic) for each in conditions if each.column == TOPIC)


def publish_time_range_ms(conditions: Iterable[Condition]) -> tuple[int | None, int | None]:
    """From (inside) and until (outside), ms since 1970: messages beyond fulfil them not all."""
    least: int | None = None
    end: int | None = None
    for each in conditions:
        if each.column != PUBLISH_TIME or each.negated or each.kind in NULL_CHECKS:
            continue
        if each.kind == "In" and not each.value:
            continue
        smallest, largest = (
            (min(each.value), max(each.value)) if each.kind == "In" else (each.value, each.value)
        )
        if each.kind not in ("LessThan", "LessThanOrEqual"):
            from_ms = -(-(smallest + (each.kind == "GreaterThan")) // 1000)
            least = from_ms if least is None else max(least, from_ms)
        if each.kind not in ("GreaterThan", "GreaterThanOrEqual"):
            until_ms = (largest - (each.kind == "LessThan")) // 1000 + 1
            end = until_ms if end is None else min(end, until_ms)
    return least, end


def kept(
    conditions: Sequence[Condition], groups: Iterable[tuple[str, Rows]]
) -> Iterator[tuple[str, Rows]]:
    """Topic and messages that fulfil all conditions."""
    of_entries = [each for each in conditions if each.column == PUBLISH_TIME]
    of_messages = [each for each in conditions if each.column in (KEY, EVENT_TIME)]
    for topic, rows in groups:
        publish_time = rows.head.publish_time_ms * 1000
        if not keeps_topic(conditions, topic):
            continue
        if not all(each.keeps(publish_time) for each in of_entries):
            continue
        if of_messages:
            messages = enumerate(rows.messages())
            staying = [
                number
                for number, message in messages
                if all(each.keeps(_value(each.column, message)) for each in of_messages)
            ]
            rows = rows.chosen(staying)
        if rows.row_count:
            yield topic, rows


def _value(column: str, message: Message) -> object:
    return message.key if column == KEY else message.event_time_ms * 1000 or None
