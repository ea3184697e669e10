"""Errors of a database. The texts are one line and say what to do."""

from __future__ import annotations

from typing import final


class DatabaseError(Exception):
    """The database cannot be opened, read or written."""


@final
class DatabaseFull(DatabaseError):
    """No space is left for a write. RocksDB goes on by itself when there is some again. After any
    other failed write it refuses all later ones, because the state of its log is unknown."""


@final
class DatabaseInUse(DatabaseError):
    """Another process, or this one, has the database open."""


@final
class DatabaseDamaged(DatabaseError):
    """Bytes on disk differ from the bytes written, or a file is missing. Nothing was changed."""

    def __init__(self, path: str, where: str, detail: str, remedy: str) -> None:
        place = f"{path}: damage at {where}" if where else f"{path}: damage"
        super().__init__(f"{place}: {detail}. {remedy}")
        self.path = path
