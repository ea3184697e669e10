"""A compiled build is used only for the sources it was made from, and never half."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys

import pytest

from native import hot_modules


@pytest.fixture
def build(tmp_path, monkeypatch):
    """An empty build directory in place of the real one."""
    monkeypatch.setattr(hot_modules, "BUILD_DIRECTORY", tmp_path)
    monkeypatch.setattr(hot_modules, "FINGERPRINT_FILE", tmp_path / "fingerprint")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delenv(hot_modules.SWITCH, raising=False)
    return tmp_path


def test_every_hot_module_exists():
    for name in hot_modules.HOT_MODULES:
        assert hot_modules.source_path(name).is_file(), name
        importlib.import_module(name)


def test_a_loop_that_gives_way_to_other_threads_is_not_compiled():
    """Compiled code does so nowhere between its calls."""
    assert "bookie.freed_entries" not in hot_modules.HOT_MODULES


def names_set_by(path):
    """What a file of tests replaces in modules, as `module.NAME`."""
    text = path.read_text(encoding="utf-8")
    if "setattr(" not in text:
        return
    tree = ast.parse(text)
    named = {
        each.asname or each.name: f"{node.module}.{each.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "setattr":
            match node.args:
                case [ast.Name(owner), ast.Constant(name), _] if owner in named:
                    yield f"{named[owner]}.{name}"
                case [ast.Constant(str(name)), _]:
                    yield name


def copied_by_compiled_code(module):
    """Names of a hot module that compiled code does not look up: constants, functions and classes,
    its own and those of other hot modules."""
    for node in ast.parse(hot_modules.source_path(module).read_text(encoding="utf-8")).body:
        match node:
            case ast.AnnAssign(ast.Name(name)) if ast.unparse(node.annotation).startswith("Final"):
                yield f"{module}.{name}"
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                yield f"{module}.{name}"
            case ast.ImportFrom(of) if of in hot_modules.HOT_MODULES:
                yield from (f"{module}.{each.asname or each.name}" for each in node.names)


def test_tests_set_nothing_of_which_compiled_code_has_a_copy():
    copied = {each for name in hot_modules.HOT_MODULES for each in copied_by_compiled_code(name)}
    files = [
        path for room in hot_modules.ROOMS for path in (hot_modules.ROOT / room).rglob("test_*.py")
    ]
    replaced = {each for path in files for each in names_set_by(path)}
    assert "runtime.readers.TURN_SECONDS" in replaced
    assert "runtime.readers.wait_of_loop" in copied
    assert sorted(copied & replaced) == []


@pytest.mark.parametrize("name", hot_modules.HOT_MODULES)
def test_no_coroutine_of_a_hot_module_deletes_a_local(name):
    """`make compile` fails on it; everything else that mypyc refuses needs a minute to find."""
    tree = ast.parse(hot_modules.source_path(name).read_text(encoding="utf-8"))
    deletions = [
        f"line {node.lineno}"
        for coroutine in ast.walk(tree)
        if isinstance(coroutine, ast.AsyncFunctionDef)
        for node in ast.walk(coroutine)
        if isinstance(node, ast.Delete) and isinstance(node.targets[0], ast.Name)
    ]
    assert deletions == [], "assign it to `_` instead"


def _is_none_test(node):
    return isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot)


def _optional_attributes(tree):
    return {
        node.target.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Attribute)
        and "None" in ast.unparse(node.annotation)
    }


def _trusted_over_an_await(coroutine, attributes):
    """Reads of optional attributes that were known to be set only before the last await."""
    awaits = [node.lineno for node in ast.walk(coroutine) if isinstance(node, ast.Await)]
    tests = {id(node.left) for node in ast.walk(coroutine) if _is_none_test(node)}
    known, reads = {}, []
    for node in ast.walk(coroutine):
        if isinstance(node, ast.Attribute) and node.attr in attributes:
            if isinstance(node.ctx, ast.Store) or id(node) in tests:
                known.setdefault(node.attr, []).append(node.lineno)
            else:
                reads.append(node)
    for node in reads:
        last = max((line for line in awaits if line < node.lineno), default=0)
        lines = [line for line in known.get(node.attr, []) if line < node.lineno]
        if last and lines and max(lines) <= last:
            yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("name", hot_modules.HOT_MODULES)
def test_no_coroutine_of_a_hot_module_trusts_an_optional_attribute_over_an_await(name):
    """Another task may have set it to None. Sources may allow for that with `or`, but mypy takes it
    for set, so compiled code raises TypeError."""
    tree = ast.parse(hot_modules.source_path(name).read_text(encoding="utf-8"))
    attributes = _optional_attributes(tree)
    found = [
        each
        for coroutine in ast.walk(tree)
        if isinstance(coroutine, ast.AsyncFunctionDef)
        for each in _trusted_over_an_await(coroutine, attributes)
    ]
    assert found == [], "read it in a function that does not await"


@pytest.mark.parametrize("name", hot_modules.HOT_MODULES)
def test_a_class_of_a_hot_module_that_has_a_length_says_when_it_is_true(name):
    """For mypyc an attribute that is such an object or None is true whenever it is not None, so an
    empty line of waiting adds held up every further one."""
    tree = ast.parse(hot_modules.source_path(name).read_text(encoding="utf-8"))
    silent = [
        each.name
        for each in ast.walk(tree)
        if isinstance(each, ast.ClassDef)
        and "__bool__" not in (methods := {getattr(part, "name", "") for part in each.body})
        and "__len__" in methods
    ]
    assert silent == [], "add __bool__"


def test_without_a_build_the_sources_run(build):
    assert "make compile" in hot_modules.use_compiled()


def test_a_build_of_other_sources_is_not_used(build):
    before = list(sys.meta_path)
    (build / "fingerprint").write_text("of something else")
    assert "were made from others" in hot_modules.use_compiled()
    assert sys.meta_path == before


def test_a_build_is_not_used_once_a_hot_module_is_imported(build):
    importlib.import_module("protocol.frames")
    (build / "fingerprint").write_text(hot_modules.fingerprint())
    assert "already imported" in hot_modules.use_compiled()


def test_it_can_be_turned_off(build, monkeypatch):
    (build / "fingerprint").write_text(hot_modules.fingerprint())
    monkeypatch.setenv(hot_modules.SWITCH, "0")
    assert "VELA_COMPILED=0" in hot_modules.use_compiled()


def test_programs_that_import_parts_get_the_extension_and_no_hot_module(build):
    (build / "fingerprint").write_text(hot_modules.fingerprint())
    place = hot_modules.extension_path(hot_modules.EXTENSION)
    place.parent.mkdir(parents=True)
    place.touch()

    hot_modules.use_extension()

    finder = sys.meta_path[0]
    assert finder.find_spec(hot_modules.EXTENSION).origin == str(place)
    assert finder.find_spec(hot_modules.HOT_MODULES[0]) is None


@pytest.mark.parametrize("switch", ["0", "1"])
def test_an_extension_that_is_off_or_of_other_sources_is_not_imported(build, monkeypatch, switch):
    before = list(sys.meta_path)
    monkeypatch.setenv(hot_modules.SWITCH, switch)
    of_these = hot_modules.fingerprint()
    (build / "fingerprint").write_text(of_these if switch == "0" else "of something else")

    hot_modules.use_extension()

    assert sys.meta_path == before


def test_the_command_line_decides_before_it_imports_a_hot_module():
    code = (
        "import sys; import cli.commands, broker.configuration.config_file;"
        "import native.hot_modules as h;"
        "print([name for name in h.HOT_MODULES if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
