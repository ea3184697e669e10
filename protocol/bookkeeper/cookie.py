"""Cookies: the identity of a bookie's disks.

Written to every directory (`current/VERSION`) and to the metadata store when a bookie starts for
the first time; all copies must match at every later start. A disk that was lost, emptied or
swapped would otherwise answer "no such entry" for entries that were acknowledged, and recovery
would believe it.

Format: `5\\n` and a CookieFormat as protobuf text. Lists of directories are their number and the
paths, separated by tabs.

In a `VERSION` file of ours a comment follows, which BookKeeper skips: the `Place` of the directory,
and a checksum of the file.

    # vela {"set": "<hex>", "generation": n, "journal": n | null, "ledger": n | null,
    "ledgers": [n, ...]} crc32c=<8 hex digits>
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, final

import crc32c
from google.protobuf import text_format

from protocol.bookkeeper import data_formats_pb2 as formats
from protocol.bookkeeper.ledger_metadata import InvalidMetadata

LAYOUT_VERSION: Final = 5
_LAYOUT_VERSION_MIN: Final = 4
"""The first one in protobuf text."""

_DIRECTORY_COUNT_MAX: Final = 10_000
_PLACE: Final = b"# vela "
_CHECKSUM: Final = b" crc32c="


class CookieMismatch(Exception):
    """Two cookies of what should be the same bookie differ; the text says in what."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Cookie:
    """One copy of a bookie's identity."""

    bookie_id: str
    journal_directories: tuple[str, ...]
    ledger_directories: tuple[str, ...]
    instance_id: str | None = None
    """The cluster: the text at `paths.INSTANCE_ID_PATH`."""
    index_directories: tuple[str, ...] | None = None
    """None: the index lives in the ledger directories."""
    layout_version: int = LAYOUT_VERSION

    def verify(self, other: Cookie, *, may_grow: bool = False) -> None:
        """Check that `other`, stored earlier, is a copy of this one, made from the configuration.

        With `may_grow` this one may have more ledger and index directories.

        Raises: CookieMismatch: it is not.
        """
        for what, mine, found in (
            ("layout version", self.layout_version, other.layout_version),
            ("bookie id", self.bookie_id, other.bookie_id),
            ("journal directories", self.journal_directories, other.journal_directories),
            ("instance id", self.instance_id, other.instance_id),
        ):
            if mine != found:
                raise CookieMismatch(f"{what}: configured is {mine!r}, stored is {found!r}")
        for what, mine_paths, found_paths in (
            ("ledger directories", self.ledger_directories, other.ledger_directories),
            ("index directories", self._index(), other._index()),
        ):
            if mine_paths == found_paths or (may_grow and set(mine_paths) >= set(found_paths)):
                continue
            raise CookieMismatch(f"{what}: configured are {mine_paths}, stored are {found_paths}")

    def _index(self) -> tuple[str, ...]:
        if self.index_directories is None:
            return self.ledger_directories
        return self.index_directories


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The bookie and the number of this directory; see `bookie/directories.py`."""

    set_id: str
    generation: int
    journal: int | None
    """Its number among the journal directories; None: it is none of them."""
    ledger: int | None
    """Its number among the ledger directories."""
    ledgers: tuple[int, ...]
    """The numbers of all ledger directories, in the order of the cookie's paths."""


def encode_version_file(cookie: Cookie, place: Place) -> bytes:
    """The content of a directory's `VERSION` file."""
    fields = {
        "set": place.set_id,
        "generation": place.generation,
        "journal": place.journal,
        "ledger": place.ledger,
        "ledgers": place.ledgers,
    }
    text = encode_cookie(cookie) + _PLACE + json.dumps(fields).encode()
    return text + _CHECKSUM + b"%08x\n" % crc32c.crc32c(text)


def decode_version_file(data: bytes) -> tuple[Cookie, Place | None]:
    """The cookie, and the place if the file has one: BookKeeper's have none.

    Raises: InvalidMetadata: it is damaged, no cookie, or of a version this code does not know.
    """
    start = data.rfind(_PLACE)
    if start < 0:
        if b"\n#" in data or b'"generation"' in data:
            raise InvalidMetadata("the line of its place is damaged")
        return decode_cookie(data), None
    text, separator, checksum = data.rpartition(_CHECKSUM)
    if not separator or checksum != b"%08x\n" % crc32c.crc32c(text):
        raise InvalidMetadata("its checksum is wrong")
    cookie = decode_cookie(data[:start])
    try:
        fields = json.loads(text[start + len(_PLACE) :])
        place = Place(
            set_id=str(fields["set"]),
            generation=int(fields["generation"]),
            journal=fields["journal"],
            ledger=fields["ledger"],
            ledgers=tuple(fields["ledgers"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidMetadata(f"its place cannot be read: {error!r}") from error
    if len(place.ledgers) != len(cookie.ledger_directories):
        raise InvalidMetadata("its place names another number of directories than its cookie")
    return cookie, place


def encode_cookie(cookie: Cookie) -> bytes:
    """The text to store."""
    record = formats.CookieFormat(
        bookieHost=cookie.bookie_id,
        journalDir=",".join(cookie.journal_directories),
        ledgerDirs=_join_directories(cookie.ledger_directories),
    )
    if cookie.instance_id is not None:
        record.instanceId = cookie.instance_id
    if cookie.index_directories is not None:
        record.indexDirs = _join_directories(cookie.index_directories)
    text = text_format.MessageToString(record, as_utf8=True)
    return f"{cookie.layout_version}\n{text}".encode()


def decode_cookie(data: bytes) -> Cookie:
    """The stored text.

    Raises: InvalidMetadata: it is no cookie, or of a version this code does not know.
    """
    version, _, text = data.partition(b"\n")
    if not (version.isdigit() and len(version) <= 4):
        raise InvalidMetadata("cookie does not start with its layout version")
    layout_version = int(version)
    if not _LAYOUT_VERSION_MIN <= layout_version <= LAYOUT_VERSION:
        raise InvalidMetadata(
            f"cookie layout version {layout_version} is not known "
            f"({_LAYOUT_VERSION_MIN} to {LAYOUT_VERSION} are)"
        )
    record = formats.CookieFormat()
    try:
        text_format.Parse(text.decode("utf-8"), record, allow_unknown_field=True)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise InvalidMetadata(f"cookie: {error}") from error
    if not record.IsInitialized():
        raise InvalidMetadata("cookie lacks bookieHost, journalDir or ledgerDirs")
    return Cookie(
        bookie_id=record.bookieHost,
        journal_directories=tuple(record.journalDir.split(",")),
        ledger_directories=_split_directories(record.ledgerDirs),
        instance_id=record.instanceId if record.HasField("instanceId") else None,
        index_directories=(
            _split_directories(record.indexDirs) if record.HasField("indexDirs") else None
        ),
        layout_version=layout_version,
    )


def _join_directories(directories: tuple[str, ...]) -> str:
    return "\t".join((str(len(directories)), *directories))


def _split_directories(text: str) -> tuple[str, ...]:
    count, *directories = text.split("\t")
    if not (count.isascii() and count.isdigit() and len(count) <= 5):
        raise InvalidMetadata(f"cookie: {count!r} is not a number of directories")
    if not int(count) == len(directories) <= _DIRECTORY_COUNT_MAX:
        raise InvalidMetadata(f"cookie: {count} directories announced, {len(directories)} follow")
    return tuple(directories)
