"""After any schedule: confirmed entries stay, in order, at their positions."""

import trio
import trio.testing
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bookie.api import Status
from broker.managed_ledger.tests.world import (
    World,
    append,
    append_run,
    open_ledger,
    read_all,
    settle,
)
from protocol.position import EARLIEST

steps = st.one_of(
    st.tuples(st.sampled_from(("append", "append_run")), st.integers(1, 6)),
    st.tuples(st.just("hold")),
    st.tuples(st.just("release"), st.integers(0, 5)),
    st.tuples(st.just("fail"), st.integers(0, 4)),
    st.tuples(st.just("settle")),
    st.tuples(st.just("ack"), st.floats(0, 1, exclude_max=True)),
    st.tuples(st.just("ack_to"), st.floats(0, 0.4)),
    st.tuples(st.just("flush")),
    st.tuples(st.just("wait")),
)
phases = st.lists(
    st.tuples(st.lists(steps, max_size=14), st.sampled_from(["crash", "close"])),
    min_size=1,
    max_size=4,
)


class Run:
    def __init__(self, entries_per_ledger):
        self.world = World(max_entries_per_ledger=entries_per_ledger)
        self.number = 0
        self.confirmed = {}
        self.acked_ever = set()
        self.acked_now = set()
        self.acked_stored = set()

    def note_confirmed(self, ledger):
        for payload, position in ledger.listener.appended:
            assert self.confirmed.setdefault(position, payload) == payload
        ledger.listener.appended.clear()

    async def step(self, ledger, cursor, name, *args):
        bookie = self.world.bookie
        if name in ("append", "append_run"):
            payloads = [b"%d" % (self.number + index) for index in range(args[0])]
            self.number += args[0]
            (append if name == "append" else append_run)(ledger, *payloads)
        elif name == "hold":
            bookie.is_holding = True
        elif name == "release":
            bookie.release(args[0])
        elif name == "fail":
            countdown = [args[0]]

            def status(ledger_id, entry_id):
                countdown[0] -= 1
                return Status.IO_ERROR if countdown[0] == -1 else Status.OK

            bookie.add_status = status
        elif name == "settle":
            bookie.is_holding = False
            bookie.kick()
            await settle()
        elif name in ("ack", "ack_to") and self.confirmed:
            positions = sorted(self.confirmed)
            position = positions[int(args[0] * len(positions))]
            if name == "ack":
                cursor.ack_individual(position)
                self.acked_now.add(position)
            else:
                cursor.ack_cumulative(position)
                self.acked_now.update(p for p in positions if p <= position)
            self.acked_ever |= self.acked_now
        elif name == "flush" and not bookie.is_holding:
            acked = set(self.acked_now)
            await cursor.flush()
            self.acked_stored |= acked
        elif name == "wait":
            await trio.sleep(2)
        self.note_confirmed(ledger)

    def check_cursor(self, cursor):
        for position in self.acked_stored:
            assert cursor.is_acked(position)
        for position in self.confirmed:
            assert position in self.acked_ever or not cursor.is_acked(position)
        self.acked_now = {position for position in self.confirmed if cursor.is_acked(position)}

    async def check_content(self, ledger):
        first = ledger.first_position
        held = []
        position = EARLIEST
        while entries := await ledger.read(position, 100, 1 << 20):
            held += [(entry.position, entry.data) for entry in entries]
            position = ledger.next_position(held[-1][0])
        assert [p for p, _ in held] == sorted({p for p, _ in held})
        expected = [(p, self.confirmed[p]) for p in sorted(self.confirmed) if p >= first]
        known = [item for item in held if item[0] in self.confirmed]
        assert known == expected
        # Entries unconfirmed before a crash may exist; from now on they count.
        self.confirmed.update(held)
        for lost in [p for p in self.confirmed if p < first]:
            assert lost in self.acked_ever
        assert len(await read_all(ledger)) == ledger.entries


ACKED_AND_TRIMMED_BEFORE_THE_FLUSH = [
    ("append", 1),
    ("append", 1),
    ("settle",),
    ("ack", 0.5),
    ("flush",),
    ("ack", 0.0),
    ("settle",),
]


@settings(max_examples=60, deadline=None)
@given(phases, st.integers(1, 4))
@example([(ACKED_AND_TRIMMED_BEFORE_THE_FLUSH, "crash")], 1)
def test_any_schedule_of_appends_failures_acks_and_restarts(script, entries_per_ledger):
    run = Run(entries_per_ledger)

    async def scenario():
        for phase_steps, end in [*script, ([], "close")]:
            async with run.world.broker() as factory:
                ledger = await open_ledger(factory)
                cursor = await ledger.open_cursor("s", EARLIEST)
                await run.check_content(ledger)
                run.check_cursor(cursor)
                for name, *args in phase_steps:
                    await run.step(ledger, cursor, name, *args)
                if end == "close":
                    await run.step(ledger, cursor, "settle")
                    await factory.aclose()
                    run.note_confirmed(ledger)
                    run.acked_stored |= run.acked_now
            run.world.crash_bookie()

    trio.run(scenario, clock=trio.testing.MockClock(autojump_threshold=0))


async def outcome(how, runs, entries_per_ledger, failing, rollover_s):
    """Where the entries of these runs end up when the `failing` adds of all are refused."""
    world = World(max_entries_per_ledger=entries_per_ledger, min_rollover_time_s=rollover_s)
    adds = [0]

    def status(ledger_id, entry_id):
        adds[0] += 1
        return Status.IO_ERROR if adds[0] in failing else Status.OK

    world.bookie.add_status = status
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        number = 0
        for size in runs:
            how(ledger, *(b"%d" % (number + index) for index in range(size)))
            number += size
            if size % 2:
                await settle()
        await trio.sleep(60)
        failed = [(context, error.server_error) for context, error in ledger.listener.failed]
        return ledger.listener.appended, failed, ledger.state


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.integers(1, 7),
    st.sets(st.integers(1, 40), max_size=6),
    st.sampled_from((0.0, 3600.0)),
)
def test_a_run_ends_up_where_its_entries_would_one_by_one(
    runs, entries_per_ledger, failing, rollover_s
):
    arguments = (runs, entries_per_ledger, failing, rollover_s)

    def of(how):
        return trio.run(
            outcome, how, *arguments, clock=trio.testing.MockClock(autojump_threshold=0)
        )

    assert of(append_run) == of(append)
