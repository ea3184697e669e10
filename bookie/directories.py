"""Identifies the directories of a bookie, whatever their order in the configuration. Pure.

The `VERSION` file of each directory has, after BookKeeper's cookie, its place: the random id of the
set of directories, the number of this journal or ledger directory, and the numbers of all ledger
directories. Journals are numbered 0, 1, ...: the number is part of the name of their marks. A
ledger directory keeps its number for ever. Ledgers are found by the content of the directories, so
these numbers only show whether all directories are present. `generation` grows with each directory
added or removed. The highest one counts, because such a change may be interrupted.

`VERSION` files of BookKeeper, and of earlier versions, have no place. There the position of the
path in the cookie is the number.
"""

from __future__ import annotations

from dataclasses import dataclass
from posixpath import normpath
from typing import TYPE_CHECKING, final

from bookie.errors import BookieRefusesToStart
from protocol.bookkeeper.cookie import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from protocol.bookkeeper.cookie import Cookie

Copy = tuple["Cookie", Place | None]


@final
@dataclass(frozen=True, slots=True)
class DirectoryPlan:
    """The directories of a bookie in the order of their numbers."""

    journals: tuple[str, ...]
    ledgers: tuple[tuple[int, str], ...]
    """(number, path)."""
    removed: tuple[tuple[int, str], ...]
    """Ledger directories that are not configured any more, with their last known paths."""
    set_id: str
    """Empty: not given yet."""
    generation: int
    is_new_set: bool = False
    """Whether the set id was made by this start, for directories that had none."""

    def place_of(self, path: str) -> Place:
        """The expected content of the directory's `VERSION` file."""
        numbers = {known: number for number, known in self.ledgers}
        return Place(
            set_id=self.set_id,
            generation=self.generation,
            journal=self.journals.index(path) if path in self.journals else None,
            ledger=numbers.get(path),
            ledgers=tuple(number for number, _path in self.ledgers),
        )


def plan_new(journals: Sequence[str], ledgers: Sequence[str]) -> DirectoryPlan:
    """For a bookie without data."""
    return DirectoryPlan(tuple(journals), tuple(enumerate(ledgers)), (), "", len(ledgers))


def refuse_twice(key: str, paths: Sequence[str]) -> None:
    """Raises: BookieRefusesToStart: a directory is configured twice."""
    seen = set()
    for path in map(normpath, paths):
        if path in seen:
            raise BookieRefusesToStart(f"{key} names {path} twice: name each directory once")
        seen.add(path)


def plan_existing(
    journals: Sequence[str],
    ledgers: Sequence[str],
    copies: Mapping[str, Copy],
    *,
    may_expand: bool,
) -> DirectoryPlan:
    """Order the configured directories by their cookies.

    Raises: BookieRefusesToStart: they are not the directories of one bookie, or not all of them.
    """
    cookie, place = _newest(copies)
    journal_of = _paths(
        _numbers(
            "journalDirectories",
            journals,
            copies,
            cookie.journal_directories,
            lambda place: place.journal,
        )
    )
    ledger_of = _paths(
        _numbers(
            "ledgerDirectories",
            ledgers,
            copies,
            cookie.ledger_directories,
            lambda place: place.ledger,
        )
    )
    _check_journals(journals, journal_of, cookie)
    known = place.ledgers if place else tuple(range(len(cookie.ledger_directories)))
    _check_not_removed(ledger_of, known)
    last_paths = dict(zip(known, cookie.ledger_directories, strict=True))
    missing = tuple((number, last_paths[number]) for number in known if number not in ledger_of)
    added = [path for path in ledgers if path not in ledger_of.values()]
    generation = place.generation if place else len(known)
    if added and missing:
        raise BookieRefusesToStart(
            _without_its_data(added[0])
            if added[0] == missing[0][1]
            else f"{added[0]}/current has no data of this bookie, and {missing[0][1]}/current, "
            "which has, is missing. Mount the lost directory again, or add and remove in two starts"
        )
    if added and not may_expand:
        raise BookieRefusesToStart(
            f"{added[0]} is new in ledgerDirectories, but bookie {cookie.bookie_id!r} has data "
            "already. If it is meant to grow, set allowStorageExpansion=true"
        )
    for path in added:
        ledger_of[generation] = path
        generation += 1
    return DirectoryPlan(
        journals=tuple(journal_of[number] for number in sorted(journal_of)),
        ledgers=tuple(sorted(ledger_of.items())),
        removed=missing,
        set_id=place.set_id if place else "",
        generation=generation + bool(missing),
    )


