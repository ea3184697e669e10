"""A process that is not let run is seen to wait, and one that sleeps is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.cluster_faults.cpu_waits import CpuWaits, waited_seconds

BUSY_SECONDS = 0.5
pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/schedstat"), reason="this system does not tell"
)


def test_two_busy_processes_on_one_cpu_wait_for_each_other() -> None:
    cpu = min(os.sched_getaffinity(0))
    work = f"import os; os.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", work]) for _ in range(2)]
    try:
        waits = CpuWaits(each.pid for each in busy)
        end = time.monotonic() + 60.0
        while waits.longest_seconds() < BUSY_SECONDS:
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        for each in busy:
            each.kill()
            each.wait()
    assert waits.longest_seconds() == 0.0, "they are gone"


def test_a_process_that_is_gone_has_not_waited() -> None:
    assert waited_seconds(2**22 + 1) == 0.0
