"""Makes sessions that no client would send: right frames with wrong values, and wrong bytes.

Pure apart from the generator of chance it is given, so a seed repeats a run. A session begins like
a client's (CONNECT, lookup, producer, consumers); then messages and commands follow whose fields
are drawn from values at the edges of their types; at the end the bytes may be damaged, cut, or
divided at any place. Names of topics and subscriptions are few, so that a long run does not fill a
broker with topics that a client is allowed to make.
"""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING, Any, Final

from protocol import client as wire
from protocol import pulsar_api_pb2 as pb
from protocol.connection import CLIENT_COMMANDS
from protocol.decoding import COMMAND_FIELDS
from protocol.metadata import encode_message

if TYPE_CHECKING:
    import random

    from google.protobuf.message import Message

Type = pb.BaseCommand
Field = Any
"""A descriptor of a protobuf field: that of the C implementation is a class of its own."""

TOPICS: Final = tuple(
    f"{domain}://public/default/fuzz-{number}"
    for domain in ("persistent", "non-persistent")
    for number in range(12)
)
SUBSCRIPTIONS: Final = ("s0", "s1", "s2", "broadcast")
KINDS: Final = tuple(sorted(CLIENT_COMMANDS - {Type.CONNECT}))
EDGES: Final = (
    0, 1, 2, 3, 5, 63, 64, 127, 128, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1,
    2**63, 2**64 - 1, -1, -2, -(2**31), -(2**63),
)  # fmt: skip
DEPTH_MAX: Final = 5
PAYLOAD_BYTES_MAX: Final = 200_000
WORDS_MAX: Final = 20_000


def _number(chance: random.Random, field: Field) -> int:
    """A number that fits the field; mostly one that names something there is."""
    if field.name in ("producer_id", "consumer_id") and chance.random() < 0.9:
        return chance.randint(1, 3)
    if field.name in ("ledgerId", "entryId", "request_id", "sequence_id") and chance.random() < 0.6:
        return chance.randint(0, 40)
    bits = 64 if field.type in (field.TYPE_INT64, field.TYPE_UINT64) else 32
    signed = field.type in (field.TYPE_INT64, field.TYPE_INT32)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return min(max(chance.choice(EDGES), low), high)


def _text(chance: random.Random, field: Field) -> str:
    if field.name == "topic":
        return chance.choice(TOPICS)
    if field.name == "subscription":
        return chance.choice(SUBSCRIPTIONS)
    if field.name == "namespace":
        return "public/default"
    return chance.choice(("", "a", "é" * 10, "name", "x" * 3000, "\0", "1e999", "../.."))


def _value(chance: random.Random, field: Field) -> object:
    if field.type == field.TYPE_BOOL:
        return chance.random() < 0.5
    if field.type == field.TYPE_ENUM:
        return chance.choice(field.enum_type.values).number
    if field.type == field.TYPE_STRING:
        return _text(chance, field)
    if field.type == field.TYPE_BYTES:
        return chance.randbytes(chance.choice((0, 1, 8, 500)))
    if field.type in (field.TYPE_DOUBLE, field.TYPE_FLOAT):
        return chance.choice((0.0, -1.0, float("inf"), float("nan")))
    return _number(chance, field)


def fill(message: Message, chance: random.Random, depth: int = 0) -> None:
    """Set fields of any kind of message: all that it must have, and some of the others."""
    for field in message.DESCRIPTOR.fields:
        if not field.is_required and chance.random() < 0.5:
            continue
        if field.is_repeated:
            _fill_list(message, field, chance, depth)
        elif field.type == field.TYPE_MESSAGE:
            if depth < DEPTH_MAX:
                inner = getattr(message, field.name)
                inner.SetInParent()
                fill(inner, chance, depth + 1)
        else:
            setattr(message, field.name, _value(chance, field))


def _fill_list(message: Message, field: Field, chance: random.Random, depth: int) -> None:
    items = getattr(message, field.name)
    if field.type == field.TYPE_MESSAGE:
        if depth < DEPTH_MAX:
            for _ in range(chance.choice((0, 1, 1, 2, 5))):
                fill(items.add(), chance, depth + 1)
        return
    count = chance.choice((0, 1, 1, 2, 3, 70))
    if field.name == "ack_set" and chance.random() < 0.02:
        count = WORDS_MAX
    items.extend(_value(chance, field) for _ in range(count))


