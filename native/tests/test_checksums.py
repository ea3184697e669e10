"""Checksums of both forms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from native.pure.checksums import crc32c_joined

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


@given(data=st.binary(max_size=300), start=st.integers(-5, 310), value=st.integers(0, 2**32 - 1))
@same_functions
def test_a_checksum_may_begin_within_the_bytes(
    native: ModuleType, data: bytes, start: int, value: int
) -> None:
    assert native.crc32c(data, value, start) == crc32c(data[start:] if start >= 0 else b"", value)


@given(first=st.binary(max_size=300), size=st.integers(0, 20000), value=st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_checksums_of_two_parts_are_joined(first: bytes, size: int, value: int) -> None:
    """In the extension this is a part of other functions."""
    second = REFERENCE[:size]
    joined = crc32c_joined(crc32c(first, value), crc32c(second), size)
    assert joined == crc32c(first + second, value)
