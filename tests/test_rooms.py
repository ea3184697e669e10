"""The plan of the house, kept by a test: who may import whom, what pure means, sizes, links.

- Rooms import downwards only, as the list of rooms in pyproject.toml says.
- Modules import each other in no circle.
- A module whose essay says "Pure." is pure, and so is everything it needs: no event loop, socket,
  clock, chance, file or thread. The whole of protocol/ is.
- Files and functions stay short enough to be read.
- Links between pages lead somewhere.
"""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

TREE: Final = Path(__file__).resolve().parent.parent
ROOMS: Final = tomllib.loads((TREE / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["vela"][
    "rooms"
]
BELOW: Final[dict[str, frozenset[str]]] = {
    room: frozenset(ROOMS if below == ["*"] else below) for room, below in ROOMS.items()
}
"""Which rooms a room may use besides itself."""

BROKER_FLOORS: Final = (
    frozenset({"ground"}),
    frozenset({"peers"}),
    frozenset({"tenancy"}),
    frozenset({"configuration", "limits"}),
    frozenset({"net", "managed_ledger"}),
    frozenset({"topics", "cluster"}),
    frozenset({"doors", "http"}),
    frozenset({"assembly"}),
)
"""The rooms of broker/, from the ground up: each uses only those on floors below its own."""
TOPICS_FLOORS: Final = (
    frozenset({"subscription"}),
    frozenset({"broadcast"}),
    frozenset({"topic"}),
    frozenset({"follow", "topic_lists", "enforcement"}),
    frozenset({"service"}),
)
"""The same within broker/topics."""
TENANCY_FLOORS: Final = (
    frozenset({"policies"}),
    frozenset({"namespaces"}),
    frozenset({"schemas", "authorization", "change_events"}),
)
"""The same within broker/tenancy."""

IMPURE: Final = frozenset(
    {"asyncio", "os", "pathlib", "random", "secrets", "socket", "threading", "time", "trio"}
)
PROTOCOL_TOOLS: Final = frozenset({"protocol.generate"})
"""Part of the room, but run by hand: it reads and writes files."""
FILE_LINES_MAX: Final = 700
FUNCTION_LINES_MAX: Final = 70

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*?) *#*$", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def _python_files(room: str) -> list[Path]:
    return [
        path for path in sorted((TREE / room).rglob("*.py")) if not path.name.endswith("_pb2.py")
    ]


def _name(path: Path) -> str:
    parts = path.relative_to(TREE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_test(module: str) -> bool:
    return {"tests", "testing", "conftest"} & set(module.split(".")) != set()


FILES: Final = [path for room in BELOW for path in _python_files(room)]
MODULES: Final = {_name(path): path for path in FILES}


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Those within a statement, at any depth. Expressions hold none, and are most of a tree."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(node, name, ()):
            yield each
            yield from _statements(each)


@cache
def imports_of(path: Path, *, for_types_too: bool) -> frozenset[str]:
    """Dotted names of what a file imports, anywhere in it."""
    tree = _tree(path)
    left_out: set[ast.AST] = set()
    for node in _statements(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            left_out |= {inner for each in node.body for inner in (each, *_statements(each))}
    found: set[str] = set()
    for node in _statements(tree):
        if not for_types_too and node in left_out:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, f"{path}: relative imports hide where they lead"
            assert node.level == 0, f"{path}: relative imports hide where they lead"
            found.add(node.module)
            # `from package import module` imports a module, too.
            both = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= both & MODULES.keys()
    return frozenset(found)


def _is_pure(module: str) -> bool:
    if module.startswith("protocol."):
        return module not in PROTOCOL_TOOLS
    essay = ast.get_docstring(_tree(MODULES[module])) or ""
    return re.search(r"\bPure\b[.:]|\bPure codec\b", essay) is not None


PURE: Final = [module for module in MODULES if _is_pure(module) and not _is_test(module)]


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_rooms_import_downwards_only(path: Path) -> None:
    room = path.relative_to(TREE).parts[0]
    used = {name.partition(".")[0] for name in imports_of(path, for_types_too=True)}

    assert used & BELOW.keys() <= BELOW[room] | {room}


HOUSES: Final = {
    "broker": BROKER_FLOORS,
    "broker.topics": TOPICS_FLOORS,
    "broker.tenancy": TENANCY_FLOORS,
}


def _room_in(house: str, module: str) -> str | None:
    """The room of a house (a package with floors) that a module belongs to."""
    if not module.startswith(f"{house}."):
        return None
    return module[len(house) + 1 :].partition(".")[0]


FLOORED: Final = [
    (house, path)
    for house in HOUSES
    for path in FILES
    if _room_in(house, _name(path)) is not None and not _is_test(_name(path))
]


@pytest.mark.parametrize(("house", "path"), FLOORED, ids=lambda each: str(each).split("/")[-1])
def test_rooms_of_a_house_import_downwards_only(house: str, path: Path) -> None:
    """Imports for types count: a circle is one whatever it is used for."""
    floor_of = {room: floor for floor, rooms in enumerate(HOUSES[house]) for room in rooms}
    room = _room_in(house, _name(path))
    assert room in floor_of, f"{room} is on no floor of {house}"
    used = {_room_in(house, name) for name in imports_of(path, for_types_too=True)}
    others = {each for each in used if each is not None and each != room}

    too_high = {each for each in others if floor_of.get(each, len(HOUSES[house])) >= floor_of[room]}
    assert not too_high, f"{room} must not know {', '.join(sorted(too_high))}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Within a room, too, and imports for types count."""
    uses = {
        module: imports_of(path, for_types_too=True) & MODULES.keys()
        for module, path in MODULES.items()
        if not _is_test(module)
    }
    placed: set[str] = set()
    while free := {each for each in uses if each not in placed and uses[each] - {each} <= placed}:
        placed |= free
    # What is left is in a circle or uses one. Leave out what nothing else in it uses.
    left = uses.keys() - placed
    while ends := {each for each in left if not any(each in uses[other] for other in left)}:
        left -= ends
    assert not left


def test_the_list_of_rooms_is_whole() -> None:
    folders = {path.parent.name for path in TREE.glob("*/__init__.py")}

    assert folders | {"tests"} == ROOMS.keys() | {"tests"}


def test_what_is_pure_is_known_to_be() -> None:
    """So that the next test does not pass for lack of modules."""
    expected = {
        "autorecovery.fragments",
        "bookie.entry_log_format",
        "bookie.journal_format",
        "bookie.ledger_state",
        "bookie.write_cache",
        "broker.managed_ledger.ack_state",
        "broker.managed_ledger.cursor_record",
        "broker.managed_ledger.trimming",
        "metadata.node_keys",
        "protocol.frames",
        "protocol.bookkeeper.digests",
        "rocks.log_format",
        "rocks.manifest",
    }
    assert expected <= set(PURE)


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_need_nothing_impure(module: str) -> None:
    seen: set[str] = set()
    pending = [module]
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        imported = imports_of(MODULES[current], for_types_too=False)
        impure = {name for name in imported if name.partition(".")[0] in IMPURE}
        assert not impure, f"{module} is pure, but {current} imports {', '.join(sorted(impure))}"
        pending += [name for name in imported if name in MODULES]


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_files_and_functions_are_short(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= FILE_LINES_MAX, f"{lines} lines: split it"

    too_long = [
        f"{node.name} has {node.end_lineno - node.lineno + 1} lines"
        for node in _statements(_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert not too_long


PAGES: Final = [
    *sorted(TREE.glob("*.md")),
    *sorted((TREE / "docs").rglob("*.md")),
    *(page for room in BELOW for page in sorted((TREE / room).rglob("DESIGN.md"))),
]


def _anchors(page: Path) -> set[str]:
    """The fragments that a page's headings make, as code hosts make them."""
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text)]
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TREE)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    dead = []
    for link in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        there = (page.parent / target).resolve() if target else page
        if not there.exists() or (anchor and there.is_file() and anchor not in _anchors(there)):
            dead.append(link)
    assert not dead
