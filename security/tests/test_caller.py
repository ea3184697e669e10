"""Who may speak for whom, as observed on Pulsar 4.0.8 with authorization."""

from __future__ import annotations

import pytest

from security.caller import Caller, flaw_of

PROXIES = frozenset({"proxy", "other-proxy"})


@pytest.mark.parametrize(
    ("role", "original", "is_fine", "is_fine_over_http"),
    [
        ("proxy", None, False, False),
        ("proxy", "", False, False),
        ("proxy", " ", False, False),
        ("proxy", "alice", True, True),
        ("proxy", "proxy", False, False),
        ("proxy", "other-proxy", False, False),
        ("alice", None, True, True),
        ("alice", "", True, True),
        ("alice", "bob", False, False),
        ("alice", "proxy", False, False),
        ("alice", "alice", False, True),
    ],
)
def test_roles_that_go_together(role, original, is_fine, is_fine_over_http):
    caller = Caller(role, original)
    assert (flaw_of(caller, PROXIES, equal_is_fine=False) == "") == is_fine
    assert (flaw_of(caller, PROXIES, equal_is_fine=True) == "") == is_fine_over_http
