"""`vela standalone --brokers N --bookies M`: a cluster on one machine, under one parent process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from runtime.command_line import (
    first_of,
    log_of_server,
    refuse,
    say_ready,
    stop_signals,
    watch_signals,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import trio

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
) -> None:
    """Run the processes until SIGTERM or SIGINT. `overrides` are options by their keys."""
    from broker.assembly.cluster_config import listening_notices
    from cli.machine.plan import read_machine
    from cli.machine.running import socket_path_in
    from settings.reading import ConfigError, environment_settings, read_properties, report_settings

    lines = log_of_server(log_level)
    socket_path = socket_path_in(data_directory)
    try:
        settings = [each for path in config_files for each in read_properties(path)]
        settings += environment_settings(os.environ)
        machine, loaded = read_machine(
            brokers, bookies, settings, overrides, socket_path, strict=strict
        )
    except ConfigError as error:
        refuse(str(error))
    report_settings(loaded, [*machine.notices, *listening_notices(machine.config)])
    _run(machine, data_directory, socket_path, log_level, lines)


def _run(
    machine: Machine, data_directory: Path, socket_path: str, log_level: str, lines: LineWriter
) -> None:
    import trio

    from bookie.errors import StorageError
    from broker.assembly.parts import StartError
    from broker.ground.data_directory import DataDirectoryError
    from metadata.store import MetadataUnavailable
    from runtime.supervision import ChildFailed

    try:
        trio.run(_serve, machine, data_directory, socket_path, log_level, lines)
    except* (
        ChildFailed,
        DataDirectoryError,
        MetadataUnavailable,
        StartError,
        StorageError,
    ) as group:
        refusal = group
    else:
        return
    refuse(str(first_of(refusal)))


async def _serve(
    machine: Machine, data_directory: Path, socket_path: str, log_level: str, lines: LineWriter
) -> None:
    import trio

    from cli.machine.running import running_machine

    with stop_signals() as signals:
        async with trio.open_nursery() as nursery:
            stop, ready = trio.Event(), trio.Event()
            nursery.start_soon(watch_signals, signals, stop)
            with trio.CancelScope() as starting:
                nursery.start_soon(_cancel_start, starting, stop, ready)
                async with running_machine(
                    machine, data_directory, socket_path, log_level, lines
                ) as running:
                    ready.set()
                    urls = " ".join(running.urls)
                    nursery.start_soon(say_ready, f"vela standalone ready: {urls}")
                    await stop.wait()
            nursery.cancel_scope.cancel()


async def _cancel_start(scope: trio.CancelScope, stop: trio.Event, ready: trio.Event) -> None:
    """A start may wait for long. Its children are killed; those that are ready stop in order."""
    await stop.wait()
    if not ready.is_set():
        scope.cancel()
