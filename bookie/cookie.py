"""Checks at start that the configured disks are those of this bookie, and identifies each of them.

Every journal and ledger directory carries the cookie in `current/VERSION`, with its own place
(`directories`). With a CookieStore (the metadata service) there is one more copy of the cookie. A
new bookie needs all directories empty and no stored cookie. Otherwise every copy must exist and
match: an emptied or swapped disk would turn acknowledged entries into "no such entry".

Directories may be configured in any order. Without a CookieStore (the embedded bookie) they may
also have been moved to other paths, which are then written to the cookies. Ledger directories may
be added with allowStorageExpansion, and removed when they hold nothing.
"""

from __future__ import annotations

import os
from dataclasses import replace
from posixpath import normpath
from typing import TYPE_CHECKING, Protocol

import trio

from bookie.directories import plan_existing, plan_new, refuse_twice
from bookie.disk import read_file, replace_file
from bookie.errors import BookieRefusesToStart, CookieDamaged
from protocol.bookkeeper.cookie import (
    LAYOUT_VERSION,
    Cookie,
    CookieMismatch,
    decode_cookie,
    decode_version_file,
    encode_cookie,
    encode_version_file,
)
from protocol.bookkeeper.ledger_metadata import InvalidMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bookie.config import BookieConfig
    from bookie.directories import Copy, DirectoryPlan
    from bookie.disk import Disk

FILE_NAME = "VERSION"


class CookieStore(Protocol):
    """The cookies in the metadata service."""

    async def instance_id(self) -> str:
        """The id of the cluster."""

    async def read_cookie(self, bookie_id: str) -> bytes | None:
        """The stored cookie, None if there is none."""

    async def write_cookie(self, bookie_id: str, cookie: bytes) -> None:
        """Store the cookie of a bookie."""


async def check_cookies(
    config: BookieConfig, disk: Disk, store: CookieStore | None
) -> DirectoryPlan:
    """Check all copies and correct those that differ: the existing directories, in order. While the
    plan has removed directories the copies still name them; `complete_removal` ends that.

    Raises: BookieRefusesToStart.
    """
    refuse_twice("journalDirectories", config.journalDirectories)
    refuse_twice("ledgerDirectories", config.ledgerDirectories)
    instance_id = await store.instance_id() if store is not None else None
    stored = await store.read_cookie(config.bookieId) if store is not None else None
    plan, cookie = await trio.to_thread.run_sync(
        _check_directories, config, disk, instance_id, stored
    )
    if store is not None and not plan.removed and stored != encode_cookie(cookie):
        # The store comes last: if the copies on disk exist but the stored one does not, the next
        # start finds a bookie that holds nothing yet, and completes it.
        await store.write_cookie(config.bookieId, encode_cookie(cookie))
    return plan


async def adopt(config: BookieConfig, disk: Disk, store: CookieStore) -> None:
    """Make a bookie of the cluster of one that had no CookieStore, or whose directories were moved.
    The caller knows that store and directories belong together. If this is interrupted, the next
    call completes it. A bookie without any directory stays as it is.

    Raises: BookieRefusesToStart.
    """
    paths = map(normpath, (*config.journalDirectories, *config.ledgerDirectories))
    known = await trio.to_thread.run_sync(
        lambda: any(_content(disk, path) is not None for path in paths)
    )
    if not known:
        return
    plan = await check_cookies(config, disk, None)
    if plan.removed:
        return  # the start of the bookie compares them with the store
    cookie = _cookie_of(config, plan, await store.instance_id())
    await trio.to_thread.run_sync(_write, disk, cookie, plan)
    if await store.read_cookie(config.bookieId) != encode_cookie(cookie):
        await store.write_cookie(config.bookieId, encode_cookie(cookie))


def refuse_other_cluster(config: BookieConfig, disk: Disk, *known: str | None) -> None:
    """Refuse directories that joined a cluster other than these: what their bookie has stored since
    is known there only.

    Raises: BookieRefusesToStart.
    """
    for path, (cookie, _place) in _copies(config, disk).items():
        if cookie.instance_id is not None and cookie.instance_id not in known:
            raise BookieRefusesToStart(
                f"{_current(path)}/{FILE_NAME} belongs to another cluster, with the id "
                f"{cookie.instance_id}: the bookie was moved there (vela copy-metadata), or the "
                "metadata were replaced. Use the brokers of that cluster: what was stored since is "
                "known there only"
            )


