"""What `pip install` gives: a `vela` that runs, with what it needs and no more."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[1]
_TREE = tomllib.loads((TREE / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = _TREE["project"]
ROOMS = tuple(
    room
    for room in _TREE["tool"]["vela"]["rooms"]
    if room not in _TREE["tool"]["vela"]["not-packed"]
)
FOR_TYPES_ALONE = {"google", "__future__", "_typeshed"}
"""Nothing of these is imported when the program runs, or it is a namespace."""
BUILD_SECONDS_MAX = 300


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~\[ ]", each)[0].lower() for each in requirements}


packages_of_modules = cache(packages_distributions)
"""It reads the list of files of everything that is installed."""


def imported_by(room: str) -> set[str]:
    """Distributions, in lower case, that a room's own modules import from outside the tree."""
    modules: set[str] = set()
    for path in (TREE / room).rglob("*.py"):
        if {"tests", "testing"} & set(path.relative_to(TREE).parts):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                top, _, rest = node.module.partition(".")
                modules.add("google.protobuf" if rest.startswith("protobuf") else top)
    known = packages_of_modules()
    outside = modules - set(sys.stdlib_module_names) - set(ROOMS) - FOR_TYPES_ALONE
    found = {
        "protobuf" if module == "google.protobuf" else known.get(module, [module])[0].lower()
        for module in outside
    }
    return {name.replace("_", "-") for name in found}


TOOLS = {"setuptools", "mypy", "grpcio-tools", "matplotlib"}
"""Imported by `native.compile_hot_modules`, `protocol.generate` and drawings of `vela perf`."""


def test_every_dependency_is_imported_and_every_import_is_a_dependency():
    broker = set().union(*(imported_by(room) for room in ROOMS[:-1]))
    assert broker - TOOLS == names(PROJECT["dependencies"])


def test_protobuf_is_at_least_what_generated_the_modules():
    generated = (TREE / "protocol" / "pulsar_api_pb2.py").read_text(encoding="utf-8")
    version = re.search(r"Protobuf Python Version: ([\d.]+)", generated).group(1)
    assert f"protobuf>={version}" in PROJECT["dependencies"]


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("requirements.lock", ["build"]),
        ("requirements-dev.lock", ["build", "dev"]),
        ("requirements-pipeline.lock", ["build", "pipeline", "pipeline-tests"]),
    ],
)
def test_lock_files_hold_what_the_project_names(lock: str, extras: list[str]):
    locked = set(re.findall(r"^([a-z0-9.-]+)==", (TREE / lock).read_text(), re.MULTILINE))
    wanted = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][name] for name in extras)]
    assert names([each for part in wanted for each in part]) <= locked


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this tree, unpacked; built in a copy, at a path with a space."""
    copy = tmp_path_factory.mktemp("a copy")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(TREE / name, copy)
    for room in ROOMS:
        shutil.copytree(TREE / room, copy / room, ignore=shutil.ignore_patterns("__pycache__"))
    wheels = tmp_path_factory.mktemp("wheels")
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(wheels), str(copy)],
        check=True,
        timeout=BUILD_SECONDS_MAX,
        env={key: value for key, value in os.environ.items() if key != "VELA_WHEEL"},
    )
    [wheel] = wheels.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    place = tmp_path_factory.mktemp("site packages")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(place)
    return place


def run(unpacked: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(unpacked), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        cwd=unpacked.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


def test_a_wheel_holds_no_tests_and_everything_that_is_read_at_run_time(unpacked: Path):
    folders = {part for path in unpacked.rglob("*") for part in path.relative_to(unpacked).parts}
    assert not folders & {"tests", "testing", "compat_tests", "conftest.py"}
    for room in ROOMS:
        python = {path.relative_to(TREE) for path in (TREE / room).rglob("*.py")}
        wanted = {path for path in python if not {"tests", "testing"} & set(path.parts)}
        assert wanted == {path.relative_to(unpacked) for path in (unpacked / room).rglob("*.py")}
    for place in ("settings/upstream_keys.conf", "broker/http/pulsar_endpoints.txt"):
        assert (unpacked / place).is_file()


def test_an_installed_vela_tells_its_version(unpacked: Path):
    assert run(unpacked, "-m", "cli", "--version") == f"vela {PROJECT['version']}\n"
    place = run(unpacked, "-c", "import broker; print(broker.__file__)")
    assert place.startswith(str(unpacked))


def test_an_installed_vela_uses_the_compiled_modules_of_its_own_sources(unpacked: Path):
    ask = "from native.hot_modules import use_compiled; print(use_compiled())"
    assert "make wheel" in run(unpacked, "-c", ask)
    fingerprint = "from native.hot_modules import fingerprint; print(fingerprint(), end='')"
    of_these = run(unpacked, "-c", fingerprint)
    compiled = unpacked / "vela_compiled"
    compiled.mkdir()
    try:
        (compiled / "fingerprint").write_text("of other sources")
        assert "were made from others" in run(unpacked, "-c", ask)
        (compiled / "fingerprint").write_text(of_these)
        assert run(unpacked, "-c", ask) == "with compiled hot modules\n"
    finally:
        shutil.rmtree(compiled)


def test_the_sources_of_the_tree_and_of_a_wheel_have_one_fingerprint(unpacked: Path):
    """Else the compiled modules in a wheel would never be used."""
    from native.hot_modules import fingerprint

    code = "from native.hot_modules import fingerprint; print(fingerprint(), end='')"
    assert run(unpacked, "-c", code) == fingerprint()
