"""Free memory goes back to the kernel, in a process of its own: its allocator is the object."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.free_memory import ARENAS_MAX, GROWTH_MAX_BYTES, GROWTH_MIN_BYTES, Growth

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the allocator is glibc's")
TREE = Path(__file__).parents[2]

ARENAS = """
import threading
from runtime.free_memory import tune_allocator

if {limited}:
    tune_allocator()
kept, everyone = [], threading.Barrier(9)

def use():
    everyone.wait()
    for _ in range(200):
        kept.append(bytes(5_000))
    everyone.wait()

threads = [threading.Thread(target=use) for _ in range(8)]
for each in threads:
    each.start()
everyone.wait()
everyone.wait()
ARENA = 64 << 20  # glibc aligns each but the first to its size
maps = [line.split() for line in open("/proc/self/maps")]
starts = [int(fields[0].split("-")[0], 16) for fields in maps if len(fields) == 5]
print(sum(start % ARENA == 0 for start in starts))
"""

READING = """
import os
import resource
import threading
from runtime.free_memory import tune_allocator

if {tuned}:
    tune_allocator()
MB, ENTRY = 1 << 20, 100_000

def read():
    data = os.pread(zeros, MB, 0)
    return [data[at : at + ENTRY] for at in range(0, MB, ENTRY)]

def use():
    read()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(30):
        runs = [read() for _ in range(2)]
        del runs
    print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 30)

zeros = os.open("/dev/zero", os.O_RDONLY)
reader = threading.Thread(target=use)
reader.start()
reader.join()
"""

FREED = """
import trio
from trio.testing import wait_all_tasks_blocked
from runtime.free_memory import resident_bytes, return_free_memory

async def main():
    async with trio.open_nursery() as nursery:
        if {returned}:
            nursery.start_soon(return_free_memory, 0.02)
        await wait_all_tasks_blocked()
        while trio.to_thread.current_default_thread_limiter().borrowed_tokens:
            await trio.sleep(0.01)
        await wait_all_tasks_blocked()  # it counts growth from here
        blocks = [bytes(5_000) for _ in range(6_000)]
        kept = blocks[::20]
        grown = resident_bytes()
        del blocks
        with trio.move_on_after(60 if {returned} else 0.2):
            while grown - resident_bytes() < 15_000_000:
                await trio.sleep(0.02)
        print(grown - resident_bytes() >= 15_000_000)
        nursery.cancel_scope.cancel()

trio.run(main)
"""


def output(program, **values):
    run = subprocess.run(
        [sys.executable, "-c", program.format(**values)],
        capture_output=True,
        text=True,
        check=True,
        cwd=TREE,
        timeout=120,
    )
    return run.stdout.strip()


def test_threads_do_not_get_an_arena_each():
    limited, unlimited = (int(output(ARENAS, limited=limited)) for limited in (True, False))
    assert limited < ARENAS_MAX
    assert unlimited > limited, "or this test shows nothing"


def test_the_pages_of_a_backlog_are_used_again():
    tuned, untuned = (int(output(READING, tuned=tuned)) for tuned in (True, False))
    assert tuned < 40
    assert untuned > 200, "or this test shows nothing"


def test_pages_that_a_burst_leaves_free_are_returned():
    assert output(FREED, returned=True) == "True"
    assert output(FREED, returned=False) == "False", "or this test shows nothing"


@given(st.lists(st.integers(0, 4 * GROWTH_MAX_BYTES), min_size=1))
def test_only_a_growth_that_takes_little_time_is_acted_on(sizes):
    growth = Growth(base := sizes[0])
    for size in sizes:
        if growth.is_worth_while(size):
            assert GROWTH_MIN_BYTES <= size - base <= GROWTH_MAX_BYTES
            growth.measured(size)
            base = size
        elif size < base or size - base > GROWTH_MAX_BYTES:
            base = size