def named_clusters(config: BookieConfig, disk: Disk) -> set[str]:
    """The ids of clusters in the directories' cookies: none of an embedded bookie, two after an
    interrupted adoption. Raises: BookieRefusesToStart."""
    named = {cookie.instance_id for cookie, _place in _copies(config, disk).values()}
    return {each for each in named if each is not None}


def set_id_of(config: BookieConfig, disk: Disk) -> str | None:
    """The random id of the bookie's directories; None: no configured directory has a cookie.

    Raises: BookieRefusesToStart: they are not those of one bookie, and this one.
    """
    copies = _copies(config, disk)
    for path, (cookie, _place) in copies.items():
        if cookie.bookie_id != config.bookieId:
            raise BookieRefusesToStart(
                f"{_current(path)}/{FILE_NAME} belongs to bookie {cookie.bookie_id!r}, not to "
                f"{config.bookieId!r}: correct bookieId or the directories"
            )
    set_ids = {"" if place is None else place.set_id for _cookie, place in copies.values()}
    if len(set_ids) > 1 or "" in set_ids:
        raise BookieRefusesToStart(
            f"{', '.join(sorted(copies))}: not the directories of one bookie, or an earlier "
            "version used them last. Name the right ones, and start and stop `vela standalone` of "
            "this version once"
        )
    return set_ids.pop() if set_ids else None


def _copies(config: BookieConfig, disk: Disk) -> dict[str, Copy]:
    """By configured directory. Raises: CookieDamaged."""
    paths = dict.fromkeys(map(normpath, (*config.journalDirectories, *config.ledgerDirectories)))
    return {path: copy for path in paths if (copy := _read(disk, path)) is not None}


async def complete_removal(
    config: BookieConfig, disk: Disk, store: CookieStore | None, plan: DirectoryPlan
) -> None:
    """Remove the removed directories from the copies: no data in them is needed."""
    instance_id = await store.instance_id() if store is not None else None
    cookie = _cookie_of(config, plan, instance_id)
    await trio.to_thread.run_sync(_write, disk, cookie, plan)
    if store is not None:
        await store.write_cookie(config.bookieId, encode_cookie(cookie))


def _check_directories(
    config: BookieConfig, disk: Disk, instance_id: str | None, stored: bytes | None
) -> tuple[DirectoryPlan, Cookie]:
    journals = tuple(map(normpath, config.journalDirectories))
    ledgers = tuple(map(normpath, config.ledgerDirectories))
    paths = dict.fromkeys(journals + ledgers)
    copies = {path: copy for path in paths if (copy := _read(disk, path)) is not None}
    used = [path for path in paths if _is_used(disk, path)]
    if stored is None and not used:
        plan = plan_new(journals, ledgers)  # a first start may have been interrupted
    else:
        lost = [path for path in paths if path not in copies and (path in used or not copies)]
        if lost:
            raise BookieRefusesToStart(
                f"{_current(lost[0])} has no {FILE_NAME} file, but bookie {config.bookieId!r} has "
                "data there or elsewhere, or is known already. Mount the lost directory again; a "
                "bookie whose data is gone must be decommissioned first"
            )
        for path, (own, _place) in copies.items():
            _verify(config, own, instance_id, paths, f"{_current(path)}/{FILE_NAME}")
        if stored is not None:
            _verify(config, _decoded(stored), instance_id, paths, "the metadata store")
        elif instance_id is not None:
            raise BookieRefusesToStart(
                f"the metadata store has no cookie of {config.bookieId!r}, which has data in "
                f"{_current(used[0])}: the bookie was decommissioned, or the metadata was restored "
                "from an older copy. Give the bookie empty directories, or restore its cookie"
            )
        had_set = any(place is not None for _cookie, place in copies.values())
        copies = _placed(disk, copies, journals, ledgers)
        plan = plan_existing(journals, ledgers, copies, may_expand=config.allowStorageExpansion)
        plan = replace(plan, is_new_set=not had_set)
    if not plan.set_id:
        plan = replace(plan, set_id=os.urandom(8).hex())
    cookie = _cookie_of(config, plan, instance_id)
    if not plan.removed:
        _write_added(disk, cookie, plan, copies)
        _write(disk, cookie, plan)
    return plan, cookie


def _placed(
    disk: Disk, copies: dict[str, Copy], journals: Sequence[str], ledgers: Sequence[str]
) -> dict[str, Copy]:
    """The copies, after those without a place were given one. Their lists of directories stay as
    they are, so that an interruption leaves copies that still agree."""
    lacking = {path: copy for path, (copy, place) in copies.items() if place is None}
    if not lacking:
        return copies
    known = [path for path in ledgers if path in copies]
    plan = plan_existing(journals, known, copies, may_expand=True)
    set_id = plan.set_id or os.urandom(8).hex()
    for path, copy in lacking.items():
        numbers = tuple(range(len(copy.ledger_directories)))
        place = replace(
            plan.place_of(path), set_id=set_id, generation=len(numbers), ledgers=numbers
        )
        _replace(disk, path, encode_version_file(copy, place))
        copies = {**copies, path: (copy, place)}
    return copies


