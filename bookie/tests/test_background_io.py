"""Reads and flushes give way at the device, and their thread has its old class afterwards."""

from __future__ import annotations

import pytest

from bookie import background_io
from bookie.background_io import IDLE, class_of_thread, in_background, settable
from bookie.testing.watched_disk import WatchedDisk
from bookie.tests.conftest import KEY, RecordingSink, entry, whole

needs_classes = pytest.mark.skipif(class_of_thread() is None, reason="no classes here")


@needs_classes
def test_a_call_is_in_the_idle_class_and_its_thread_as_before_afterwards():
    before = class_of_thread()
    assert before != IDLE
    assert in_background(class_of_thread) == IDLE
    assert class_of_thread() == before


@needs_classes
def test_a_call_that_fails_leaves_the_thread_as_it_was():
    before = class_of_thread()
    with pytest.raises(ZeroDivisionError):
        in_background(lambda: 1 // 0)
    assert class_of_thread() == before


@pytest.mark.parametrize(
    ("read", "set_to"), [(0, 0), (4, 0), (2 << 13 | 4, 2 << 13 | 4), (IDLE, IDLE)]
)
def test_the_default_is_set_without_the_level_that_some_systems_report(read, set_to):
    assert settable(read) == set_to


def test_a_system_without_classes_calls_all_the_same(monkeypatch):
    monkeypatch.setattr(background_io, "_calls", lambda: None)
    assert class_of_thread() is None
    assert in_background(lambda: 7) == 7


@needs_classes
async def test_entry_logs_are_read_in_the_idle_class_and_flushed_in_the_usual_one(machine):
    """Another program's reads would hold up a flush in the idle class until adds are refused."""
    seen = []
    machine.disk = WatchedDisk(
        machine.disk, lambda _file, name, _arguments: seen.append((name, class_of_thread()))
    )
    async with machine.running() as bookie:
        sink = RecordingSink()
        bookie.add_entry(1, 0, entry(1, 0), KEY, 0, sink)
        bookie.kick()
        await sink.wait_for(1)
        seen.clear()
        await bookie.checkpoint()
        assert await bookie.read_batch(1, 0, 1, 1 << 20) == [whole(1, 0)]
        assert {io_class for what, io_class in seen if what == "read_at"} == {IDLE}
        flushed = {io_class for what, io_class in seen if what == "sync"}
        assert flushed
        assert IDLE not in flushed
