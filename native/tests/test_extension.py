"""The extension as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from native.build import SOURCE_DIRECTORY
from native.tests.conftest import PURE

if TYPE_CHECKING:
    from types import ModuleType

LINES_MAX = 500


def test_each_source_stays_short_enough_to_be_checked_by_eye() -> None:
    for path in SOURCE_DIRECTORY.iterdir():
        assert len(path.read_text().splitlines()) <= LINES_MAX, path.name


def test_each_function_has_a_twin_in_python(extension: ModuleType) -> None:
    functions = {name for name in vars(extension) if not name.startswith("_")}
    twins = {name for part in PURE.values() for name in vars(part)}
    assert functions <= twins