def _write_added(disk: Disk, cookie: Cookie, plan: DirectoryPlan, copies: dict[str, Copy]) -> None:
    """Write one directory after the other, before any other copy names it. An interruption leaves
    either a directory that is still to be added, or a known one."""
    for number, path in plan.ledgers:
        place = copies[path][1] if path in copies else None
        if copies and (place is None or place.ledger is None):
            upto = tuple(each for each in plan.ledgers if each[0] <= number)
            step = replace(plan, ledgers=upto, generation=number + 1)
            named = replace(cookie, ledger_directories=tuple(each for _number, each in upto))
            _replace(disk, path, encode_version_file(named, step.place_of(path)))


def _write(disk: Disk, cookie: Cookie, plan: DirectoryPlan) -> None:
    for path in dict.fromkeys((*plan.journals, *(path for _number, path in plan.ledgers))):
        content = encode_version_file(cookie, plan.place_of(path))
        if _content(disk, path) != content:
            _replace(disk, path, content)


def _cookie_of(config: BookieConfig, plan: DirectoryPlan, instance_id: str | None) -> Cookie:
    return Cookie(
        bookie_id=config.bookieId,
        journal_directories=plan.journals,
        ledger_directories=tuple(path for _number, path in plan.ledgers),
        instance_id=instance_id,
    )


def _verify(
    config: BookieConfig, copy: Cookie, instance_id: str | None, paths: Iterable[str], where: str
) -> None:
    """The copy is one of this bookie; with a metadata service, at the configured paths."""
    expected = replace(copy, bookie_id=config.bookieId, layout_version=LAYOUT_VERSION)
    expected = replace(expected, index_directories=None)
    if instance_id is not None:
        expected = replace(expected, instance_id=instance_id)
        stored = {*map(normpath, (*copy.journal_directories, *copy.ledger_directories))}
        if not (stored <= set(paths) or stored >= set(paths)):
            raise BookieRefusesToStart(
                f"{where} names other directories ({', '.join(sorted(stored))}). Correct the "
                "configuration, or give this bookie directories of its own"
            )
    try:
        expected.verify(copy)
    except CookieMismatch as error:
        raise BookieRefusesToStart(
            f"{where} belongs to another bookie or configuration: {error}. Correct the "
            "configuration, or give this bookie directories of its own"
        ) from error


def _decoded(stored: bytes) -> Cookie:
    try:
        return decode_cookie(stored)
    except InvalidMetadata as error:
        raise BookieRefusesToStart(f"the stored cookie cannot be read: {error}") from error


def belongs(disk: Disk, path: str, plan: DirectoryPlan, number: int) -> bool:
    """Whether this is the directory that was removed from the plan under that number."""
    copy = _read(disk, path)
    if copy is None:
        return False
    cookie, place = copy
    if place is None:
        position = {normpath(each): n for n, each in enumerate(cookie.ledger_directories)}
        return position.get(path) == number
    return place.set_id == plan.set_id and place.ledger == number


def _read(disk: Disk, path: str) -> Copy | None:
    content = _content(disk, path)
    if content is None:
        return None
    try:
        return decode_version_file(content)
    except InvalidMetadata as error:
        raise CookieDamaged(
            f"{_current(path)}/{FILE_NAME}: damage at offset 0, {len(content)} bytes: {error}. "
            "Restore this file from a backup. Without one, correct it after those of the other "
            "directories, and delete the line that starts with '# vela' from all of them"
        ) from error


def _content(disk: Disk, path: str) -> bytes | None:
    name = f"{_current(path)}/{FILE_NAME}"
    try:
        return read_file(disk, name)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BookieRefusesToStart(f"cannot read {name}: {error.strerror or error}") from error


def _replace(disk: Disk, path: str, content: bytes) -> None:
    disk.make_directories(_current(path))
    replace_file(disk, f"{_current(path)}/{FILE_NAME}", content)


def _current(path: str) -> str:
    return f"{path}/current"


def _is_used(disk: Disk, path: str) -> bool:
    """Whether a bookie has stored anything here."""
    return any(
        name.endswith((".txn", ".log")) or name.startswith("lastMark") or name == "locations"
        for name in disk.list_names(_current(path))
    )
