"""The decisions of a read against simulated bookies: any mixture of faults, no sockets."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.bookies.errors import BookieUnavailable, EntryDamaged, EntryMissing, LedgerMissing
from pipeline.bookies.ledger_read import LedgerRead, ReadLimits
from pipeline.bookies.tests.fake_bookie import entry, payload_of
from protocol.bookkeeper import messages as m
from protocol.bookkeeper.digests import DigestType
from protocol.bookkeeper.ledger_layout import LedgerLayout

LEDGER_ID = 5
GOOD, MISSING, DAMAGED, FAILING = range(4)
NAMES = tuple(f"b{number}:1" for number in range(4))
FAULTS = st.dictionaries(
    st.tuples(st.sampled_from(NAMES), st.integers(0, 40)),
    st.sampled_from([MISSING, DAMAGED, FAILING]),
    max_size=25,
)


@st.composite
def worlds(draw):
    """(layout, what is wrong with which copy, limits, bookies without the ledger)."""
    ensemble_size = draw(st.integers(1, 3))
    write_quorum_size = draw(st.integers(1, ensemble_size))
    firsts = sorted({0, *draw(st.lists(st.integers(1, 30), max_size=2))})
    segments = tuple(
        (first, tuple(draw(st.permutations(NAMES))[:ensemble_size])) for first in firsts
    )
    last = draw(st.integers(0, 40))
    layout = LedgerLayout(LEDGER_ID, write_quorum_size, DigestType.CRC32C, segments, last)
    faults = draw(FAULTS)
    limits = ReadLimits(
        timeout_seconds=30.0,
        run_size_bytes=draw(st.integers(1, 2_000)),
        runs_in_flight=draw(st.integers(1, 4)),
        reads_in_flight=draw(st.integers(1, 8)),
    )
    without_ledger = draw(st.sets(st.sampled_from(NAMES), max_size=1))
    return layout, faults, limits, without_ledger


class Bookies:
    """Each has every entry, but for its faults."""

    def __init__(self, layout, faults, without_ledger):
        self._layout = layout
        self._faults = faults
        self._without_ledger = without_ledger

    def answer(self, request, size_max):
        bookie_id, _, first, count = request
        if bookie_id in self._without_ledger:
            return m.NO_LEDGER, ()
        bodies = []
        for entry_id in range(first, first + count):
            state = self._faults.get((bookie_id, entry_id), GOOD)
            if state in (MISSING, FAILING):
                if not bodies:
                    return (m.NO_ENTRY if state == MISSING else m.IO_ERROR), ()
                break
            body = entry(LEDGER_ID, entry_id, payload_of(entry_id))
            if state == DAMAGED:
                body = body[:-1] + b"?"
            if bodies and sum(map(len, bodies)) + len(body) > size_max:
                break
            bodies.append(body)
        return m.OK, tuple(bodies)


def expected_outcome(layout, faults, without_ledger):
    """(entries that can be had, error at the next one or None)."""
    for entry_id in range(layout.last_entry_id + 1):
        bookies = layout.bookies_of(entry_id)
        found = [
            "no ledger" if bookie_id in without_ledger else faults.get((bookie_id, entry_id), GOOD)
            for bookie_id in bookies
        ]
        if GOOD in found:
            continue
        if DAMAGED in found:
            return entry_id, EntryDamaged
        if FAILING in found:
            return entry_id, BookieUnavailable
        return entry_id, EntryMissing if MISSING in found else LedgerMissing
    return layout.last_entry_id + 1, None


@given(worlds(), st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_all_that_can_be_had_comes_in_order_and_then_the_right_error(world, seed):
    """Answers come in any order; connections break and bookies are overloaded, not for ever."""
    rng = Random(seed)
    layout, faults, limits, without_ledger = world
    bookies = Bookies(layout, faults, without_ledger)
    now = 0.0
    work = LedgerRead(layout, 0, layout.last_entry_id, limits, now)
    outstanding = []
    payloads, failure = [], None
    for _ in range(3_000):
        if work.is_done:
            break
        try:
            taken = work.take(now)
        except Exception as error:
            failure = error
            break
        for first, run in taken:
            assert first == len(payloads)
            payloads += run
        work.on_resumed(now)
        outstanding += work.requests(now)
        in_flight = {request.tag for request in outstanding}
        assert (
            len(in_flight) == len(outstanding) <= max(limits.runs_in_flight, limits.reads_in_flight)
        )
        if not outstanding:
            now = max(now + 0.001, work.wait_until(now))
            continue
        request = outstanding.pop(rng.randrange(len(outstanding)))
        fate = rng.random()
        if fate < 0.05:
            work.on_lost(request.bookie_id, "cut", now)
            outstanding = [each for each in outstanding if each.bookie_id != request.bookie_id]
        elif fate < 0.1:
            work.on_response(request.bookie_id, request.tag, m.TOO_MANY_REQUESTS, (), now)
        else:
            status, bodies = bookies.answer(request, limits.run_size_bytes)
            work.on_response(request.bookie_id, request.tag, status, bodies, now)
    else:
        raise AssertionError("the read does not end")
    count, error = expected_outcome(layout, faults, without_ledger)
    assert payloads == [payload_of(entry_id) for entry_id in range(count)]
    assert (type(failure) if failure else None) is error
    if failure is not None:
        assert (failure.ledger_id, failure.entry_id) == (LEDGER_ID, count)
