"""Frames of a run of messages, in both forms: those that are made one by one."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from types import ModuleType


def varint(value: int) -> bytes:
    """As `protocol.templates.varint`, which is above this room."""
    value %= 1 << 64
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


same_functions = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
numbers = st.integers(0, 300) | st.integers(0, 2**64 - 1)


@given(
    consumer_id=numbers,
    ledger_id=numbers,
    partition=st.integers(-1, 2**31),
    epoch=st.none() | numbers,
    entries=st.lists(st.tuples(numbers, st.binary(max_size=300)), max_size=6),
)
@same_functions
def test_frames_of_a_run_are_those_of_its_messages(
    native: ModuleType,
    consumer_id: int,
    ledger_id: int,
    partition: int,
    epoch: int | None,
    entries: list[tuple[int, bytes]],
) -> None:
    expected = b""
    for entry_id, data in entries:
        message_id = b"\x08%b\x10%b\x18%b" % tuple(map(varint, (ledger_id, entry_id, partition)))
        options = b"" if epoch is None else b"\x28" + varint(epoch)
        content = b"\x08%b\x12%b%b" % (varint(consumer_id), varint(len(message_id)), message_id)
        content += options
        command = b"\x08\x09\x4a" + varint(len(content)) + content
        expected += pack(">II", 4 + len(command) + len(data), len(command)) + command + data
    frames = native.message_run(
        b"\x08" + varint(consumer_id),
        b"\x08" + varint(ledger_id) + b"\x10",
        b"\x18" + varint(partition),
        b"" if epoch is None else b"\x28" + varint(epoch),
        [entry_id for entry_id, _ in entries],
        [data for _, data in entries],
    )
    assert frames == expected


@pytest.mark.parametrize(
    ("entry_ids", "payloads", "error"),
    [
        ([1], [bytearray(b"one")], TypeError),
        ([1, 2], [b"one", None], TypeError),
        ([None], [b"one"], TypeError),
        ([-1], [b"one"], OverflowError),
        ([2**64], [b"one"], OverflowError),
        ([1, 2], [b"one"], ValueError),
        ([1], [], ValueError),
    ],
)
def test_what_is_no_run_is_refused(
    native: ModuleType, entry_ids: list, payloads: list, error: type[Exception]
) -> None:
    with pytest.raises(error):
        native.message_run(b"a", b"b", b"c", b"d", entry_ids, payloads)


def test_heads_whose_sizes_would_not_fit_are_refused(native: ModuleType) -> None:
    native.message_run(bytes(30), bytes(30), bytes(20), bytes(10), [2**64 - 1], [b"one"])
    for at in range(4):
        fixed = [bytes(30), bytes(30), bytes(20), bytes(10)]
        fixed[at] += b"x"
        with pytest.raises(ValueError, match="too large"):
            native.message_run(*fixed, [1], [b"one"])


def test_frames_of_2_gb_together_are_refused(native: ModuleType) -> None:
    half = bytes(2**30)
    with pytest.raises(ValueError, match="too large"):
        native.message_run(b"a", b"b", b"c", b"d", [1, 2], [half, half])
