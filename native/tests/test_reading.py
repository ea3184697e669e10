"""Digests of runs of entries, in both forms."""

from __future__ import annotations

import threading
from struct import pack
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from types import ModuleType

same_functions = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
ids = st.integers(0, 2**62)
payloads = st.lists(st.binary(max_size=60), max_size=6)


def entry(ledger_id: int, entry_id: int, payload: bytes) -> bytes:
    metadata = pack(">qqqq", ledger_id, entry_id, -1, 1 << 40)
    return metadata + pack(">I", crc32c(metadata + payload)) + payload


def run(ledger_id: int, first: int, payloads: list[bytes]) -> list[bytes]:
    return [entry(ledger_id, number, each) for number, each in enumerate(payloads, first)]


@given(ledger_id=ids, first=ids, payloads=payloads)
@same_functions
def test_intact_entries_give_their_payloads(
    native: ModuleType, ledger_id: int, first: int, payloads: list[bytes]
) -> None:
    bodies = run(ledger_id, first, payloads)
    assert native.crc32c_payloads(bodies, ledger_id, first) == payloads


@given(payloads=st.lists(st.binary(max_size=60), min_size=1, max_size=6), data=st.data())
@same_functions
def test_a_flipped_bit_ends_the_run_before_its_entry(
    native: ModuleType, payloads: list[bytes], data: st.DataObject
) -> None:
    bodies = run(7, 8, payloads)
    damaged = data.draw(st.integers(0, len(bodies) - 1))
    body = bytearray(bodies[damaged])
    bit = data.draw(st.integers(0, 8 * len(body) - 1))
    body[bit // 8] ^= 1 << bit % 8
    bodies[damaged] = bytes(body)
    assert native.crc32c_payloads(bodies, 7, 8) == payloads[:damaged]


@given(bodies=st.lists(st.binary(max_size=80), max_size=4))
@same_functions
def test_any_bytes_give_the_same_in_both_forms(native: ModuleType, bodies: list[bytes]) -> None:
    intact = run(0, 0, [b"one"])
    assert native.crc32c_payloads(intact + bodies, 0, 0) == [b"one"]


@pytest.mark.parametrize("size", range(37))
def test_an_entry_that_is_cut_ends_the_run(native: ModuleType, size: int) -> None:
    first, second = run(1, 0, [b"one", b"two"])
    assert native.crc32c_payloads([first, second[:size]], 1, 0) == [b"one"]


def test_another_entry_than_expected_ends_the_run(native: ModuleType) -> None:
    bodies = run(1, 0, [b"one", b"two"])
    assert native.crc32c_payloads([bodies[0], bodies[0]], 1, 0) == [b"one"]
    assert native.crc32c_payloads(bodies, 1, 1) == []
    assert native.crc32c_payloads(bodies, 2, 0) == []


def test_large_entries_are_read(native: ModuleType) -> None:
    payloads = [bytes([number]) * 1_000_000 for number in range(3)]
    assert native.crc32c_payloads(run(1, 0, payloads), 1, 0) == payloads


def test_a_list_may_be_emptied_meanwhile(native: ModuleType) -> None:
    payloads = [bytes([number]) * 200_000 for number in range(20)]
    bodies = run(1, 0, payloads)
    thread = threading.Thread(target=bodies.clear)
    begun = native.crc32c_payloads
    thread.start()
    found = begun(bodies, 1, 0)
    thread.join()
    assert found == payloads[: len(found)]


@pytest.mark.parametrize("bodies", [[1], [None], [bytearray(40)]])
def test_what_is_not_of_bytes_is_a_programming_error(
    extension: ModuleType, bodies: list[object]
) -> None:
    with pytest.raises(TypeError):
        extension.crc32c_payloads(bodies, 1, 0)
