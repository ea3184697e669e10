"""The command line: `vela standalone`, `vela bookie`, `vela perf`, `vela pipeline`.

Every user error ends in one line on stderr that starts with `vela:` and a non-zero exit. A
traceback means a bug. The ready line is the only output on stdout; logs go to stderr.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, final

import click

from broker.bookie_command import bookie
from broker.data_directory import DEFAULT_DATA_DIRECTORY
from broker.perf.command import perf
from broker.pipeline_command import pipeline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import trio

    from broker.config import BrokerConfig
    from settings.reading import LoadedConfig

LEVELS: Final = ("debug", "info", "warning", "error")
EXIT_REFUSED: Final = 1


@final
class _Commands(click.Group):
    """Reports a wrong command or option like every other refusal: in one line."""

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
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise  # which prints the help
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        command = "vela" if context is None else context.command_path
        _refuse(f"{error.format_message()} (see: {command} --help)")


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="vela-broker", prog_name="vela", message="%(prog)s %(version)s")
def main() -> None:
    """Vela: a message broker that Apache Pulsar clients use unchanged."""


main.add_command(perf)
main.add_command(pipeline)
main.add_command(bookie)


@main.command()
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=DEFAULT_DATA_DIRECTORY,
    show_default=True,
    help="Where everything is kept. One process at a time.",
)
@click.option(
    "--in-memory", is_flag=True, help="Keep nothing: no files, everything is gone at exit."
)
@click.option(
    "--config",
    "config_files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="A file with Pulsar's keys; PULSAR_PREFIX_<key> variables override it. May be repeated.",
)
@click.option(
    "--strict-config", is_flag=True, help="Refuse keys that are not known instead of warning."
)
@click.option(
    "--broker-port", type=click.IntRange(0, 65535), help="Binary protocol; 0: a free port."
)
@click.option("--web-port", type=click.IntRange(0, 65535), help="HTTP; 0: a free port.")
@click.option("--bind-address", help="Address to listen on [default: 127.0.0.1].")
@click.option("--advertised-address", help="Host that clients are told to connect to.")
@click.option(
    "--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="For stderr."
)
def standalone(
    data_dir: Path,
    in_memory: bool,
    config_files: tuple[Path, ...],
    strict_config: bool,
    broker_port: int | None,
    web_port: int | None,
    bind_address: str | None,
    advertised_address: str | None,
    log_level: str,
) -> None:
    """Run broker and bookie in one process until SIGTERM or SIGINT."""
    from broker.config_file import load_config
    from settings.reading import ConfigError

    _log_to_stderr(log_level)
    overrides = {
        "brokerServicePort": broker_port,
        "webServicePort": web_port,
        "bindAddress": bind_address,
        "advertisedAddress": advertised_address,
    }
    try:
        loaded = load_config(config_files, os.environ, overrides, strict=strict_config)
    except ConfigError as error:
        _refuse(str(error))
    _report_settings(loaded, in_memory)
    _run(loaded.config, None if in_memory else data_dir)


def _run(config: BrokerConfig, data_directory: Path | None) -> None:
    from broker.hot_modules import use_compiled

    running = use_compiled()
    import trio

    from bookie.errors import StorageError
    from broker.app import StartError
    from broker.data_directory import DataDirectoryError

    _take_open_files(config)
    try:
        trio.run(_serve, config, data_directory, running)
    except* (StartError, DataDirectoryError, StorageError) as group:
        refusal = group
    else:
        return
    error: BaseException = refusal
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    _refuse(str(error))


def _take_open_files(config: BrokerConfig) -> None:
    import structlog

    from runtime import open_files

    limit = open_files.raise_open_files_limit()
    connections = open_files.connections_max(config.maxHttpServerConnections)
    if 0 < connections < open_files.CONNECTIONS_EXPECTED:
        structlog.get_logger().warning(
            "few connections are possible; raise the limit of open files (ulimit -n) for more",
            open_files_max=limit,
            connections_max=connections,
        )


async def _serve(config: BrokerConfig, data_directory: Path | None, running: str) -> None:
    import structlog
    import trio

    from broker.app import running_broker
    from broker.tuning import tune_process

    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            stop = trio.Event()
            nursery.start_soon(_watch_signals, signals, stop)
            async with running_broker(config, data_directory) as broker:
                tune_process()
                urls = f"{broker.broker_service_url} {broker.web_service_url}"
                if broker.bookie_address:
                    urls += f" bookie://{broker.bookie_address}"
                structlog.get_logger().info(f"running {running}")
                if not stop.is_set():
                    print(f"vela standalone ready: {urls}", flush=True)
                await stop.wait()
            nursery.cancel_scope.cancel()


async def _watch_signals(signals: AsyncIterator[int], stop: trio.Event) -> None:
    """The first signal stops cleanly, the second one immediately."""
    import structlog

    log = structlog.get_logger()
    async for number in signals:
        name = signal.Signals(number).name
        if stop.is_set():
            log.warning("stopping at once", signal=name)
            os._exit(128 + number)
        log.info("stopping", signal=name)
        stop.set()


def _log_to_stderr(level: str) -> None:
    import structlog

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _report_settings(loaded: LoadedConfig[BrokerConfig], in_memory: bool) -> None:
    """Log settings that have no effect. A stock file causes a few lines."""
    import structlog

    from broker.start_notices import start_notices

    log = structlog.get_logger()
    for notice in loaded.notices:
        setting = notice.setting
        log.warning(notice.text, key=setting.key, value=setting.shown_value, source=setting.source)
    if loaded.unknown:
        log.warning("unknown keys, ignored", keys=", ".join(loaded.unknown))
    for text in start_notices(loaded.config, in_memory=in_memory):
        log.warning(text)
    if loaded.without_effect_count:
        log.info(
            "known keys of Pulsar that have no effect in Vela", count=loaded.without_effect_count
        )


def _refuse(reason: str) -> NoReturn:
    line = " ".join(reason.split())
    print(f"vela: {line}", file=sys.stderr, flush=True)
    sys.exit(EXIT_REFUSED)


if __name__ == "__main__":
    main()
