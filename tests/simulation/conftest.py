"""What the tests in this process need of it."""

from __future__ import annotations

import pytest

import bookie.journal


@pytest.fixture
def from_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation puts its own clock and chance into modules, which compiled ones do not allow."""
    if not bookie.journal.__file__.endswith(".py"):
        pytest.skip("a simulation needs modules that are not compiled")
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # nothing here depends on it
