"""`python -m tests.changed [BASE]`: the test files of what differs from a commit, one a line.

These are the test files that changed, those that import a changed module by its name, and where no
test does, all of the nearest `tests` folder. Files that git does not know yet count as changed.
`make check` runs what is named here, and tests/test_rooms.py with it. Tests outside of the rooms
start servers and take long: they are named only when they changed themselves.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TREE: Final = Path(__file__).resolve().parent.parent
BASES: Final = ("origin/main", "main", "HEAD")
"""What is compared with: the first of them that exists."""
OUTSIDE: Final = frozenset({"bench", "build", "compat_tests", "dist", "docs", "tests"})
"""Folders that are no rooms, or whose tests take long."""
ALWAYS: Final = "tests/test_rooms.py"


def named_for(changed: Iterable[str], tree: Path) -> list[str]:
    """Paths below the tree, for paths below the tree; those of deleted files may be among them."""
    paths = [Path(each) for each in changed if each.endswith(".py")]
    named = {each for each in paths if _is_test(each) and (tree / each).is_file()}
    texts = {path: (tree / path).read_text(encoding="utf-8") for path in _tests_of_rooms(tree)}
    for path in paths:
        if _is_test(path) or len(path.parts) == 1 or path.parts[0] in OUTSIDE:
            continue
        module = re.compile(_pattern(path))
        found = {test for test, text in texts.items() if module.search(text)}
        named |= found or set(_nearest(path, tree))
    return sorted({ALWAYS, *map(str, named)})


def _pattern(path: Path) -> str:
    """Either way to import the module."""
    parts = path.with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    dotted = re.escape(".".join(parts))
    package = re.escape(".".join(parts[:-1]))
    return rf"\b{dotted}\b|from {package} import [^\n]*\b{re.escape(parts[-1])}\b"


def _is_test(path: Path) -> bool:
    return path.name.startswith("test_") and path.parts[0] not in {"bench", "compat_tests"}


def _tests_of_rooms(tree: Path) -> Iterator[Path]:
    for room in sorted(tree.iterdir()):
        if room.is_dir() and room.name[0] != "." and room.name not in OUTSIDE:
            for path in sorted(room.rglob("test_*.py")):
                yield path.relative_to(tree)


def _nearest(path: Path, tree: Path) -> Iterator[Path]:
    for above in path.parents:
        if above.parts and (tree / above / "tests").is_dir():
            yield from (
                each.relative_to(tree) for each in (tree / above / "tests").glob("test_*.py")
            )
            return


def _git(*arguments: str) -> list[str]:
    ran = subprocess.run(["git", *arguments], cwd=TREE, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise LookupError(ran.stderr)
    return ran.stdout.splitlines()


def changed_since(base: str) -> list[str]:
    """Paths that differ from where this branch left `base`. Raises: LookupError: no such commit."""
    (fork,) = _git("merge-base", "HEAD", base)
    return _git("diff", "--name-only", fork) + _git("ls-files", "--others", "--exclude-standard")


def main(arguments: list[str]) -> None:
    """Raises: SystemExit: there is no such commit."""
    for base in arguments or BASES:
        try:
            print(*named_for(changed_since(base), TREE), sep="\n")
        except LookupError:
            continue
        return
    sys.exit(f"git knows none of {', '.join(arguments or BASES)}")


if __name__ == "__main__":
    main(sys.argv[1:])
