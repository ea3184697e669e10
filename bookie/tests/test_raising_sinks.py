"""A sink that raises: all other sinks are answered, and the bookie stops in good order."""

from __future__ import annotations

import pytest
import trio
from structlog.testing import capture_logs

from bookie.api import Status
from bookie.errors import DiskFailed
from bookie.tests.conftest import KEY, RecordingSink, entry


class RaisingSink:
    """Raises in one of its methods, or in both."""

    def __init__(self, where=("on_add_replies", "on_replies_end")):
        self._where = where

    def on_add_replies(self, status, ledger_id, first_entry_id, count):
        if "on_add_replies" in self._where:
            raise ValueError("a bug in the sink")

    def on_replies_end(self):
        if "on_replies_end" in self._where:
            raise ValueError("a bug in the sink")


def add(bookie, ledger_id, sink, entry_id=0):
    bookie.add_entry(ledger_id, entry_id, entry(ledger_id, entry_id), KEY, 0, sink)


@pytest.mark.parametrize("where", ["on_add_replies", "on_replies_end"])
async def test_the_rest_of_the_group_is_answered_once_and_the_bookie_stops(machine, where):
    before, after = RecordingSink(), RecordingSink()
    with pytest.RaisesGroup(pytest.RaisesExc(DiskFailed, match="a bug in the sink")):
        async with machine.running() as bookie:
            add(bookie, 1, before)
            add(bookie, 2, RaisingSink((where,)))
            add(bookie, 3, after)
            bookie.kick()
            await trio.sleep_forever()
    assert (before.replies, before.ends) == ([(0, 1, 0)], 1)
    assert (after.replies, after.ends) == ([(0, 3, 0)], 1)


async def test_a_failing_bookie_answers_everybody_behind_a_sink_that_raises(machine):
    after = RecordingSink()
    with capture_logs() as logs, pytest.RaisesGroup(pytest.RaisesExc(DiskFailed, match="sync")):
        async with machine.running() as bookie:
            machine.disk.sync_fails = True
            for ledger_id in (1, 2):
                add(bookie, ledger_id, RaisingSink())
            add(bookie, 3, after)
            await trio.sleep_forever()
    assert (after.replies, after.ends) == ([(Status.IO_ERROR, 3, 0)], 1)
    assert [line["ledger_id"] for line in logs if "ledger_id" in line] == [1, 2]


async def test_a_refusal_to_a_sink_that_raises_is_logged_and_harms_nobody(machine):
    sink = RecordingSink()
    async with machine.running() as bookie:
        pass
    with capture_logs() as logs:
        add(bookie, 1, RaisingSink())
        add(bookie, 2, sink)
        await sink.wait_for(1)
    assert sink.replies == [(Status.IO_ERROR, 2, 0)]
    assert [(line["log_level"], line["ledger_id"]) for line in logs] == [("error", 1)]
