"""Identity check at start: are these the disks this bookie had last time?

Every journal and ledger directory carries the cookie in `current/VERSION`; with a CookieStore (the
metadata service) there is one more copy. A new bookie needs all directories empty and no stored
cookie; otherwise every copy must be there and match. An emptied or swapped disk would else turn
into "no such entry" for acknowledged entries.

Without a CookieStore (the embedded bookie) the directories may have been moved together to another
place: then the copies must agree with each other, and are rewritten with the new paths.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import structlog
import trio

from bookie.disk import read_file, replace_file
from bookie.errors import BookieRefusesToStart
from protocol.bookkeeper.cookie import Cookie, CookieMismatch, decode_cookie, encode_cookie
from protocol.bookkeeper.ledger_metadata import InvalidMetadata

if TYPE_CHECKING:
    from bookie.config import BookieConfig
    from bookie.disk import Disk
    from bookie.layout import Layout

logger = structlog.get_logger()

FILE_NAME = "VERSION"


class CookieStore(Protocol):
    """Where the metadata service keeps cookies."""

    async def instance_id(self) -> str:
        """Which cluster this is."""

    async def read_cookie(self, bookie_id: str) -> bytes | None:
        """The stored cookie, None if there is none."""

    async def write_cookie(self, bookie_id: str, cookie: bytes) -> None:
        """Store the cookie of a new bookie."""


async def check_cookies(
    config: BookieConfig, layout: Layout, disk: Disk, store: CookieStore | None
) -> None:
    """Check all copies; write them for a new bookie.

    Raises: BookieRefusesToStart.
    """
    instance_id = await store.instance_id() if store is not None else None
    cookie = Cookie(
        bookie_id=config.bookieId,
        journal_directories=config.journalDirectories,
        ledger_directories=config.ledgerDirectories,
        instance_id=instance_id,
    )
    stored = await store.read_cookie(config.bookieId) if store is not None else None
    is_new = await trio.to_thread.run_sync(_check_directories, layout, disk, cookie, stored)
    if is_new and store is not None:
        # The store last: with the copies on disk but not there, the next start finds a bookie that
        # holds nothing yet, and completes this one.
        await store.write_cookie(config.bookieId, encode_cookie(cookie))


def _check_directories(layout: Layout, disk: Disk, cookie: Cookie, stored: bytes | None) -> bool:
    """Check and, for a new bookie, write the directories' copies; True if the store needs one."""
    directories = list(dict.fromkeys(layout.journal_directories + layout.ledger_directories))
    found = {directory: _read(disk, directory) for directory in directories}
    missing = [directory for directory, copy in found.items() if copy is None]
    copies = {directory: copy for directory, copy in found.items() if copy is not None}
    used = [directory for directory in missing if _is_used(disk, directory)]
    if missing and (copies or stored is not None or used):
        if stored is None and not used and all(not _is_used(disk, d) for d in copies):
            missing = directories  # a first start that was interrupted: nothing is stored yet
        else:
            raise BookieRefusesToStart(
                f"{', '.join(missing)} has no {FILE_NAME} file, but bookie "
                f"{cookie.bookie_id!r} has data elsewhere or is known already. Mount the lost "
                "directory again; a bookie whose data is gone must be decommissioned first"
            )
    if not missing:
        _compare(cookie, copies, stored)
    for directory in directories:
        if directory in missing or copies.get(directory) != cookie:
            disk.make_directories(directory)
            replace_file(disk, f"{directory}/{FILE_NAME}", encode_cookie(cookie))
    return stored is None


def _compare(cookie: Cookie, copies: dict[str, Cookie], stored: bytes | None) -> None:
    try:
        for directory, copy in copies.items():
            expected = cookie
            if cookie.instance_id is None:
                expected = _moved(cookie, copy)
            _verify(expected, copy, f"{directory}/{FILE_NAME}")
        if cookie.instance_id is None:
            first = next(iter(copies.values()))
            for directory, copy in copies.items():
                _verify(first, copy, f"{directory}/{FILE_NAME}")
        if stored is not None:
            _verify(cookie, decode_cookie(stored), "the metadata store")
    except InvalidMetadata as error:
        raise BookieRefusesToStart(f"the stored cookie cannot be read: {error}") from error


def _moved(cookie: Cookie, copy: Cookie) -> Cookie:
    """Without a store: the same number of directories may be at other paths."""
    if len(copy.journal_directories) != len(cookie.journal_directories) or len(
        copy.ledger_directories
    ) != len(cookie.ledger_directories):
        return cookie
    return replace(
        cookie,
        journal_directories=copy.journal_directories,
        ledger_directories=copy.ledger_directories,
        instance_id=copy.instance_id,
    )


def _verify(expected: Cookie, copy: Cookie, where: str) -> None:
    try:
        expected.verify(copy)
    except CookieMismatch as error:
        raise BookieRefusesToStart(
            f"{where} belongs to another bookie or configuration: {error}. Correct the "
            "configuration, or give this bookie directories of its own"
        ) from error


def _read(disk: Disk, directory: str) -> Cookie | None:
    path = f"{directory}/{FILE_NAME}"
    try:
        return decode_cookie(read_file(disk, path))
    except FileNotFoundError:
        return None
    except InvalidMetadata as error:
        raise BookieRefusesToStart(f"{path} cannot be read: {error}") from error


def _is_used(disk: Disk, directory: str) -> bool:
    """Whether a bookie has stored anything here."""
    return any(
        name.endswith((".txn", ".log")) or name.startswith("lastMark") or name == "locations"
        for name in disk.list_names(directory)
    )
