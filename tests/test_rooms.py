"""The plan of the house, kept by a test: who may import whom, what pure means, sizes, links.

- Rooms import downwards only, as the list of rooms in pyproject.toml says.
- Modules import each other in no circle.
- Topics know no frames.
- A module whose essay says "Pure." is pure, and so is everything it needs: no event loop, socket,
  clock, chance, file or thread. The whole of protocol/ is.
- Files and functions stay short enough to be read.
- Links between pages lead somewhere.
- Each module is named in the DESIGN page of its room, and files and targets of make that pages name
  exist.
"""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
    frozenset({"managed_ledger"}),
    frozenset({"net", "topics", "cluster"}),
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

FRAMES: Final = frozenset(
    {
        "native.frames",
        "protocol.ack_runs",
        "protocol.client",
        "protocol.command_frames",
        "protocol.commands",
        "protocol.connection",
        "protocol.decoding",
        "protocol.frame_stream",
        "protocol.frames",
        "protocol.long_commands",
        "protocol.plain_acks",
        "protocol.plain_requests",
        "protocol.refusals",
        "protocol.request_frames",
        "protocol.requests",
        "protocol.send_fields",
        "protocol.send_runs",
        "protocol.templates",
    }
)
"""Read or write the frames of Pulsar's protocol between clients and brokers."""

IMPURE: Final = frozenset(
    {"asyncio", "os", "pathlib", "random", "secrets", "socket", "threading", "time", "trio"}
)
PROTOCOL_TOOLS: Final = frozenset({"protocol.generate"})
"""Part of the room, but run by hand: it reads and writes files."""
FILE_LINES_MAX: Final = 700
FUNCTION_LINES_MAX: Final = 70

_TOKEN = re.compile(r"`([^`\s]+)`")
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


@dataclass(frozen=True, slots=True)
class _Source:
    """What a file says of itself. Its tree is not kept, as all of them take gigabytes."""

    essay: str
    """The docstring of the module."""
    imports: frozenset[str]
    """Dotted names, from anywhere in the file."""
    imports_for_types: frozenset[str]
    lines: int
    long_functions: tuple[str, ...]


@cache
def _source(path: Path) -> _Source:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    statements = tuple(_statements(tree))
    for_types = {
        inner
        for each in statements
        if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"
        for inner in _statements(each, fields=("body",))
    }
    return _Source(
        ast.get_docstring(tree) or "",
        _imported(path, (each for each in statements if each not in for_types)),
        _imported(path, for_types),
        len(text.splitlines()),
        tuple(
            f"{each.name} has {each.end_lineno - each.lineno + 1} lines"
            for each in statements
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            and each.end_lineno is not None
            and each.end_lineno - each.lineno >= FUNCTION_LINES_MAX
        ),
    )


_BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")


def _statements(node: ast.AST, fields: tuple[str, ...] = _BLOCKS) -> Iterator[ast.AST]:
    """Those within a statement, at any depth. Expressions hold none, and are most of a tree."""
    for field in fields:
        for each in getattr(node, field, ()):
            yield each
            yield from _statements(each)


def _imported(path: Path, statements: Iterable[ast.AST]) -> frozenset[str]:
    found: set[str] = set()
    for each in statements:
        if isinstance(each, ast.Import):
            found |= {alias.name for alias in each.names}
        elif isinstance(each, ast.ImportFrom):
            assert each.module is not None, f"{path}: relative imports hide where they lead"
            assert each.level == 0, f"{path}: relative imports hide where they lead"
            found.add(each.module)
            # `from package import module` imports a module, too.
            both = {f"{each.module}.{alias.name}" for alias in each.names}
            found |= both & MODULES.keys()
    return frozenset(found)


def _all_imports(path: Path) -> frozenset[str]:
    """Those for types, too: a circle is one whatever it is used for."""
    return _source(path).imports | _source(path).imports_for_types


def _is_pure(module: str) -> bool:
    if module.startswith("protocol."):
        return module not in PROTOCOL_TOOLS
    return re.search(r"\bPure\b[.:]|\bPure codec\b", _source(MODULES[module]).essay) is not None


@cache
def _pure() -> frozenset[str]:
    return frozenset(each for each in MODULES if not _is_test(each) and _is_pure(each))


def test_rooms_import_downwards_only() -> None:
    too_high = {}
    for path in FILES:
        room = path.relative_to(TREE).parts[0]
        used = {name.partition(".")[0] for name in _all_imports(path)}
        too_high[_name(path)] = (used & BELOW.keys()) - BELOW[room] - {room}
    assert _not_empty(too_high) == {}


def _not_empty(faults: dict[str, set[str]]) -> dict[str, set[str]]:
    return {each: found for each, found in faults.items() if found}


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


@pytest.mark.parametrize("house", HOUSES)
def test_rooms_of_a_house_import_downwards_only(house: str) -> None:
    floor_of = {room: floor for floor, rooms in enumerate(HOUSES[house]) for room in rooms}
    too_high = {}
    for module, path in MODULES.items():
        room = _room_in(house, module)
        if room is None or _is_test(module):
            continue
        assert room in floor_of, f"{room} is on no floor of {house}"
        used = {_room_in(house, name) for name in _all_imports(path)}
        others = {each for each in used if each is not None and each != room}
        too_high[module] = {
            each for each in others if floor_of.get(each, len(HOUSES[house])) >= floor_of[room]
        }
    assert _not_empty(too_high) == {}


