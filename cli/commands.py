"""The command line: `vela standalone`, `vela bookie`, `vela perf`, `vela pipeline`, and the tools
of a cluster, whose modules are loaded when they are asked for.

Every user error ends in one line on stderr that starts with `vela:` and a non-zero exit. A
traceback means a bug. The ready line is the only output on stdout; logs go to stderr.
"""

from __future__ import annotations

import os
import sys
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final, final

import click

from runtime.command_line import (
    EXIT_INTERRUPTED,
    FilePath,
    configuration_options,
    first_of,
    log_level_option,
    log_of_server,
    refuse,
)
from runtime.deferred import defer, take_part
from runtime.output import OutputFailed, leave_stdout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from broker.ground.config import BrokerConfig

DEFAULT_DATA_DIRECTORY: Final = "data/standalone"
MACHINE_BROKERS_MAX: Final = 64
MACHINE_BOOKIES_MAX: Final = 16
LOADED_WHEN_ASKED_FOR: Final[Mapping[str, str]] = {
    "autorecovery": "autorecovery.command",
    "bookie": "cli.bookie_command",
    "bookie-decommission": "autorecovery.decommission_command",
    "broker": "cli.broker_command",
    "copy-metadata": "cli.metadata_copy.command",
    "initialize-cluster-metadata": "cli.cluster_command",
    "ledger": "cli.orphans.command",
    "perf": "cli.perf.command",
    "pipeline": "cli.pipeline_command",
    "tokens": "security.authentication.tokens_command",
}
"""Modules of commands that `vela standalone` does not need; `command` is the command."""
DEFERRED: Final = ("argparse", "asyncio", "difflib", "hashlib", "hmac", "ssl")
"""Modules that are imported for what few brokers do, or none: crc32c, structlog and trio have parts
for other programs; OpenSSL has 5 MB."""


@final
class _Commands(click.Group):
    """Reports a wrong command or option like every other refusal: in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, sorted."""
        return sorted({*super().list_commands(ctx), *LOADED_WHEN_ASKED_FOR})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One of them; None: there is none of this name."""
        module = LOADED_WHEN_ASKED_FOR.get(cmd_name)
        if module is None:
            return super().get_command(ctx, cmd_name)
        found: click.Command = import_module(module).command
        return found

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: object,
    ) -> click.Context:
        """Parse the arguments before the command."""
        del info_name
        with _refusing_usage():
            return super().make_context("vela", args, parent, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Parse the command's own options, and run it."""
        with _refusing_usage():
            return super().invoke(ctx)


@contextmanager
def _refusing_usage() -> Iterator[None]:
    try:
        try:
            yield
            sys.stdout.flush()
        except* KeyboardInterrupt:  # of which trio makes groups
            sys.exit(EXIT_INTERRUPTED)
        except* OutputFailed as group:
            leave_stdout()
            failed = first_of(group)
            refuse(f"cannot write to stdout: {getattr(failed, 'strerror', failed)}")
    except click.exceptions.NoArgsIsHelpError:
        raise  # which prints the help
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        command = "vela" if context is None else context.command_path
        refuse(f"{error.format_message()} (see: {command} --help)")


def load_less() -> None:
    """Call before anything else is imported."""
    for module in DEFERRED:
        defer(module)
    take_part("crc32c", "_crc32c")  # the rest reads the metadata of all that is installed


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="vela-broker", prog_name="vela", message="%(prog)s %(version)s")
def main() -> None:
    """Vela: a message broker that Apache Pulsar clients use unchanged."""
    from native.hot_modules import use_compiled

    load_less()
    click.get_current_context().obj = use_compiled


