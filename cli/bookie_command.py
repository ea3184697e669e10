"""`vela bookie`, with its command `rebuild-index`: work on the files of a stopped bookie."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from bookie.process.command import bookie as command
from runtime.command_line import FilePath

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bookie.config import BookieConfig
    from bookie.index_rebuild import Rebuilt
    from broker.ground.config import BrokerConfig


@command.command("rebuild-index")
@click.option(
    "--data-dir",
    type=FilePath(exists=True, file_okay=False),
    help="The data directory of the stopped `vela standalone`; without it, of a `vela bookie`.",
)
@click.option(
    "--config",
    "config_files",
    type=FilePath(),
    multiple=True,
    help="The configuration files the server is started with. May be repeated.",
)
@click.option(
    "--skip-damaged",
    is_flag=True,
    help="Skip damaged parts of entry logs. Entries stored only there are lost.",
)
def rebuild_index(
    data_dir: Path | None, config_files: tuple[Path, ...], skip_damaged: bool
) -> None:
    """Rebuild the index from the entry logs and journals. The old one is kept beside it."""
    import structlog

    from bookie.errors import StorageError
    from broker.assembly.parts import StartError
    from broker.ground.data_directory import DataDirectoryError
    from runtime.command_line import refuse
    from settings.reading import ConfigError

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        if data_dir is None:
            _rebuild_of_process(config_files, skip_damaged)
        else:
            _rebuild_of_standalone(data_dir, config_files, skip_damaged)
    except (ConfigError, DataDirectoryError, StartError, StorageError) as error:
        refuse(str(error))


def _rebuild_of_process(config_files: tuple[Path, ...], skip_damaged: bool) -> None:
    """Rebuild the index of a bookie that is a process of its own. Raises: ConfigError,
    StorageError."""
    from bookie.process.config import BOOKIE_KEYS
    from bookie.process.running import lock_directories
    from protocol.bookkeeper.digests import has_valid_crc
    from settings.reading import load_config

    config = load_config(BOOKIE_KEYS, config_files, os.environ).config
    with ExitStack() as stack:
        lock_directories(stack, (*config.journalDirectories, *config.ledgerDirectories))
        # Passwords of ledgers are known to their clients only.
        _rebuild_all(config, has_valid_crc, skip_damaged)


def _rebuild_of_standalone(
    data_dir: Path, config_files: tuple[Path, ...], skip_damaged: bool
) -> None:
    """Raises: ConfigError, DataDirectoryError, StartError, StorageError."""
    from broker.assembly.embedded import bookie_config
    from broker.configuration.config_file import load_config
    from broker.ground.data_directory import DataDirectory

    config = load_config(config_files, os.environ, {}).config
    directories = bookie_config(config, data_dir)
    with DataDirectory(data_dir):
        _rebuild_all(directories, _intact_test(config), skip_damaged)


def _rebuild_all(
    config: BookieConfig, is_intact: Callable[[bytes], bool], skip_damaged: bool
) -> None:
    """Raises: StorageError."""
    from bookie.index_rebuild import rebuild_index as rebuild

    for ledger_directory in config.ledgerDirectories:
        result = rebuild(
            f"{ledger_directory}/current",
            [f"{directory}/current" for directory in config.journalDirectories],
            is_intact,
            skip_damaged=skip_damaged,
        )
        _report(ledger_directory, result)


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
    if result.damaged_bytes or result.missing_logs or result.in_limbo:
        lines.append(
            f"{result.damaged_bytes} damaged bytes and {result.missing_logs} missing entry logs "
            f"were skipped; {len(result.in_limbo)} ledgers may lack entries, and reading one that "
            "is missing is an error"
        )
    for line in lines:
        click.echo(line)
