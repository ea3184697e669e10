"""`vela ledger`: looks at ledgers, in files, in a metadata store, and on bookies.

Everything here only reads. A problem is one line on stderr, after what was read before it. `cli`
adds `orphans`, which can delete.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from inspection.access import access, access_option, secured
from inspection.output import Output, PayloadForm, payload_text
from runtime.command_line import (
    EXIT_INTERRUPTED,
    EXIT_REFUSED,
    FilePath,
    first_of,
    log_to_stderr,
    refuse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from inspection.files import Record
    from metadata.read_only_tree import Tree

FORMS: Final = tuple(form.value for form in PayloadForm)
CURSOR: Final = "cursor"
"""As a form of payloads: the positions in a cursor's ledger."""
ID: Final = click.IntRange(0, 2**63 - 1)
"""The id of a ledger or an entry."""


@click.group()
def command() -> None:
    """Show ledgers: files of bookies, metadata, entries. Nothing is changed, except by
    `orphans --delete`."""
    log_to_stderr("warning")


@contextmanager
def refusing() -> Iterator[None]:
    """Every problem ends the command with one line, and a reader who has seen enough (`| head`) or
    Ctrl-C with none. These come in groups, too, which click does not look into."""
    from bookie.errors import Corruption, StorageError
    from inspection.files import NotReadable
    from metadata.store import MetadataUnavailable
    from protocol.bookkeeper.digests import DigestMismatch
    from security.tls_suites import UnusableTls
    from settings.reading import ConfigError

    refused = (NotReadable, StorageError, MetadataUnavailable, DigestMismatch)
    try:
        yield
    except* Corruption as group:
        found = first_of(group)
        assert isinstance(found, Corruption)
        refuse(
            f"{found.path}: damage at offset {found.offset}, {found.size_bytes} bytes: "
            f"{found.detail}"
        )
    except* (*refused, ConfigError, UnusableTls) as group:
        refuse(str(first_of(group)))
    except* BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left is not written at the end
        sys.exit(EXIT_REFUSED)
    except* KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _json(function: Callable[..., None]) -> Callable[..., None]:
    return click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")(
        function
    )


def _shared(function: Callable[..., None]) -> Callable[..., None]:
    """The options of commands that show the records of a file."""
    for option in (
        click.option(
            "--payload",
            type=click.Choice(FORMS),
            default="none",
            show_default=True,
            help="Whether and how entries are shown, with their heads.",
        ),
        click.option("--ledger", "only_ledger", type=ID, help="Only this ledger."),
    ):
        function = option(function)
    return _json(function)


def of_store(function: Callable[..., None]) -> Callable[..., None]:
    """The options of commands that need a metadata store."""
    for option in (
        click.option(
            "--metadata-store", "url", help="Of a cluster: zk:host:port/chroot; or rocksdb:/path."
        ),
        click.option(
            "--data-dir",
            type=FilePath(),
            help="Of a `vela standalone` that is stopped.",
        ),
    ):
        function = option(function)
    return access_option(_json(function))


def with_tree(
    url: str | None, data_dir: Path | None, look: Callable[[Tree], Awaitable[None]]
) -> None:
    """Run `look` with the metadata store."""
    import trio

    from inspection.ledgers import open_tree

    async def run() -> None:
        tree = await open_tree(url, data_dir)
        try:
            await look(tree)
        finally:
            with trio.CancelScope(shield=True):
                await tree.aclose()

    with refusing():
        trio.run(run)


@command.command()
@click.argument("file", type=FilePath())
@_shared
def journal(file: Path, as_json: bool, payload: str, only_ledger: int | None) -> None:
    """Records of a journal (<id>.txn)."""
    from inspection.files import JOURNAL_KINDS, JournalFile, OpenFile

    output = Output(as_json=as_json)
    with refusing():
        opened = OpenFile(file)
        found = JournalFile(opened)
        for record in found.records():
            if only_ledger in (None, record.ledger_id):
                kind = JOURNAL_KINDS.get(record.entry_id, "entry")
                _show(output, kind, record, PayloadForm(payload))
        if found.tail:
            output.row("end", {"file": str(file), "detail": found.tail})


