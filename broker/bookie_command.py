"""`vela bookie rebuild-index`: work on the files of a stopped bookie."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie.index_rebuild import Rebuilt
    from broker.config import BrokerConfig


EXIT_REFUSED: Final = 1


@click.command("rebuild-index")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="The data directory of the stopped server.",
)
@click.option(
    "--config",
    "config_files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="The configuration files the server is started with. May be repeated.",
)
@click.option(
    "--skip-damaged",
    is_flag=True,
    help="Skip damaged parts of entry logs. Entries stored only there are lost.",
)
def rebuild_index(data_dir: Path, config_files: tuple[Path, ...], skip_damaged: bool) -> None:
    """Build the index again from the entry logs and journals. The old one is kept beside it."""
    import structlog

    from bookie.errors import StorageError
    from bookie.index_rebuild import rebuild_index as rebuild
    from broker.app import StartError, bookie_config
    from broker.config_file import load_config
    from broker.data_directory import DataDirectory, DataDirectoryError
    from settings.reading import ConfigError

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        config = load_config(config_files, os.environ, {}).config
        directories = bookie_config(config, data_dir)
        with DataDirectory(data_dir):
            for ledger_directory in directories.ledgerDirectories:
                result = rebuild(
                    f"{ledger_directory}/current",
                    [f"{directory}/current" for directory in directories.journalDirectories],
                    _intact_test(config),
                    skip_damaged=skip_damaged,
                )
                _report(ledger_directory, result)
    except (ConfigError, DataDirectoryError, StartError, StorageError) as error:
        print(f"vela: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        sys.exit(EXIT_REFUSED)


def _intact_test(config: BrokerConfig) -> Callable[[bytes], bool]:
    """Recognises an intact entry: by any checksum without a key, and by that of new ledgers."""
    from protocol.bookkeeper.digests import Digest, DigestMismatch, DigestType, has_valid_crc

    if config.managedLedgerDigestType == "DUMMY":
        return lambda _body: True
    digest = Digest(DigestType.HMAC, config.managedLedgerPassword.encode())

    def is_intact(body: bytes) -> bool:
        if has_valid_crc(body):
            return True
        try:
            ids = int.from_bytes(body[:8], "big"), int.from_bytes(body[8:16], "big")
            digest.verify(body, *ids)
        except DigestMismatch:
            return False
        return True

    return is_intact


def _report(directory: str, result: Rebuilt) -> None:
    lines = [
        f"{directory}: {result.entries} entries of {result.ledgers} ledgers in {result.logs} "
        f"entry logs; the old index is in {result.replaced}"
    ]
    if not result.rows_kept:
        lines.append(
            "The rows of ledgers were also damaged. All ledgers are fenced now, deleted ones exist "
            f"until the next garbage collection, and {result.without_key} have no master key "
            "until a client sends one"
        )
    if result.damaged_bytes:
        lines.append(
            f"{result.damaged_bytes} damaged bytes were skipped; {len(result.in_limbo)} ledgers "
            "may lack entries, and reading one that is missing is an error"
        )
    for line in lines:
        click.echo(line)
