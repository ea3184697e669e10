"""Records of entry logs and their rows, in both forms."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from types import ModuleType

same_functions = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
ids = st.integers(0, 2**62)
INT64_MAX = 2**63 - 1


class RowList:
    """Keeps the rows as they are given."""

    def __init__(self) -> None:
        self.rows: list[tuple[bytes, bytes]] = []

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self.rows.append((key, value))


class RowText:
    """Keeps copies, and compares each key with those before it."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []
        self.seen: set[bytes] = set()
        self.found_again = 0

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self.found_again += key in self.seen
        self.seen.add(bytes(bytearray(key)))
        assert key in self.seen
        self.rows.append((key.hex(), value.hex()))


def size_of(bodies: list) -> int:
    return sum(4 + len(head) + len(payload) for head, payload in bodies)


@given(
    ledger_id=ids,
    first=ids,
    location=ids,
    bodies=st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=3000)), max_size=6),
)
@same_functions
def test_each_record_is_a_length_and_an_entry_and_each_row_says_where_that_is(
    native: ModuleType, ledger_id: int, first: int, location: int, bodies: list
) -> None:
    kept, copied = RowList(), RowText()
    records = native.log_records(kept, ledger_id, first, location, bodies, size_of(bodies))
    native.log_records(copied, ledger_id, first, location, bodies, size_of(bodies))
    assert records == b"".join(pack(">I", len(a) + len(b)) + a + b for a, b in bodies)
    assert len(kept.rows) == len(bodies)
    assert copied.rows == [(key.hex(), value.hex()) for key, value in kept.rows]
    assert not copied.found_again
    for number, (key, value) in enumerate(kept.rows):
        assert key == pack(">qq", ledger_id, first + number)
        assert value == pack(">Q", location + size_of(bodies[:number]))


def test_the_last_of_all_entry_ids_has_a_row(native: ModuleType) -> None:
    kept = RowList()
    bodies = [(b"head", b"one"), (b"head", b"two")]
    native.log_records(kept, INT64_MAX, INT64_MAX - 1, 0, bodies, size_of(bodies))
    assert [row[0] for row in kept.rows] == [
        pack(">qq", INT64_MAX, INT64_MAX - 1),
        pack(">qq", INT64_MAX, INT64_MAX),
    ]


@pytest.mark.parametrize(
    "bodies",
    [[b"body"], [None], [(b"head",)], [(b"head", b"a", b"b")], [(b"", "a")], [(bytearray(4), b"")]],
)
def test_what_is_no_body_is_refused(native: ModuleType, bodies: list) -> None:
    rows: dict = {}
    with pytest.raises(TypeError):
        native.log_records(rows, 1, 2, 3, [(b"a", b""), *bodies], 100)
    assert not rows


@pytest.mark.parametrize("size_bytes", [0, 3, 4, 12, 14, 1000])
def test_records_of_another_size_are_refused(native: ModuleType, size_bytes: int) -> None:
    """The next record of the log would overwrite their end, or follow after a gap."""
    rows: dict = {}
    with pytest.raises(ValueError, match="bytes"):
        native.log_records(rows, 1, 2, 3, [(b"head", b"entry")], size_bytes)
    assert not rows


@pytest.mark.parametrize(
    "numbers",
    [
        (1, INT64_MAX, 0, 16),
        (1, 2, INT64_MAX, 16),
        (1, 2, -1, 16),
        (1, 2, 3, -1),
        (1, 2, 3, 2**31),
        (2**63, 2, 3, 16),
    ],
)
def test_too_large_numbers_are_refused(native: ModuleType, numbers: tuple) -> None:
    with pytest.raises(Exception, match=r"large|range|int"):
        native.log_records({}, *numbers[:3], [(b"head", b"")] * 2, numbers[3])


def test_a_row_that_cannot_be_put_ends_the_run(native: ModuleType) -> None:
    class Full(RowList):
        def __setitem__(self, key: bytes, value: bytes) -> None:
            if self.rows:
                raise KeyError(key)
            super().__setitem__(key, value)

    full = Full()
    with pytest.raises(KeyError):
        native.log_records(full, 1, 2, 3, [(b"head", b"")] * 3, 24)
    assert len(full.rows) == 1
    with pytest.raises(TypeError):
        native.log_records(None, 1, 2, 3, [(b"head", b"")], 8)


def test_the_list_may_be_changed_meanwhile(native: ModuleType) -> None:
    bodies = [(b"head", b"payload%d" % number) for number in range(3)]
    expected = b"".join(pack(">I", len(a) + len(b)) + a + b for a, b in bodies)

    class Clearing(RowList):
        def __setitem__(self, key: bytes, value: bytes) -> None:
            bodies.clear()
            super().__setitem__(key, value)

    clearing = Clearing()
    assert native.log_records(clearing, 1, 2, 3, bodies, len(expected)) == expected
    assert len(clearing.rows) == 3
