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
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, final

import click

from runtime.output import flush, write_stderr_in_background

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractContextManager

    import trio

    from runtime.line_writer import LineWriter

Command = TypeVar("Command", bound="Callable[..., Any]")

REPEAT_SECONDS: Final = 0.5
"""`timeout` sends its signal to the process and then to its group: that is one request to stop."""
LEVELS: Final = ("debug", "info", "warning", "error")
EXIT_REFUSED: Final = 1
EXIT_INTERRUPTED: Final = 130
_STDOUT: Final = 1


@final
class FilePath(click.Path):
    """The path of a file or directory. An empty one, as of a variable of a script that has no
    value, is refused: it would be the working directory."""

    def __init__(self, *, exists: bool = False, file_okay: bool = True) -> None:
        super().__init__(exists=exists, file_okay=file_okay, path_type=Path)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """A Path."""
        if value == "":
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


def configuration_options(file: str) -> Callable[[Command], Command]:
    """Options `config_files` and `strict_config`; `file` names the kind of file."""
    files = click.option(
        "--config",
        "config_files",
        type=FilePath(),
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


def stop_signals() -> AbstractContextManager[AsyncIterator[int]]:
    """The signals that stop a server in good order: SIGTERM, SIGINT, and SIGHUP, with which a
    terminal ends its processes. `nohup` has SIGHUP ignored, and it remains so."""
    import trio

    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return trio.open_signal_receiver(*numbers)


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
            flush()
            os._exit(128 + number)
        log.info("stopping", signal=name)
        stopped_at = trio.current_time()
        stop.set()


async def say_ready(line: str) -> None:
    """Write the one line for stdout. Run it as a task: a reader may not read. A server that cannot
    say that it is ready serves all the same, and says so in its log."""
    import structlog
    import trio

    try:
        await trio.to_thread.run_sync(_write_stdout, f"{line}\n".encode(), abandon_on_cancel=True)
    except OSError as error:
        structlog.get_logger().warning(
            "the ready line cannot be written to stdout", error=error.strerror, line=line
        )


def _write_stdout(data: bytes) -> None:
    while data:
        data = data[os.write(_STDOUT, data) :]


def log_of_server(level: str) -> LineWriter:
    """Log lines of this level and above, for people, by a thread: neither a full disk nor a reader
    who stops stops the server. Returns where all its lines go, for those of its children."""
    lines = write_stderr_in_background()
    log_to_stderr(level)
    return lines


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
