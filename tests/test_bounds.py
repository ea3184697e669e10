"""A bound of real time that only ends a hanging test is not reached on a busy machine."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

from runtime.testing.conditions import SECONDS_MAX

TREE: Final = Path(__file__).resolve().parent.parent
ROOMS_ELSEWHERE: Final = {"compat_tests", "bench", "build", "dist"}
VIRTUAL: Final = ("autojump", "MockClock", "mock_clock")
"""A test on a clock of its own may bound that by whatever it likes."""
PLACES: Final = {"create_connection": 1, "fail_after": 0}
"""Where the bound is, if it has no name."""
BOUNDED: Final = {*PLACES, "HTTPConnection", "communicate", "urlopen"}


def _files() -> list[Path]:
    found = TREE.glob("*/**/*.py")
    return sorted(each for each in found if _is_looked_at(each.relative_to(TREE)))


def _is_looked_at(path: Path) -> bool:
    """Tests of `make test` and what those of a room share."""
    room, folder, name = path.parts[0], path.parts[-2], path.parts[-1]
    if room.startswith(".") or room in ROOMS_ELSEWHERE or path.parts[:2] == ("tests", "pipeline"):
        return False
    return name.startswith("test_") or (folder == "tests" and room != "tests")


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _bounds(call: ast.Call) -> list[float]:
    given = [each.value for each in call.keywords if each.arg == "timeout"]
    place = PLACES.get(_name(call), len(call.args))
    given += call.args[place : place + 1]
    return [
        each.value
        for each in given
        if isinstance(each, ast.Constant) and isinstance(each.value, int | float)
    ]


def _is_short(call: ast.Call) -> bool:
    name = _name(call)
    if name == "AsyncClient":  # five seconds, unless it is told another time or asks in memory
        return not {"timeout", "transport", None} & {each.arg for each in call.keywords}
    return name in BOUNDED and any(each < SECONDS_MAX for each in _bounds(call))


def _short_bounds(text: str) -> list[str]:
    return [
        f"{call.lineno}: {ast.unparse(call)[:80]}"
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and _is_short(call)
    ]


def test_bounds_of_real_time_are_at_least_a_minute() -> None:
    files = {each: each.read_text(encoding="utf-8") for each in _files()}
    assert len(files) > 300
    short = {
        str(each.relative_to(TREE)): found
        for each, text in files.items()
        if not any(word in text for word in VIRTUAL) and (found := _short_bounds(text))
    }
    assert short == {}


@pytest.mark.parametrize(
    ("text", "is_short"),
    [
        ("trio.fail_after(5)", True),
        ("trio.fail_after(SECONDS_MAX)", False),
        ("socket.create_connection(place, 10.0)", True),
        ("urlopen(url, timeout=120)", False),
        ("httpx.AsyncClient(verify=context)", True),
        ("httpx.AsyncClient(transport=transport)", False),
    ],
)
def test_short_bounds_are_found(text: str, is_short: bool) -> None:
    assert bool(_short_bounds(text)) is is_short