@command.command()
@click.argument("file", type=FilePath())
@click.option("--map", "only_map", is_flag=True, help="The map of a complete log, not its entries.")
@_shared
def log(file: Path, only_map: bool, as_json: bool, payload: str, only_ledger: int | None) -> None:
    """Entries of an entry log (<id>.log)."""
    from inspection.files import EntryLogFile, OpenFile

    output = Output(as_json=as_json)
    with refusing():
        found = EntryLogFile(OpenFile(file))
        if only_map:
            for ledger_id, size_bytes in sorted(found.ledgers_map().items()):
                if only_ledger in (None, ledger_id):
                    output.row("ledger", {"ledger": ledger_id, "bytes": size_bytes})
            return
        for record in found.records():
            if only_ledger in (None, record.ledger_id):
                _show(output, "entry", record, PayloadForm(payload))


def _show(output: Output, kind: str, record: Record, form: PayloadForm) -> None:
    is_entry = kind == "entry"
    output.row(
        kind,
        {
            "ledger": record.ledger_id,
            "entry": record.entry_id if is_entry else None,
            "offset": record.offset,
            "bytes": len(record.body),
            "crc": record.has_valid_crc if is_entry else None,
            "body": payload_text(record.body, form) if is_entry else None,
        },
    )


# --- metadata ---------------------------------------------------------------------------------


@command.command("list")
@of_store
def list_ledgers(url: str | None, data_dir: Path | None, as_json: bool) -> None:
    """All ledgers of a metadata store."""
    from inspection.files import NotReadable
    from inspection.ledgers import ledger_ids, metadata_of, metadata_row

    output = Output(as_json=as_json)

    async def look(tree: Tree) -> None:
        async for ledger_id in ledger_ids(tree):
            try:
                row = metadata_row(ledger_id, await metadata_of(tree, ledger_id))
            except NotReadable as error:
                output.row("damaged", {"ledger": ledger_id, "detail": str(error)})
                continue
            del row["ensembles"], row["custom"]
            output.row("ledger", row)

    with_tree(url, data_dir, look)


@command.command()
@click.argument("ledger_id", type=ID)
@of_store
def metadata(ledger_id: int, url: str | None, data_dir: Path | None, as_json: bool) -> None:
    """The metadata of a ledger."""
    from inspection.ledgers import metadata_of, metadata_row

    async def look(tree: Tree) -> None:
        found = await metadata_of(tree, ledger_id)
        Output(as_json=as_json).row("ledger", metadata_row(ledger_id, found))

    with_tree(url, data_dir, look)


@command.command()
@click.argument("topic")
@of_store
def topic(topic: str, url: str | None, data_dir: Path | None, as_json: bool) -> None:
    """The ledgers and cursors of a persistent topic (or of tenant/namespace/persistent/name)."""
    from inspection.ledgers import managed_ledger_name, managed_ledger_rows

    output = Output(as_json=as_json)

    async def look(tree: Tree) -> None:
        async for kind, row in managed_ledger_rows(tree, managed_ledger_name(topic)):
            output.row(kind, row)

    with_tree(url, data_dir, look)


# --- the index of a bookie, and entries -------------------------------------------------------


@command.command()
@click.argument("directory", type=FilePath())
@click.option("--ledger", "only_ledger", type=ID, help="Where its entries are.")
@_json
def index(directory: Path, only_ledger: int | None, as_json: bool) -> None:
    """The ledgers in the index of a ledger directory; its bookie is stopped."""
    from bookie.index import ENTRY_ID_MAX
    from inspection.bookie_directory import BookieDirectory

    output = Output(as_json=as_json)
    with refusing():
        found = BookieDirectory(directory)
        try:
            for row in found.ledgers(only_ledger):
                output.row(
                    "ledger",
                    {
                        "ledger": row.ledger_id,
                        "exists": row.exists,
                        "fenced": row.fenced,
                        "limbo": row.limbo,
                        "masterKey": row.master_key.hex(),
                    },
                )
            if only_ledger is not None:
                for entry_id, log_id, offset in found.locations(only_ledger, 0, ENTRY_ID_MAX):
                    log = f"{log_id:x}.log"
                    output.row("entry", {"entry": entry_id, "log": log, "offset": offset})
        finally:
            found.close()


