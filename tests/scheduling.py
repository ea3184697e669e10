"""Gives the groups of `tests/sharing.py` to pytest-xdist.

Its own groups by marker (`--dist loadgroup`) become a part of a test's node id, which pytest 9.2
does not let plugins change: the tests of a group would then run in any process.
"""

from __future__ import annotations

from typing import final

from xdist.scheduler import LoadScopeScheduling

from tests.sharing import group_of


@final
class GroupScheduling(LoadScopeScheduling):
    """Hands out a group at a time."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
