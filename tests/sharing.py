"""Which tests stay together when several processes share a run (`pytest -n 2 --dist loadgroup`).

The tests of a file run in one process and in their order, so that the fixtures of a module are made
once. Two groups of files stay together as well:

* Tests that start servers and judge how long these take. They run one after the other, so that two
  of them never share the processors.
* Scenarios of stock clients. They share one pair of servers, and their results fill one matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

SCENARIOS: Final = "scenarios"
"""The marker and the group of what needs the pair of servers of the comparison."""
SERVERS: Final = "servers"
"""The group of what starts servers and looks at the clock."""
OF_SERVERS: Final[Sequence[str]] = (
    "tests/crash/",
    "tests/bad_input/",
    "tests/damage/",
    "tests/cluster_faults/",
    "tests/admin_reads/",
    "tests/test_server_process.py",
)
"""Starts of paths."""
OF_SERVERS_BY_NAME: Final = frozenset({"test_command_line.py"})
"""Names of further files, in whatever room they are."""
LONGEST: Final[Sequence[str]] = (
    "tests/crash/",
    "tests/simulation/",
    "tests/bad_input/",
    "tests/damage/",
    "tests/",
    "broker/assembly/tests/",
    "cli/tests/",
    "metadata/",
    "bookie/",
)
"""Starts of paths that are handed out first, so that no process ends long after the others."""
_PAIRS: Final = frozenset({"servers", "own_servers"})


def mark_scenarios(items: list[pytest.Item]) -> None:
    """Mark all tests of the files that play scenarios, or use the pair of servers."""
    files = {each.path for each in items if each.get_closest_marker("client") or _uses_pair(each)}
    for item in items:
        if item.path in files:
            item.add_marker(SCENARIOS)


def _uses_pair(item: pytest.Item) -> bool:
    return not _PAIRS.isdisjoint(getattr(item, "fixturenames", ()))


def share(items: list[pytest.Item]) -> None:
    """Give each test the name of its group, and put the longest first."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=lambda item: _place(_file(item)))


def _group(item: pytest.Item) -> str:
    file = _file(item)
    if item.get_closest_marker(SCENARIOS):
        return SCENARIOS
    if file.startswith(tuple(OF_SERVERS)) or file.rpartition("/")[2] in OF_SERVERS_BY_NAME:
        return SERVERS
    return file


def _file(item: pytest.Item) -> str:
    """Below the root of the project."""
    return item.nodeid.partition("::")[0]


def _place(file: str) -> int:
    starts = (place for place, start in enumerate(LONGEST) if file.startswith(start))
    return next(starts, len(LONGEST))
