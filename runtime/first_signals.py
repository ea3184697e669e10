"""Handles signals before a process has begun its work: they end the process, with no traceback.

Loading the modules of a server takes longer than a second on a slow machine, and Ctrl-C during that
time would otherwise end in a traceback. A server ends with status 0, as after any stop; every other
command with 128 and the number of the signal. Nothing is open yet that would have to be closed.

A server takes its signals over when its event loop runs (`runtime.command_line.stop_signals`). All
other commands get Python's own handling back when they begin: they close their open files, and end
with the same status.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` takes longer to load than the rest
if TYPE_CHECKING:
    from types import TracebackType

_STATUS_OF_SIGNALS = 128
_INTERRUPT = 2
_SERVERS = frozenset({"autorecovery", "bookie", "broker", "standalone"})


def is_server(arguments: list[str]) -> bool:
    """Whether these arguments of `vela` run a process until it is stopped."""
    # `vela bookie rebuild-index` is a command of a command.
    has_more = len(arguments) > 1 and not arguments[1].startswith("-")
    return bool(arguments) and arguments[0] in _SERVERS and not has_more


def end_at_signals() -> None:
    """Call this first of all."""
    sys.excepthook = _end_by_interrupt
    import signal  # during which there is no handler yet

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def begin_work() -> None:
    """Call this before a command runs: Ctrl-C raises KeyboardInterrupt in all that are no servers,
    and other signals end them as usual."""
    if is_server(sys.argv[1:]):
        return
    import signal

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is _end:
            usual = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if usual else signal.SIG_DFL)


def _end(number: int, _frame: object = None) -> None:
    output = sys.modules.get("runtime.output")
    if output is not None:
        output.flush()
    os._exit(0 if is_server(sys.argv[1:]) else _STATUS_OF_SIGNALS + number)


def _end_by_interrupt(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """An exception hook for Ctrl-C while there is no other handler."""
    if issubclass(kind, KeyboardInterrupt):
        _end(_INTERRUPT)
    sys.__excepthook__(kind, error, trace)
