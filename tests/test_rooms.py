"""The plan of the house, kept by a test: who may import whom, what pure means, sizes, links.

- Rooms import downwards only: native <- protocol, rocks, runtime, settings <- security <- web,
  metadata <- bookie <- ledgers <- autorecovery, inspection <- broker <- pipeline, compat_tests.
- Modules import each other in no circle.
- A module whose essay says "Pure." is pure, and so is everything it needs: no event loop, socket,
  clock, chance, file or thread. The whole of protocol/ is.
- Files and functions stay short enough to be read.
- Links between pages lead somewhere.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

TREE: Final = Path(__file__).resolve().parent.parent
BELOW: Final[dict[str, frozenset[str]]] = {
    "native": frozenset(),
    "protocol": frozenset({"native"}),
    "rocks": frozenset(),
    "runtime": frozenset(),
    "settings": frozenset(),
    "security": frozenset({"runtime", "settings"}),
    "web": frozenset({"runtime", "security"}),
    "metadata": frozenset({"protocol", "rocks", "security", "settings"}),
    "bookie": frozenset(
        {"native", "protocol", "rocks", "runtime", "settings", "security", "web", "metadata"}
    ),
    "ledgers": frozenset({"native", "protocol", "runtime", "security", "metadata", "bookie"}),
    "autorecovery": frozenset(
        {"protocol", "runtime", "settings", "security", "web", "metadata", "bookie", "ledgers"}
    ),
    "inspection": frozenset(
        {"protocol", "rocks", "runtime", "settings", "security", "metadata", "bookie", "ledgers"}
    ),
    "broker": frozenset(
        {
            "native",
            "protocol",
            "rocks",
            "runtime",
            "settings",
            "security",
            "web",
            "metadata",
            "bookie",
        }
        | {"ledgers", "autorecovery", "inspection"}
    ),
    "pipeline": frozenset({"native", "protocol", "bookie", "broker"}),
    "compat_tests": frozenset(
        {"protocol", "runtime", "security", "metadata", "bookie", "ledgers", "autorecovery"}
        | {"broker", "pipeline", "web"}
    ),
    "tests": frozenset(
        {
            "native",
            "protocol",
            "rocks",
            "runtime",
            "settings",
            "security",
            "web",
            "metadata",
            "bookie",
            "ledgers",
            "autorecovery",
            "inspection",
            "broker",
            "pipeline",
            "compat_tests",
        }
    ),
}
"""Which rooms a room may use besides itself."""

BROKER_FLOORS: Final = (
    frozenset({"broker_address", "broker_client", "data_directory", "keyed_locks"}),
    frozenset(
        {
            "config",
            "entry",
            "histograms",
            "operations",
            "ownership",
            "refusal",
            "slices",
            "turn",
        }
    ),
    frozenset({"net", "policies", "tls_config"}),
    frozenset({"config_keys", "managed_ledger"}),
    frozenset({"subscription"}),
    frozenset({"broadcast"}),
    frozenset({"topic"}),
    frozenset({"namespaces"}),
    frozenset({"schemas", "cluster", "follow", "topic_lists", "authorization"}),
    frozenset({"change_events", "orphans"}),
    frozenset({"service"}),
    frozenset({"handlers", "admin"}),
    frozenset({"metrics"}),
    frozenset({"assembly"}),
    frozenset({"app"}),
)
"""The rooms of broker/, from the ground up: each uses only those on floors below its own. What is
not named here (the command line, configuration files, the load generator) stands on no floor: it
may use all, and of those named only `app` uses it."""
UNDER_ADMIN: Final = frozenset({"config_file"})
"""The one exception: dynamic configuration has the syntax of configuration files."""

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


@cache
def imports_of(path: Path, *, for_types_too: bool) -> frozenset[str]:
    """Dotted names of what a file imports, anywhere in it."""
    tree = _tree(path)
    left_out: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            left_out |= {inner for each in node.body for inner in ast.walk(each)}
    found: set[str] = set()
    for node in ast.walk(tree):
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


def _broker_room(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "broker" and len(parts) > 1 else None


FLOOR_OF: Final = {room: floor for floor, rooms in enumerate(BROKER_FLOORS) for room in rooms}
BROKER_FILES: Final = [
    path for path in FILES if _broker_room(_name(path)) in FLOOR_OF and not _is_test(_name(path))
]


@pytest.mark.parametrize("path", BROKER_FILES, ids=_name)
def test_rooms_of_the_broker_import_downwards_only(path: Path) -> None:
    """Imports for types count: a circle is one whatever it is used for."""
    room = _broker_room(_name(path))
    assert room is not None
    used = {_broker_room(name) for name in imports_of(path, for_types_too=True)}
    others = {each for each in used if each is not None and each != room}

    if room != "app":
        assert others - (UNDER_ADMIN if room == "admin" else set()) <= FLOOR_OF.keys()
    too_high = {each for each in others if FLOOR_OF.get(each, -1) >= FLOOR_OF[room]}
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


def test_every_room_of_the_broker_is_on_a_floor() -> None:
    folders = {path.name for path in (TREE / "broker").iterdir() if any(path.glob("*.py"))}

    assert folders - {"machine", "metadata_copy", "perf", "tests"} <= FLOOR_OF.keys()


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
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert not too_long


PAGES: Final = [
    TREE / "README.md",
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