@main.command()
@click.option(
    "--data-dir",
    type=FilePath(),
    default=DEFAULT_DATA_DIRECTORY,
    show_default=True,
    help="Directory of all data. One process at a time can use it.",
)
@click.option("--in-memory", is_flag=True, help="Write no files. All data is gone at exit.")
@configuration_options("A file with Pulsar's keys")
@click.option(
    "--broker-port", type=click.IntRange(0, 65535), help="Binary protocol; 0: a free port."
)
@click.option("--web-port", type=click.IntRange(0, 65535), help="HTTP; 0: a free port.")
@click.option(
    "--brokers",
    type=click.IntRange(1, MACHINE_BROKERS_MAX),
    default=1,
    show_default=True,
    help="Processes that share the topics; the ports given are the first one's.",
)
@click.option(
    "--bookies",
    type=click.IntRange(1, MACHINE_BOOKIES_MAX),
    help="Bookies in processes of their own [default: one in the broker's process].",
)
@click.option(
    "--bookie-metrics-port",
    type=click.IntRange(0, 65535),
    help="/metrics of the first of these bookies, the others follow; 0: free ports, which the log"
    " names [default: none].",
)
@click.option("--bind-address", help="Address to listen on [default: 127.0.0.1].")
@click.option("--advertised-address", help="Host in lookup answers, to which clients connect.")
@log_level_option
def standalone(
    data_dir: Path,
    in_memory: bool,
    config_files: tuple[Path, ...],
    strict_config: bool,
    broker_port: int | None,
    web_port: int | None,
    brokers: int,
    bookies: int | None,
    bookie_metrics_port: int | None,
    bind_address: str | None,
    advertised_address: str | None,
    log_level: str,
) -> None:
    """Run broker and bookie in one process, or several processes, until SIGTERM or SIGINT."""
    from broker.configuration.config_file import load_config
    from broker.configuration.start_notices import start_notices
    from settings.reading import ConfigError, report_settings

    log_of_server(log_level)
    overrides = {
        "brokerServicePort": broker_port,
        "webServicePort": web_port,
        "bindAddress": bind_address,
        "advertisedAddress": advertised_address,
    }
    if brokers > 1 or bookies is not None:
        from cli.machine.command import run_machine

        if in_memory:
            refuse("--in-memory is one process: leave --brokers and --bookies out")
        run_machine(
            brokers,
            bookies or 1,
            data_dir,
            config_files,
            overrides,
            log_level,
            strict=strict_config,
            bookie_metrics_port=bookie_metrics_port,
        )
        return
    if bookie_metrics_port is not None:
        refuse(
            "--bookie-metrics-port is for --bookies: the metrics of the broker have its bookie's"
        )
    try:
        loaded = load_config(config_files, os.environ, overrides, strict=strict_config)
    except ConfigError as error:
        refuse(str(error))
    report_settings(loaded, start_notices(loaded.config, in_memory=in_memory))
    _run(loaded.config, None if in_memory else data_dir)


def _run(config: BrokerConfig, data_directory: Path | None) -> None:
    from native.hot_modules import use_compiled

    modules = use_compiled()
    from bookie.errors import StorageError
    from broker.assembly.parts import StartError
    from broker.ground.data_directory import DataDirectoryError
    from metadata.store import MetadataUnavailable
    from runtime.open_files import take_open_files
    from runtime.process_shell import prepare_process, run_server

    take_open_files(config.maxHttpServerConnections)
    prepare_process(("broker.assembly.app",))
    server = partial(_server, config, data_directory, modules)
    refusals = (StartError, DataDirectoryError, StorageError, MetadataUnavailable)
    run_server("vela standalone", server, refusals)


@asynccontextmanager
async def _server(
    config: BrokerConfig, data_directory: Path | None, modules: str
) -> AsyncIterator[str]:
    from broker.assembly.app import running_broker
    from runtime.process_shell import settled
    from runtime.watchdog import watching_if

    with watching_if(config.eventLoopWatchdogEnabled):
        async with running_broker(config, data_directory) as broker, settled(modules):
            urls = " ".join(broker.address.service_urls)
            yield f"{urls} bookie://{broker.bookie_address}" if broker.bookie_address else urls
