"""Offsets: where a stream is in each topic, and the forms they are written in. Pure.

An offset says of one topic (a partition, or a topic without partitions) "everything up to and
including this message was read": `(ledger_id, entry_id, batch_index)`. Batch index -1 stands for
the whole entry; entry -1 for the place before a ledger's first entry; `NOTHING_YET` for the place
before everything. A range of messages is `(start, end]`.

In Spark's checkpoint all topics are one JSON object,
`{"v": 1, "t": {"persistent://t/n/name-partition-0": [ledger, entry, batch], ...}}`, with sorted
keys, because Spark compares offsets as text.

Users give bounds of a read as `earliest`, `latest`, or a JSON object from topic to message id: text
`ledger:entry[:partition[:batch]]`, or the bytes of MessageIdData as signed numbers, which is how
StreamNative's connector writes them. The message that a bound names is inside the range, at both
ends.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from protocol.errors import InvalidTopicName, RemoteProtocolError
from protocol.message_id import MessageId, from_bytes, parse_text
from protocol.position import EARLIEST, LATEST
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION: Final = 1


class InvalidOffset(ValueError):
    """Text that is no offset; says what is wrong with it."""


class Offset(NamedTuple):
    """The last message read."""

    ledger_id: int
    entry_id: int
    batch_index: int = -1

    @property
    def sort_key(self) -> tuple[int, int, float]:
        """Ascending in the order of messages: the whole entry comes after all parts of it."""
        batch_index = self.batch_index if self.batch_index >= 0 else float("inf")
        return (self.ledger_id, self.entry_id, batch_index)


NOTHING_YET: Final = Offset(-1, -1, -1)

Offsets = dict[str, Offset]
"""By full topic name."""


def to_checkpoint(offsets: Mapping[str, Offset]) -> dict[str, Any]:
    """The dict Spark keeps as JSON."""
    return {"t": {topic: list(offsets[topic]) for topic in sorted(offsets)}, "v": VERSION}


def from_checkpoint(stored: Mapping[str, Any]) -> Offsets:
    """The inverse of `to_checkpoint`.

    Raises: InvalidOffset: written by something else, or by a newer version.
    """
    if stored.get("v") != VERSION or not isinstance(stored.get("t"), dict):
        raise InvalidOffset(
            f"the checkpoint holds {json.dumps(stored)[:200]}, not offsets of version {VERSION} of "
            "this source: use another checkpointLocation"
        )
    offsets: Offsets = {}
    for topic, parts in stored["t"].items():
        if not (
            isinstance(parts, list)
            and len(parts) == 3
            and all(isinstance(part, int) and not isinstance(part, bool) for part in parts)
        ):
            raise InvalidOffset(f"offset of {topic} must be [ledger, entry, batch], got {parts!r}")
        offsets[topic] = Offset(*parts)
    return offsets


@final
@dataclass(frozen=True, slots=True)
class Bound:
    """`symbol` is `earliest`, `latest` or empty; then `by_topic` tells, by full topic name."""

    symbol: str
    by_topic: dict[str, MessageId] = field(default_factory=dict)


def parse_bound(text: str) -> Bound:
    """What `startingOffsets` and `endingOffsets` may hold.

    Raises: InvalidOffset.
    """
    stripped = text.strip()
    if stripped.lower() in ("earliest", "latest"):
        return Bound(stripped.lower())
    try:
        given = json.loads(stripped)
    except json.JSONDecodeError:
        given = None
    if not isinstance(given, dict) or not given:
        raise InvalidOffset(
            f"must be earliest, latest or a JSON object from topic to message id, "
            f"got {text[:200]!r}"
        )
    by_topic: dict[str, MessageId] = {}
    for topic, value in given.items():
        try:
            by_topic[TopicName.parse(topic).full] = _message_id(value)
        except (InvalidTopicName, RemoteProtocolError, ValueError) as error:
            raise InvalidOffset(f"{topic}: {error}") from None
    return Bound("", by_topic)


def _message_id(value: object) -> MessageId:
    if isinstance(value, str):
        return parse_text(value)
    if isinstance(value, list) and all(
        isinstance(each, int) and -128 <= each <= 255 for each in value
    ):
        return from_bytes(bytes(each & 0xFF for each in value))
    raise ValueError(
        "a message id is text ledger:entry[:partition[:batch]] or a list of the bytes of "
        f"MessageIdData, got {value!r}"
    )


def before(message_id: MessageId) -> Offset:
    """The start of a range whose first message is this one."""
    if message_id.position == EARLIEST:
        return NOTHING_YET
    ledger_id, entry_id = message_id.position
    if message_id.batch_index > 0:
        return Offset(ledger_id, entry_id, message_id.batch_index - 1)
    return Offset(ledger_id, max(entry_id - 1, -1))


def at(message_id: MessageId) -> Offset:
    """The end of a range whose last message is this one."""
    return Offset(message_id.ledger_id, message_id.entry_id, message_id.batch_index)


def is_latest(message_id: MessageId) -> bool:
    """Whether an id stands for the end of the topic."""
    return message_id.position == LATEST


def earlier(one: Offset, other: Offset) -> Offset:
    """The one that comes first."""
    return min(one, other, key=lambda offset: offset.sort_key)


def later(one: Offset, other: Offset) -> Offset:
    """The one that comes last."""
    return max(one, other, key=lambda offset: offset.sort_key)
