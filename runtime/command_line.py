"""The common parts of commands that run a process: options, log, signals, refusals.

Every user error ends in one line on stderr that starts with `vela:` and a non-zero exit. A
traceback means a bug. A ready line is the only output on stdout; logs go to stderr.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import trio

Command = TypeVar("Command", bound="Callable[..., Any]")

REPEAT_SECONDS: Final = 0.5
"""`timeout` sends its signal to the process and then to its group: that is one request to stop."""
LEVELS: Final = ("debug", "info", "warning", "error")
EXIT_REFUSED: Final = 1


def configuration_options(file: str) -> Callable[[Command], Command]:
    """Options `config_files` and `strict_config`; `file` names the kind of file."""
    files = click.option(
        "--config",
        "config_files",
        type=click.Path(path_type=Path),
        multiple=True,
        help=f"{file}; PULSAR_PREFIX_<key> variables override it. May be repeated.",
    )
    strict = click.option(
        "--strict-config", is_flag=True, help="Refuse unknown keys instead of warning."
    )
    return lambda command: files(strict(command))


def log_level_option(command: Command) -> Command:
    """Option `log_level`."""
    choice = click.Choice(LEVELS)
    option = click.option(
        "--log-level", type=choice, default="info", show_default=True, help="For stderr."
    )
    return option(command)


async def watch_signals(signals: AsyncIterator[int], stop: trio.Event) -> None:
    """The first signal stops cleanly, a later one immediately."""
    import structlog
    import trio

    log = structlog.get_logger()
    stopped_at = 0.0
    async for number in signals:
        name = signal.Signals(number).name
        if stop.is_set():
            if trio.current_time() - stopped_at < REPEAT_SECONDS:
                continue
            log.warning("stopping at once", signal=name)
            os._exit(128 + number)
        log.info("stopping", signal=name)
        stopped_at = trio.current_time()
        stop.set()


def log_to_stderr(level: str) -> None:
    """Log lines of this level and above, for people."""
    import structlog

    from runtime.spared_lines import SparedLines

    structlog.configure(
        processors=[
            SparedLines(),
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error in a group of groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def refuse(reason: str) -> NoReturn:
    """End the process with one line."""
    line = " ".join(reason.split())
    print(f"vela: {line}", file=sys.stderr, flush=True)
    sys.exit(EXIT_REFUSED)
