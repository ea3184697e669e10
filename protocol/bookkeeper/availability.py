"""The entries of a ledger that a bookie has: the body of GET_LIST_OF_ENTRIES.

A striped ledger leaves a bookie with runs of entries of one size at one distance, so groups of
such runs describe millions of entries in a few bytes. They are kept as groups, never expanded.

Format: 64 bytes of header (version 0, number of groups, zeros), then per group four big-endian
numbers: first and last start of a run (i64), size and period of the runs (i32). A group with a
single run has period 0.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, final

from protocol.bookkeeper.ledger_metadata import InvalidMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEADER: Final = Struct(">ii56x")
_GROUP: Final = Struct(">qqii")
_VERSION: Final = 0
_I32_MAX: Final = 2**31 - 1


class RunGroup(NamedTuple):
    """Runs of `size` entries that start at `first_start`, `first_start + period`, ...,
    `last_start`."""

    first_start: int
    last_start: int
    size: int
    period: int


@final
class Availability:
    """A set of entry ids."""

    __slots__ = ("groups",)

    def __init__(self, groups: Iterable[RunGroup] = ()) -> None:
        self.groups: tuple[RunGroup, ...] = tuple(groups)

    @classmethod
    def of(cls, entry_ids: Iterable[int]) -> Availability:
        """From entry ids in ascending order, each once.

        Raises: ValueError: they are not.
        """
        return cls(_grouped(_runs(entry_ids)))

    def __contains__(self, entry_id: int) -> bool:
        return any(_in_group(group, entry_id) for group in self.groups)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Availability) and self.groups == other.groups

    def __hash__(self) -> int:
        return hash(self.groups)

    def __len__(self) -> int:
        return sum(group.size * _run_count(group) for group in self.groups)

    def __iter__(self) -> Iterator[int]:
        for first_start, last_start, size, period in self.groups:
            for start in range(first_start, last_start + 1, period or 1):
                yield from range(start, start + size)


def encode_availability(availability: Availability) -> bytes:
    """The body of the answer."""
    groups = availability.groups
    return _HEADER.pack(_VERSION, len(groups)) + b"".join(_GROUP.pack(*one) for one in groups)


def decode_availability(data: bytes) -> Availability:
    """The body of the answer.

    Raises: InvalidMetadata: it is none.
    """
    if len(data) < _HEADER.size:
        raise InvalidMetadata(f"list of entries of {len(data)} bytes is shorter than its header")
    version, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise InvalidMetadata(f"list of entries of version {version} is not known")
    if count < 0 or len(data) != _HEADER.size + count * _GROUP.size:
        raise InvalidMetadata(f"list of entries: {count} groups do not fit {len(data)} bytes")
    groups: list[RunGroup] = []
    end = 0
    for first_start, last_start, size, period in _GROUP.iter_unpack(data[_HEADER.size :]):
        is_single = first_start == last_start and period == 0
        is_periodic = period >= size and first_start < last_start
        whole = is_periodic and (last_start - first_start) % period == 0
        if first_start < end or size <= 0 or not (is_single or whole):
            raise InvalidMetadata(
                f"list of entries: impossible group {(first_start, last_start, size, period)}"
            )
        end = last_start + size
        groups.append(RunGroup(first_start, last_start, size, period))
    return Availability(groups)


def _runs(entry_ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(start, size) of each stretch of consecutive ids."""
    start = end = -1
    for entry_id in entry_ids:
        if entry_id < max(end, 0):
            raise ValueError(f"entry ids must ascend: {entry_id} after {end - 1}")
        if entry_id != end or end - start == _I32_MAX:
            if end > start:
                yield start, end - start
            start = entry_id
        end = entry_id + 1
    if end > start:
        yield start, end - start


def _grouped(runs: Iterator[tuple[int, int]]) -> Iterator[RunGroup]:
    current: RunGroup | None = None
    for start, size in runs:
        if current is not None:
            distance = start - current.last_start
            fits = current.period in (0, distance) and distance <= _I32_MAX
            if size == current.size and fits:
                current = current._replace(last_start=start, period=distance)
                continue
            yield current
        current = RunGroup(start, start, size, 0)
    if current is not None:
        yield current


def _run_count(group: RunGroup) -> int:
    if group.period == 0:
        return 1
    return (group.last_start - group.first_start) // group.period + 1


def _in_group(group: RunGroup, entry_id: int) -> bool:
    offset = entry_id - group.first_start
    if offset < 0 or entry_id >= group.last_start + group.size:
        return False
    return offset < group.size if group.period == 0 else offset % group.period < group.size