def test_topics_know_no_frames() -> None:
    """They answer producers and consumers through sessions, which the door of each protocol
    implements (docs/decisions/0059). `follow` is a client of other brokers."""
    used = {
        module: set(_all_imports(path) & FRAMES)
        for module, path in MODULES.items()
        if module.startswith("broker.topics.")
        and not module.startswith("broker.topics.follow.")
        and not _is_test(module)
    }
    assert "broker.topics.topic.publishing" in used
    assert _not_empty(used) == {}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Within a room, too, and imports for types count."""
    uses = {
        module: _all_imports(path) & MODULES.keys()
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
    assert expected <= _pure()


def test_pure_modules_need_nothing_impure() -> None:
    assert _not_empty({each: _impurities(each) for each in _pure()}) == {}


def _impurities(module: str) -> set[str]:
    """What it or a module that it needs imports, and should not."""
    found: set[str] = set()
    seen: set[str] = set()
    pending = [module]
    while pending:
        current = pending.pop()
        if current not in seen:
            seen.add(current)
            imported = _source(MODULES[current]).imports
            impure = {name for name in imported if name.partition(".")[0] in IMPURE}
            found |= {f"{current} imports {name}" for name in impure}
            pending += [name for name in imported if name in MODULES]
    return found


def test_files_and_functions_are_short() -> None:
    too_long = {
        _name(path): {f"{source.lines} lines: split it"}
        for path in FILES
        if (source := _source(path)).lines > FILE_LINES_MAX
    }
    long_functions = {_name(path): set(_source(path).long_functions) for path in FILES}
    assert (too_long, _not_empty(long_functions)) == ({}, {})


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


def _design_page(path: Path) -> Path:
    """The nearest page that is about the module's folder."""
    above = [folder / "DESIGN.md" for folder in path.parents if folder.is_relative_to(TREE)]
    return next((page for page in above if page.exists()), TREE / "docs" / "impl.md")


def _matches(module: str, token: str) -> bool:
    """Whether a page that says `token` names the module, whose path it has without its ending."""
    end = "/" + re.sub(r"<\w+>", "*", token.removesuffix(".py"))
    return fnmatch(f"/{module}", f"*{end}") if "*" in end else f"/{module}".endswith(end)


@cache
def _named_on(page: Path) -> frozenset[str]:
    """What a page names in backticks. `<part>` stands for any name."""
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    return frozenset(_TOKEN.findall(text))


def _is_named(path: Path) -> bool:
    """By its name, a pattern, or the name of a folder that the page describes as one."""
    page = _design_page(path)
    module = path.relative_to(TREE).with_suffix("").as_posix()
    below = path.relative_to(page.parent).as_posix() if page.name == "DESIGN.md" else module
    return any(
        below.startswith(token) if token.endswith("/") else _matches(module, token)
        for token in _named_on(page)
    )


def test_each_module_is_named_in_the_page_of_its_room() -> None:
    unnamed = {
        _name(path): _design_page(path).relative_to(TREE).as_posix()
        for path in FILES
        if not (_is_test(_name(path)) or re.match(r"__init__|test_", path.stem))
        and not _is_named(path)
    }
    assert unnamed == {}


def _files_of_tables(page: Path) -> set[str]:
    """What the first columns of its tables of files name, below the folder of the page."""
    files: set[str] = set()
    is_of_files = False
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = line.split("|")
        if len(cells) < 3:
            is_of_files = False
        elif is_of_files:
            files |= set(_TOKEN.findall(cells[1]))
        else:
            is_of_files = re.match(r" (file|module)s?\b", cells[1]) is not None
    return files


NAMEABLE: Final = [
    path.relative_to(TREE).with_suffix("").as_posix()
    for path in (*FILES, *(TREE / ".ci").glob("*.py"))
]


def _is_file(token: str, below: str = "") -> bool:
    return any(module.startswith(below) and _matches(module, token) for module in NAMEABLE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TREE)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    gone = {each for each in _named_on(page) if each.endswith(".py") and not _is_file(each)}
    if page.name == "DESIGN.md":
        room = page.parent.relative_to(TREE).as_posix()
        gone |= {
            each
            for each in _files_of_tables(page)
            if not _is_file(each, "" if "/" in each else room)
            and not any(page.parent.glob(f"{each}*"))
        }
    assert gone == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TREE)))
def test_targets_that_a_page_names_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (TREE / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)[` ]", page.read_text(encoding="utf-8")))

    assert named <= targets


def test_each_target_of_make_is_in_its_help() -> None:
    """But for `help` itself."""
    makefile = (TREE / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    helped = set(re.findall(r"(?<=make )[a-z-]+|[a-z-]+(?=: )", "".join(_help_of(makefile))))

    assert set(phony[1].split()) - helped == {"help"}


def _help_of(makefile: str) -> list[str]:
    return [line for line in makefile.splitlines() if line.startswith("\t@echo 'make ")]
