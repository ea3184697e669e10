"""For any ledgers and bounds, tasks cover the range once and in order."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.offsets import NOTHING_YET, Offset
from pipeline.plan import (
    Budget,
    LedgerRow,
    Slice,
    Task,
    admitted,
    back_from,
    batch_tasks,
    cut,
    entries_per_task,
    stream_tasks,
)

TOPIC = "persistent://public/default/a"


@st.composite
def ledger_lists(draw: st.DrawFn) -> list[LedgerRow]:
    ids = sorted(draw(st.sets(st.integers(0, 50), min_size=1, max_size=5)))
    rows = []
    for ledger_id in ids:
        entries = draw(st.integers(0, 12))
        size_bytes = draw(st.integers(0, 1000)) if entries else 0
        rows.append(LedgerRow(ledger_id, entries, size_bytes, ledger_id != ids[-1]))
    return rows


OFFSETS = st.one_of(
    st.builds(Offset, st.integers(0, 50), st.integers(-1, 12), st.just(-1)),
    st.just(NOTHING_YET),
)
"""Of whole entries."""


def positions(slices: list[Slice]) -> list[tuple[int, int]]:
    return [
        (part.ledger_id, entry_id)
        for part in slices
        for entry_id in range(part.first_entry, part.last_entry + 1)
    ]


def flat(tasks: list[Task]) -> list[Slice]:
    return [part for task in tasks for part in task]


@given(ledger_lists(), OFFSETS, OFFSETS, st.integers(1, 2000), st.integers(1, 20))
def test_tasks_cover_the_range_once_and_in_order(
    ledgers: list[LedgerRow], start: Offset, end: Offset, size_max: int, partitions_min: int
) -> None:
    expected = [
        (row.ledger_id, entry_id)
        for row in ledgers
        for entry_id in range(row.entries)
        if start[:2] < (row.ledger_id, entry_id) <= end[:2]
    ]
    slices = list(cut(TOPIC, start, end, ledgers).slices)

    batch = batch_tasks(slices, bytes_per_partition_max=size_max, partitions_min=partitions_min)

    assert positions(slices) == expected
    assert positions(flat(batch)) == expected
    assert positions(flat(stream_tasks(slices, {TOPIC: size_max}))) == expected
    assert all(part.entries > 0 for part in flat(batch))


def test_a_range_within_a_batch_reads_its_entry_and_an_empty_one_reads_nothing() -> None:
    ledgers = [LedgerRow(0, 1, 10, sealed=False)]

    assert positions(list(cut(TOPIC, Offset(0, 0, 0), Offset(0, 0, 2), ledgers).slices)) == [(0, 0)]
    assert not cut(TOPIC, Offset(0, 0, 2), Offset(0, 0, 2), ledgers).slices


@given(ledger_lists(), st.integers(1, 8))
def test_there_are_as_many_tasks_as_asked_for_where_the_data_allows_it(
    ledgers: list[LedgerRow], partitions_min: int
) -> None:
    ledgers = [replace(row, size_bytes=row.entries * 100) for row in ledgers]
    slices = cut(TOPIC, NOTHING_YET, Offset(50, 99), ledgers).slices
    entries = sum(part.entries for part in slices)

    tasks = batch_tasks(slices, bytes_per_partition_max=10**9, partitions_min=partitions_min)

    assert len(tasks) >= min(partitions_min, entries)


@given(ledger_lists(), OFFSETS, OFFSETS, st.data())
def test_a_repeated_micro_batch_is_planned_the_same_when_the_open_ledger_has_grown(
    ledgers: list[LedgerRow], start: Offset, end: Offset, data: st.DataObject
) -> None:
    newest = ledgers[-1]
    end = min(end, Offset(newest.ledger_id, newest.entries - 1))
    grown = [
        *ledgers[:-1],
        replace(
            newest,
            entries=newest.entries + data.draw(st.integers(0, 9)),
            size_bytes=newest.size_bytes + data.draw(st.integers(0, 5000)),
            sealed=True,
        ),
        LedgerRow(60, 3, 100, False),
    ]

    slices = cut(TOPIC, start, end, ledgers).slices
    most = {TOPIC: entries_per_task(slices, data.draw(st.integers(1, 5000)))} if slices else {}

    first = stream_tasks(slices, most)
    again = stream_tasks(cut(TOPIC, start, end, grown).slices, most)

    def ids(tasks: list[Task]) -> list[list[tuple[int, int, int]]]:
        return [
            [(part.ledger_id, part.first_entry, part.last_entry) for part in task] for task in tasks
        ]

    assert ids(first) == ids(again)


def test_bounds_inside_batches_reach_the_first_and_the_last_slice_only() -> None:
    ledgers = [LedgerRow(1, 10, 1000, True), LedgerRow(2, 10, 1000, True)]

    slices = cut(TOPIC, Offset(1, 3, 4), Offset(2, 6, 1), ledgers).slices
    pieces = flat(batch_tasks(slices, bytes_per_partition_max=100, partitions_min=1))

    assert (pieces[0].first_entry, pieces[0].batch_after) == (3, 4)
    assert (pieces[-1].last_entry, pieces[-1].batch_until) == (6, 1)
    assert {piece.batch_after for piece in pieces[1:]} == {-1}
    assert {piece.batch_until for piece in pieces[:-1]} == {-1}


def test_a_start_in_a_ledger_that_is_gone_is_noticed() -> None:
    ledgers = [LedgerRow(5, 10, 1000, True)]

    assert cut(TOPIC, Offset(3, 7), Offset(5, 9), ledgers).start_gone
    assert not cut(TOPIC, NOTHING_YET, Offset(5, 9), ledgers).start_gone
    assert not cut(TOPIC, Offset(5, 2), Offset(5, 9), ledgers).start_gone


@given(ledger_lists(), st.integers(1, 3000), st.integers(1, 100))
@example([LedgerRow(1, 25, 0, False)], 1, 7)
def test_a_bounded_stream_reaches_its_end_and_never_goes_back(
    ledgers: list[LedgerRow], size_max: int, rows_max: int
) -> None:
    latest = {TOPIC: Offset(60, 99)}
    start = {TOPIC: NOTHING_YET}
    seen: list[tuple[int, int]] = []
    for _ in range(200):
        budget = Budget(size_max, rows_max)
        end = admitted(start, latest, {TOPIC: ledgers}, budget, {TOPIC: 1.0})
        slices = list(cut(TOPIC, start[TOPIC], end[TOPIC], ledgers).slices)
        if not slices:
            break
        assert sum(part.entries for part in slices) <= max(rows_max, 1)
        seen += positions(slices)
        start = end

    assert seen == [(row.ledger_id, entry) for row in ledgers for entry in range(row.entries)]


def test_every_topic_gets_its_share() -> None:
    ledgers = {name: [LedgerRow(1, 100, 10_000, True)] for name in ("a", "b")}
    latest = {name: Offset(1, 99) for name in ("a", "b")}

    end = admitted({}, latest, ledgers, Budget(size_bytes_max=2_000), {})

    assert end == {"a": Offset(1, 9), "b": Offset(1, 9)}


@given(ledger_lists(), st.integers(0, 40), st.data())
def test_going_back_counts_entries_across_ledgers_to_the_first(
    ledgers: list[LedgerRow], distance: int, data: st.DataObject
) -> None:
    held = [(row.ledger_id, entry) for row in ledgers for entry in range(row.entries)]
    if not held:
        return
    index = data.draw(st.integers(0, len(held) - 1))

    assert back_from(*held[index], distance, ledgers) == held[max(index - distance, 0)]


@given(ledger_lists(), st.integers(1, 5000))
def test_no_task_of_a_stream_has_more_bytes_than_allowed_unless_one_entry_has(
    ledgers: list[LedgerRow], bytes_max: int
) -> None:
    """Ledgers whose entries are of one size, so that a slice's size is that of its entries."""
    ledgers = [replace(row, size_bytes=row.entries * 100) for row in ledgers]
    slices = cut(TOPIC, NOTHING_YET, Offset(50, 99), ledgers).slices

    tasks = stream_tasks(slices, {TOPIC: entries_per_task(slices, bytes_max)})

    for task in tasks:
        entries = sum(part.entries for part in task)
        assert entries == 1 or entries * 100 <= bytes_max
