"""A run of several processes keeps the tests of a file in one of them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.sharing import SERVERS, group_of

TREE = Path(__file__).resolve().parent.parent
FILES = ("runtime/tests/test_fair_queue.py", "runtime/tests/test_deferred.py")


def test_the_tests_of_a_file_run_in_one_process():
    pytest = (sys.executable, "-m", "pytest", "-vv", "-n", "2", "--dist", "loadfile", *FILES)
    ended = subprocess.run(
        pytest, cwd=TREE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    processes = defaultdict(set)
    for process, file in re.findall(r"\[(gw\d+)\].* PASSED (\S+?)::", ended.stdout):
        processes[file].add(process)
    assert [len(processes[each]) for each in FILES] == [1, 1], ended.stdout


def test_what_judges_the_time_of_servers_is_one_group():
    command_line = group_of("cli/tests/test_command_line.py::test_help")
    assert group_of("tests/crash/test_kill9.py::test_one[a@b]") == command_line == SERVERS
    assert group_of("web/tests/test_dates.py::test_one") == "web/tests/test_dates.py"
