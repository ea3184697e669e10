"""Heads of runs of entries, in both forms."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from types import ModuleType

same_functions = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
numbers = st.integers(0, 2**62)


@given(
    ledger_id=numbers,
    first=numbers,
    confirmed=st.integers(-1, 2**62),
    length=numbers,
    payloads=st.lists(st.binary(max_size=3000), max_size=6),
)
@same_functions
def test_a_body_is_metadata_digest_and_the_payload_itself(
    native: ModuleType,
    ledger_id: int,
    first: int,
    confirmed: int,
    length: int,
    payloads: list[bytes],
) -> None:
    bodies = native.crc32c_bodies(ledger_id, first, confirmed, length, payloads)
    assert len(bodies) == len(payloads)
    for number, (head, payload) in enumerate(bodies):
        length += len(payload)
        metadata = pack(">qqqq", ledger_id, first + number, confirmed, length)
        assert head == metadata + pack(">I", crc32c(metadata + payload))
        assert payload is payloads[number]


@pytest.mark.parametrize("payloads", [[b"one", None], [bytearray(b"one")], [b"one", "two"]])
def test_a_payload_that_is_not_bytes_is_refused(native: ModuleType, payloads: list) -> None:
    with pytest.raises(TypeError, match="expected bytes"):
        native.crc32c_bodies(1, 2, 3, 4, payloads)


def test_what_is_no_list_and_too_large_numbers_are_refused(native: ModuleType) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        native.crc32c_bodies(1, 2, 3, 4, None)
    with pytest.raises(Exception, match="int"):
        native.crc32c_bodies(2**64, 2, 3, 4, [b""])
