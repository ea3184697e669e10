"""`vela standalone --brokers N --bookies M`: a cluster on one machine, under one parent process."""

from __future__ import annotations

import os
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from runtime.command_line import log_of_server, refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from cli.machine.plan import Machine
    from runtime.line_writer import LineWriter


def run_machine(
    brokers: int,
    bookies: int,
    data_directory: Path,
    config_files: tuple[Path, ...],
    overrides: Mapping[str, object],
    log_level: str,
    *,
    strict: bool,
    bookie_metrics_port: int | None,
) -> None:
    """Run the processes until SIGTERM or SIGINT. `overrides` are options by their keys.
    `bookie_metrics_port` as in `read_machine`."""
    from broker.assembly.cluster_config import listening_notices
    from cli.machine.plan import read_machine
    from cli.machine.running import socket_place
    from settings.reading import ConfigError, environment_settings, read_properties, report_settings

    lines = log_of_server(log_level)
    with ExitStack() as stack:
        try:
            settings = [each for path in config_files for each in read_properties(path)]
            settings += environment_settings(os.environ)
            socket_path = stack.enter_context(socket_place(data_directory))
            machine, loaded = read_machine(
                brokers,
                bookies,
                settings,
                overrides,
                socket_path,
                strict=strict,
                bookie_metrics_port=bookie_metrics_port,
            )
        except ConfigError as error:
            refuse(str(error))
        except OSError as error:
            refuse(f"no directory for sockets can be made: {error}")
        report_settings(loaded, [*machine.notices, *listening_notices(machine.config)])
        _run(machine, data_directory, socket_path, log_level, lines)


def _run(
    machine: Machine, data_directory: Path, socket_path: str, log_level: str, lines: LineWriter
) -> None:
    from bookie.errors import StorageError
    from broker.assembly.parts import StartError
    from broker.ground.data_directory import DataDirectoryError
    from metadata.store import MetadataUnavailable
    from runtime.process_shell import run_server
    from runtime.supervision import ChildFailed

    server = partial(_server, machine, data_directory, socket_path, log_level, lines)
    refusals = (ChildFailed, DataDirectoryError, MetadataUnavailable, StartError, StorageError)
    run_server("vela standalone", server, refusals)


@asynccontextmanager
async def _server(
    machine: Machine, data_directory: Path, socket_path: str, log_level: str, lines: LineWriter
) -> AsyncIterator[str]:
    """While it starts its children are killed at a signal; once it is ready they stop in order."""
    from cli.machine.running import running_machine

    async with running_machine(machine, data_directory, socket_path, log_level, lines) as running:
        yield " ".join(running.urls)