def _frame(command: pb.BaseCommand, message: bytes = b"") -> bytes:
    encoded = command.SerializePartialToString()
    return pack(">II", 4 + len(encoded) + len(message), len(encoded)) + encoded + message


def odd_command(chance: random.Random) -> bytes:
    """A frame with a command of any type that a client may send, its values at the edges."""
    kind = chance.choice(KINDS)
    if kind == Type.SEND or chance.random() < 0.2:
        return odd_send(chance)
    command = Type(type=kind)
    content = getattr(command, COMMAND_FIELDS[kind])
    content.SetInParent()
    fill(content, chance)
    return _frame(command)


def odd_send(chance: random.Random) -> bytes:
    """A SEND with such values in the command, in the metadata, or in both."""
    command = Type(type=Type.SEND)
    command.send.producer_id = chance.randint(1, 3)
    command.send.sequence_id = chance.randint(0, 100)
    if chance.random() < 0.5:
        fill(command.send, chance)
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    if chance.random() < 0.5:
        fill(metadata, chance)
    payload = chance.randbytes(chance.choice((0, 1, 100, 100, PAYLOAD_BYTES_MAX)))
    encoded = metadata.SerializePartialToString()
    if chance.random() < 0.1:
        return _frame(command, chance.randbytes(40))
    if not metadata.IsInitialized():
        return _frame(command, pack(">I", len(encoded)) + encoded + payload)
    return _frame(command, encode_message(metadata, payload, checksum=chance.random() < 0.8))


def opening(chance: random.Random) -> list[bytes]:
    """How a proper client begins. All of it is answered, with one command for each."""
    kinds = list(pb.CommandSubscribe.SubType.values())
    frames = [wire.connect()]
    for number in range(1, 4):
        topic = chance.choice(TOPICS)
        frames += [
            wire.lookup(topic, 3 * number),
            wire.producer(topic, number, 3 * number + 1),
            wire.subscribe(
                topic,
                chance.choice(SUBSCRIPTIONS),
                number,
                3 * number + 2,
                chance.choice(kinds),
            ),
        ]
    return frames


def usual_commands(chance: random.Random) -> list[bytes]:
    """What a proper client goes on with."""
    return [
        wire.flow(1, chance.choice((1, 10, 1000))),
        wire.flow(2, 1000),
        *(wire.send(1, at, wire.message(b"m", sequence_id=at)) for at in range(3)),
        wire.send(1, 4, wire.batch([b"a", b"b", b"c"], sequence_id=4), num_messages=3),
    ]


def _damaged(data: bytearray, chance: random.Random) -> bytearray:
    """A few bytes changed, taken out, put in or doubled, anywhere."""
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        at = chance.randrange(len(data))
        how = chance.random()
        if how < 0.5:
            data[at] = chance.randrange(256)
        elif how < 0.7:
            data[at] ^= 1 << chance.randrange(8)
        elif how < 0.8:
            del data[at : at + chance.choice((1, 2, 100))]
        elif how < 0.9:
            data[at:at] = chance.randbytes(chance.choice((1, 4, 50)))
        else:
            data[at : at + 4] = pack(">I", chance.choice((0, 1, 5_253_120, 2**31, 2**32 - 1)))
        if not data:
            return data
    return data


def session(chance: random.Random) -> tuple[list[bytes], list[bytes]]:
    """What one connection sends: frames whose answers are waited for, and then the pieces of all
    the rest."""
    first = opening(chance) if chance.random() < 0.9 else []
    frames = usual_commands(chance) if chance.random() < 0.7 else []
    if first and chance.random() < 0.3:
        frames, first = first + frames, []
    frames += [odd_command(chance) for _ in range(chance.choice((0, 1, 5, 30)))]
    if chance.random() < 0.2:
        chance.shuffle(frames)
    data = bytearray(b"".join(frames) or b"\0")
    if chance.random() < 0.6:
        data = _damaged(data, chance)
    if chance.random() < 0.3:
        del data[chance.randrange(len(data) + 1) :]
    places = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice((0, 0, 1, 4))))
    starts = [0, *places]
    ends = [*places, len(data)]
    return first, [bytes(data[start:end]) for start, end in zip(starts, ends, strict=True)]