@command.command()
@click.argument("ledger_id", type=ID)
@click.option(
    "--directory",
    type=FilePath(),
    help="Read from the ledger directory of a stopped bookie instead of from bookies.",
)
@click.option("--bookie", "bookie_id", help="Only what this bookie has.")
@click.option("--first", type=ID, default=0, show_default=True)
@click.option("--last", type=ID, help="[default: the end of the ledger]")
@click.option(
    "--payload",
    "form",
    type=click.Choice([*FORMS, CURSOR]),
    default="none",
    show_default=True,
    help=f"Whether and how payloads are shown; {CURSOR}: as positions of a cursor.",
)
@click.option("--metadata-store", "url", help="Of the cluster: zk:host:port/chroot.")
@access_option
@_json
def entries(
    ledger_id: int,
    directory: Path | None,
    bookie_id: str | None,
    first: int,
    last: int | None,
    form: str,
    url: str | None,
    as_json: bool,
) -> None:
    """Entries of a ledger, from bookies by their metadata store, or from a ledger directory."""
    output = Output(as_json=as_json)

    def show(entry_id: int, payload: bytes) -> None:
        from inspection.ledgers import position_row

        row = {"ledger": ledger_id, "entry": entry_id, "bytes": len(payload)}
        if form == CURSOR:
            output.row("position", {**row, **position_row(payload)})
        else:
            output.row("entry", {**row, "payload": payload_text(payload, PayloadForm(form))})

    if directory is not None:
        if url is not None or bookie_id is not None:
            raise click.UsageError("--directory is read without --metadata-store and --bookie")
        _entries_of_directory(directory, ledger_id, (first, last), show)
        return
    if url is None:
        raise click.UsageError("entries need --metadata-store, or the --directory of a bookie")
    import trio

    with refusing():
        trio.run(_entries_of_bookies, url, ledger_id, bookie_id, (first, last), show)


def _entries_of_directory(
    directory: Path,
    ledger_id: int,
    span: tuple[int, int | None],
    show: Callable[[int, bytes], None],
) -> None:
    from bookie.index import ENTRY_ID_MAX
    from inspection.bookie_directory import BookieDirectory, payload_of

    with refusing():
        found = BookieDirectory(directory)
        try:
            last = ENTRY_ID_MAX if span[1] is None else span[1]
            for entry_id, body in found.entries(ledger_id, span[0], last):
                show(entry_id, payload_of(body))
        finally:
            found.close()


async def _entries_of_bookies(
    url: str,
    ledger_id: int,
    bookie_id: str | None,
    span: tuple[int, int | None],
    show: Callable[[int, bytes], None],
) -> None:
    """Raises: NotReadable, MetadataUnavailable."""
    import trio

    from inspection.ledgers import SESSION_S, metadata_of
    from inspection.wire import a_pool, copies_on, payloads
    from metadata.opening import open_store

    make_secure = secured()
    store = await open_store(url, SESSION_S, access().metadataStoreConfigPath)
    try:
        metadata = await metadata_of(store, ledger_id)
        async with a_pool(store, make_secure) as pool:
            if bookie_id is None:
                found = payloads(pool, ledger_id, metadata, *span)
            else:
                found = copies_on(pool, bookie_id, ledger_id, metadata, *span)
            async for entry_id, payload in found:
                show(entry_id, payload)
    finally:
        with trio.CancelScope(shield=True):
            await store.aclose()