def _newest(copies: Mapping[str, Copy]) -> Copy:
    """The copy that defines which directories exist."""
    placed = [(path, cookie, place) for path, (cookie, place) in copies.items() if place]
    plain = [(path, cookie) for path, (cookie, place) in copies.items() if not place]
    for path, _cookie, place in placed:
        if place.set_id != placed[0][2].set_id:
            raise BookieRefusesToStart(
                f"{path} and {placed[0][0]} belong to different bookies: correct "
                "journalDirectories and ledgerDirectories"
            )
    if not placed:
        first_path, first = plain[0]
    else:
        # Places are written before paths are changed, so the oldest lists are those without one.
        oldest = min(placed, key=lambda each: each[2].generation)
        first_path, first = oldest[0], oldest[1]
    for path, cookie in plain:
        if (cookie.journal_directories, cookie.ledger_directories) != (
            first.journal_directories,
            first.ledger_directories,
        ):
            raise BookieRefusesToStart(
                f"the cookies of {path} and {first_path} name different directories: they belong "
                "to different bookies, or were used with different configurations"
            )
    if not placed:
        return first, None
    newest = max(placed, key=lambda each: each[2].generation)
    return newest[1], newest[2]


def _numbers(
    key: str,
    paths: Sequence[str],
    copies: Mapping[str, Copy],
    stored: Sequence[str],
    number_in: Callable[[Place], int | None],
) -> dict[str, int]:
    """Path -> number of the configured directories that have one."""
    found: dict[str, int] = {}
    plain: list[str] = []
    for path in paths:
        if path in copies:
            place = copies[path][1]
            if place is None:
                plain.append(path)
            elif (number := number_in(place)) is not None:
                found[path] = number
    return found | _by_path(key, plain, stored, found)


def _by_path(
    key: str, paths: Sequence[str], stored: Sequence[str], found: Mapping[str, int]
) -> dict[str, int]:
    """Numbers of directories without a place, by the position of their paths in the cookie. If all
    directories were moved to other paths, they are taken in the order given."""
    position = {normpath(path): number for number, path in enumerate(stored)}
    result = {path: position[normpath(path)] for path in paths if normpath(path) in position}
    moved = [path for path in paths if path not in result]
    if not moved:
        return result
    free = sorted(set(position.values()) - set(result.values()) - set(found.values()))
    if len(free) != len(moved) or (len(free) > 1 and (result or found)):
        raise BookieRefusesToStart(
            f"{moved[0]} was at another path before, and which of {', '.join(stored)} it was "
            f"cannot be determined: give {key} as it was, start once, and then move directories"
        )
    return result | dict(zip(moved, free, strict=True))


def _paths(number_of: Mapping[str, int]) -> dict[int, str]:
    """Number -> path. Raises: BookieRefusesToStart: two have the same number."""
    path_of: dict[int, str] = {}
    for path, number in number_of.items():
        if number in path_of:
            raise BookieRefusesToStart(
                f"{path} and {path_of[number]} are the same directory of this bookie, or one is a "
                "copy of the other: name only one of them"
            )
        path_of[number] = path
    return path_of


def _without_its_data(directory: str) -> str:
    return (
        f"{directory}/current has no data of this bookie, which had its data there. Mount the lost "
        "directory again, or restore it"
    )


def _check_journals(journals: Sequence[str], journal_of: Mapping[int, str], cookie: Cookie) -> None:
    strange = [path for path in journals if path not in journal_of.values()]
    wanted = cookie.journal_directories
    if list(journals) == list(wanted) and strange:
        raise BookieRefusesToStart(_without_its_data(strange[0]))
    if strange or len(journal_of) != len(wanted):
        raise BookieRefusesToStart(
            f"bookie {cookie.bookie_id!r} has its journals in {', '.join(wanted)}, but "
            f"journalDirectories names {', '.join(journals)}. Journal directories cannot be added "
            "or removed: correct the configuration, or mount the lost directory again"
        )


def _check_not_removed(ledger_of: Mapping[int, str], known: Sequence[int]) -> None:
    for number, path in ledger_of.items():
        if number not in known:
            raise BookieRefusesToStart(
                f"{path} was removed from ledgerDirectories earlier, so what it holds is out of "
                "date: empty it before it is used again"
            )
