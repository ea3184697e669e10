"""Which tests stay together when several processes share a run (`pytest -n 3 --dist loadfile`).

The tests of a file run in one process and in their order, so that the fixtures of a module are made
once. Tests that start servers and judge how long these take stay together as well: they run one
after the other, so that two of them never share the processors. `tests/scheduling.py` gives the
groups to pytest-xdist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

SCENARIOS: Final = "scenarios"
"""The marker of what needs the pair of servers of the comparison."""
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


def put_longest_first(items: list[pytest.Item]) -> None:
    """In place; what takes as long stays in its order."""
    items.sort(key=lambda item: _place(_file(item.nodeid)))


def group_of(node_id: str) -> str:
    """The name of the group of a test; its node id begins with its path below the root."""
    file = _file(node_id)
    if file.startswith(tuple(OF_SERVERS)) or file.rpartition("/")[2] in OF_SERVERS_BY_NAME:
        return SERVERS
    return file


def _file(node_id: str) -> str:
    return node_id.partition("::")[0]


def _place(file: str) -> int:
    starts = (place for place, start in enumerate(LONGEST) if file.startswith(start))
    return next(starts, len(LONGEST))
