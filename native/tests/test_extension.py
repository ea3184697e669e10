"""The extension as a whole."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from typing import TYPE_CHECKING

import pytest

from native.build import COMPILER_FLAGS, SOURCE_DIRECTORY
from native.tests.conftest import PURE

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

SOURCES = sorted(SOURCE_DIRECTORY.iterdir())
PARTS = [path for path in SOURCES if path.suffix == ".c"]
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100
STRICT = (
    *("-Werror", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Wcast-align", "-Wvla"),
    *("-Wstrict-prototypes", "-fsyntax-only"),
)
"""A number that silently becomes smaller, or negative, is how a length passes the end of a buffer.
"""


def functions_of(path: Path) -> list[str]:
    """The text of each function, from the line with its name to the brace that closes it."""
    pattern = r"^\w[^\n;={]*\([^;{]*\) \{$.*?^\}$"
    return re.findall(pattern, path.read_text(), re.MULTILINE | re.DOTALL)


def name_of(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_sources_and_their_functions_are_short(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= FILE_LINES_MAX
    assert max(map(len, lines)) <= COLUMNS_MAX
    for function in functions_of(path):
        assert function.count("\n") < FUNCTION_LINES_MAX, function.partition("(")[0]


def test_functions_are_found_in_sources() -> None:
    found = {path.name: len(functions_of(path)) for path in PARTS}
    assert all(found.values()), found
    [read_sends] = [
        each
        for each in functions_of(SOURCE_DIRECTORY / "sends.c")
        if each.startswith("PyObject *read_sends(")
    ]
    assert read_sends.endswith("\n}")


@pytest.mark.parametrize("path", PARTS, ids=name_of)
def test_each_part_begins_with_what_it_owns_and_compiles_by_itself_under_strict_warnings(
    extension: ModuleType, path: Path
) -> None:
    del extension  # without a compiler, it skips
    assert path.read_text().startswith("/* ")
    command = [os.environ.get("CC", "cc"), *COMPILER_FLAGS, *STRICT]
    python = sysconfig.get_paths()["include"]
    found = subprocess.run(
        [*command, "-isystem", python, str(path)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr


def test_each_function_has_a_twin_in_python(extension: ModuleType) -> None:
    functions = {name for name in vars(extension) if not name.startswith("_")}
    twins = {name for part in PURE.values() for name in vars(part)}
    assert functions <= twins
