"""Rules for the room as a whole."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from protocol import generate

ROOM = Path(generate.__file__).parent
FORBIDDEN = {"trio", "socket", "time", "random", "os", "asyncio", "threading", "pathlib", "io"}
MODULES = [
    path
    for path in sorted(ROOM.rglob("*.py"))
    if "tests" not in path.parts and not path.name.endswith("_pb2.py") and path.stem != "generate"
]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOM)))
def test_modules_are_pure(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module.split(".")[0])
    assert not imported & FORBIDDEN
    assert not imported & {"bookie", "broker", "pipeline"}


def test_generated_files_are_current():
    assert generate.stale_files() == []


def test_check_fails_for_a_definition_that_was_changed(tmp_path):
    room = tmp_path / "room"
    room.mkdir()
    (room / "SomeThing.proto").write_text('syntax = "proto2"; message M {}')
    assert [path.name for path in generate.stale_files(room)] == [
        "some_thing_pb2.py",
        "some_thing_pb2.pyi",
    ]
    assert generate.main(["--check"]) == 0
