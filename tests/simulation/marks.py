"""What happened in a run that a simulation exists for, and what is going on at the moment.

A mark is a rare case that must occur in some seeds, or else nothing is shown about it. Most are
lines in the logs of production classes. Those that nothing is logged about are noted where they
occur: functions of `PLACES` are wrapped, and do what they did before.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager

import trio

from bookie.testing.sim_disk import SimDisk
from ledgers.recovery import _Recovery
from ledgers.speculation import ReplicaTurns
from tests.simulation.world import current_host

LOGGED = {
    "bookie_replaced": "a writer replaced a bookie",
    "ledger_goes_on_without_a_bookie": "a writer went on without a bookie",
    "ledger_lacks_bookies": "a writer had not enough bookies",
    "ledger_lost": "a writer found its ledger taken by another",
    "ledger_recovered": "a ledger was recovered",
    "ledger_write_failed": "a topic went on in another ledger",
    "topic_fenced": "a topic was fenced",
    "cursor_ledger_lost": "a cursor's ledger was taken by another",
    "adds_wait_for_the_bookie": "a bookie had no room",
    "bookie_avoided": "a bookie was avoided because it failed often",
    "a node of another session is waited for": "a node of a former session was in the way",
    "bundle lost: its node is gone": "a broker lost a bundle",
    "giving up all bundles": "a broker gave up all bundles",
}
"""Marks by the event of a log line."""


class Marks:
    """Of one run."""

    def __init__(self):
        self.counts = Counter()
        self.recovering = {}
        """By ledger: the hosts whose brokers recover it now."""
        self.recovery_began = trio.Event()
        """Replaced, after it is set, with every recovery."""

    def note(self, mark, count=1):
        """It happened."""
        if count:
            self.counts[mark] += count

    def logged(self, event):
        """A line in the log of any process."""
        mark = LOGGED.get(event)
        if mark is not None:
            self.counts[mark] += 1

    async def recover(self, ledger_id, run):
        """The result of a recovery."""
        hosts = self.recovering.setdefault(ledger_id, [])
        hosts.append(current_host.get())
        self.note("two recoveries of a ledger at once", len(hosts) == 2)
        began, self.recovery_began = self.recovery_began, trio.Event()
        began.set()
        try:
            return await run()
        finally:
            hosts.remove(current_host.get())
            if not hosts:
                del self.recovering[ledger_id]


@contextmanager
def marked(marks):
    """Note what happens within the block."""
    run, restart, silence = _Recovery.run, SimDisk.restart, ReplicaTurns.on_silence

    async def noted_run(recovery):
        before = recovery.metadata
        result = await marks.recover(recovery._ledger_id, lambda: run(recovery))
        marks.note("a recovery replaced a bookie", recovery.metadata is not before)
        return result

    def noted_restart(disk, rng, power=None):
        survivor = restart(disk, rng, power)
        lost = sum(
            bytes(inode.visible) != survivor.content(path)
            for path, inode in disk._names.items()
            if path in survivor._names
        )
        marks.note("a crash lost bytes that were not synced", lost)
        marks.note("a crash lost the name of a file", len(disk._names.keys() - survivor._names))
        return survivor

    def noted_silence(turns, now):
        replica = silence(turns, now)
        marks.note("a read was sent to one more bookie", replica is not None)
        return replica

    _Recovery.run, SimDisk.restart = noted_run, noted_restart
    ReplicaTurns.on_silence = noted_silence
    try:
        yield
    finally:
        _Recovery.run, SimDisk.restart, ReplicaTurns.on_silence = run, restart, silence
