"""Commands run in the process of the tests, whose logging must stay as it is."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def unchanged_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loggers that are used while logs go to stderr would keep that for all later tests."""
    monkeypatch.setattr("inspection.command.log_to_stderr", lambda _level: None)
