"""The requests of many consumers as bytes with gaps, so that none is encoded one by one.

Pure. A template is made by encoding the request once, with values that occur nowhere else in it,
and splitting it there. All values inserted later must have the same size, so that no length in the
frame changes: ids are taken from ranges whose varints have one size, and names are padded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from protocol import client
from protocol.templates import varint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from protocol import pulsar_api_pb2 as pb
    from protocol.position import Position

REQUEST_BASE: Final = 1 << 24
"""Request ids are this times a step from 1 to 15, plus the consumer's index: varints of 4 bytes."""
_ID_RANGES: Final = ((1 << 7, 1 << 14), (1 << 14, 1 << 21), (1 << 21, 1 << 28))
"""Consumer ids with varints of 2, of 3 and of 4 bytes."""
CONSUMERS_MAX: Final = _ID_RANGES[-1][1] - _ID_RANGES[-1][0]
_NAME_DIGITS: Final = 7
_ACK_CONSUMER_OFFSET: Final = 13
"""Two sizes (8), type (2), tag and size of the content (2), tag (1)."""


def first_consumer_id(consumers: int) -> int:
    """The id of a run's first consumer, so that all of its ids have varints of one size. A client
    numbers its consumers over all of its connections, and so does a run.

    Raises: ValueError: more than CONSUMERS_MAX consumers.
    """
    for start, stop in _ID_RANGES:
        if consumers <= stop - start:
            return start
    raise ValueError(f"at most {CONSUMERS_MAX} consumers")


def padded(index: int) -> str:
    """A consumer's number, with the same number of digits for all."""
    return f"{index:0{_NAME_DIGITS}d}"


@final
class Template:
    """A frame with gaps, in the order in which they occur."""

    __slots__ = ("_form",)

    def __init__(self, frame: bytes, marks: Sequence[bytes]) -> None:
        """Split the frame at the marks, which are all places where these bytes are, in order.

        Raises: ValueError: a mark is not in the frame there, or elsewhere, too.
        """
        for mark in marks:
            if frame.count(mark) != marks.count(mark):
                raise ValueError(f"{mark!r} is {frame.count(mark)} times in the frame")
        parts: list[bytes] = []
        for mark in marks:
            part, found, frame = frame.partition(mark)
            if not found:
                raise ValueError(f"{mark!r} is not in the frame after the marks before it")
            parts.append(part)
        parts.append(frame)
        self._form = b"%b".join(part.replace(b"%", b"%%") for part in parts)

    def filled(self, *values: bytes) -> bytes:
        """The frame with these values in its gaps."""
        return self._form % values


_MARK_REQUEST: Final = 15 * REQUEST_BASE + 0x5A5A5A
_MARK_NUMBER: Final = 9_753_186


@final
class ConsumerRequests:
    """The requests of the consumers of one kind of connection."""

    def __init__(
        self,
        topic: str,
        subscription: str,
        *,
        own: bool,
        name_prefix: str,
        sub_type: pb.CommandSubscribe.SubType,
        metadata: Mapping[str, str],
        permits: int,
        first_id: int,
    ) -> None:
        """`own`: each consumer has a subscription of its own, `subscription` and its number."""
        mark_consumer = first_id + 0x2B
        number = padded(_MARK_NUMBER)
        consumer, request = varint(mark_consumer), varint(_MARK_REQUEST)
        partitions = client.partitioned_metadata(topic, _MARK_REQUEST)
        self.metadata = Template(partitions, [request]).filled
        """PARTITIONED_METADATA, given the request id; all ids are varints."""
        self.lookup = Template(client.lookup(topic, _MARK_REQUEST), [request]).filled
        """LOOKUP, given the request id."""
        subscribe = client.subscribe(
            topic,
            f"{subscription}-{number}" if own else subscription,
            mark_consumer,
            _MARK_REQUEST,
            sub_type,
            consumer_name=f"{name_prefix}-{number}",
            metadata=metadata,
        )
        # The id's tag is included: two bytes alone may occur elsewhere.
        ids = b"\x20" + consumer + b"\x28" + request
        self._own = own
        self._subscribe = Template(
            subscribe, [number.encode(), ids, number.encode()] if own else [ids, number.encode()]
        )
        marks = [b"\x08" + consumer]
        self._flow = Template(client.flow(mark_consumer, permits), marks)
        self.half = max(1, permits // 2)
        """Permits of `flow_half`."""
        self._flow_half = Template(client.flow(mark_consumer, self.half), marks)

    def subscribe(self, consumer: bytes, request: bytes, index: int) -> bytes:
        """SUBSCRIBE of the consumer with this number in the whole run."""
        number = b"%0*d" % (_NAME_DIGITS, index)
        ids = b"\x20%b\x28%b" % (consumer, request)
        if self._own:
            return self._subscribe.filled(number, ids, number)
        return self._subscribe.filled(ids, number)

    def flow(self, consumer: bytes) -> bytes:
        """FLOW of all permits."""
        return self._flow.filled(b"\x08" + consumer)

    def flow_half(self, consumer: bytes) -> bytes:
        """FLOW of half of them, once as many messages have arrived."""
        return self._flow_half.filled(b"\x08" + consumer)


@final
class AckTemplate:
    """ACK of one entry by many consumers."""

    __slots__ = ("_prefix", "_suffix")

    def __init__(self, position: Position, id_size: int) -> None:
        mark = 1 << (7 * (id_size - 1)) if id_size > 1 else 1
        frame = client.ack(mark, [position])
        start = _ACK_CONSUMER_OFFSET
        self._prefix = frame[:start]
        self._suffix = frame[start + id_size :]

    def acks(self, consumers: Sequence[bytes]) -> bytes:
        """The frames of these consumers, whose ids (varints) have all the size it was made for."""
        between = self._suffix + self._prefix
        return self._prefix + between.join(consumers) + self._suffix
