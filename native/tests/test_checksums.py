"""Checksums of both forms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from types import ModuleType

same_functions = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
REFERENCE = bytes(range(256)) * 80


def test_the_check_value_of_the_standard(native: ModuleType) -> None:
    assert native.crc32c(b"123456789") == 0xE3069283


@given(start=st.integers(0, 40), size=st.integers(0, 20000), value=st.integers(0, 2**32 - 1))
@same_functions
def test_every_size_and_alignment_gives_the_checksum_of_the_library(
    native: ModuleType, start: int, size: int, value: int
) -> None:
    data = memoryview(REFERENCE)[start : start + size]
    assert native.crc32c(data, value) == crc32c(data, value)


@given(data=st.binary(max_size=300), cut=st.integers(0, 300), value=st.integers(0, 2**32 - 1))
@same_functions
def test_checksums_of_two_pieces_give_that_of_both(
    native: ModuleType, data: bytes, cut: int, value: int
) -> None:
    first, second = data[:cut], data[cut:]
    combined = native.crc32c_combined(crc32c(first, value), crc32c(second), len(second))
    assert combined == crc32c(data, value)


def test_a_piece_of_a_terabyte_is_combined(native: ModuleType) -> None:
    step = native.crc32c_combined(1, 0, 2**39)
    assert native.crc32c_combined(1, 0, 2**40) == native.crc32c_combined(step, 0, 2**39)


def test_a_negative_size_is_refused(native: ModuleType) -> None:
    with pytest.raises(ValueError, match="negative"):
        native.crc32c_combined(1, 2, -1)
