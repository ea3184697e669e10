"""The output of a process: stdout, and stderr with the lines of its log.

- The descriptors 0, 1 and 2 are always open, so that no file of the process gets their numbers and
  with it the output for stdout or stderr.
- If a command cannot write to stdout, it raises `OutputFailed`, or BrokenPipeError if the reader
  has left.
- A failed write to stderr ends nothing. A server writes there through a thread
  (`runtime.line_writer`), so that a stopped reader does not stop it either.
"""

from __future__ import annotations

import atexit
import errno
import io
import os
import sys
import threading
from typing import TYPE_CHECKING, Final, final

from runtime.line_writer import LineWriter

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STDOUT: Final = 1
_STDERR: Final = 2
FLUSH_SECONDS_MAX: Final = 1.0
"""How long the end of a server waits for the reader of its log."""


class OutputFailed(OSError):
    """Stdout cannot be written. `strerror` says why."""


def take_output() -> None:
    """Call this once, before anything is written or opened."""
    for descriptor in range(_STDERR + 1):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest number
    was = sys.stdout or sys.__stdout__
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Stdout(_STDOUT, "wb", closefd=False)),
        encoding=getattr(was, "encoding", "utf-8"),
        errors=getattr(was, "errors", "strict"),
        line_buffering=os.isatty(_STDOUT),
    )
    sys.stderr = io.TextIOWrapper(
        _Stderr(_STDERR, "wb", closefd=False),
        encoding=getattr(sys.stderr, "encoding", "utf-8"),
        errors="backslashreplace",
        write_through=True,
    )


def leave_stdout() -> None:
    """Do not write the rest for stdout at the end, because it cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)


def write_stderr_in_background() -> LineWriter:
    """Let a thread write what the process says on stderr from now on; it is given all lines in
    their order. Returns that of the process, which is made once."""
    if isinstance(sys.stderr, LineStream):
        return sys.stderr.lines
    stream = LineStream(LineWriter(), is_terminal=os.isatty(_STDERR))
    before, sys.stderr = sys.stderr, stream

    def end() -> None:
        if stream.end():
            sys.stderr = before  # for what the interpreter may say later

    atexit.register(end)
    return stream.lines


def flush() -> None:
    """Write what waits, before an end that does not come back here."""
    if isinstance(sys.stderr, LineStream):
        sys.stderr.end()


@final
class LineStream(io.TextIOBase):
    """Text for stderr, which goes on by whole lines."""

    encoding = "utf-8"

    def __init__(self, lines: LineWriter, *, is_terminal: bool) -> None:
        self.lines = lines
        self._is_terminal = is_terminal
        self._lock = threading.RLock()
        self._rest = ""

    def writable(self) -> bool:
        """It is."""
        return True

    def isatty(self) -> bool:
        """Whether a person reads it."""
        return self._is_terminal

    def fileno(self) -> int:
        """The descriptor, for what bypasses this stream."""
        return _STDERR

    def write(self, text: str) -> int:
        """Returns at once."""
        with self._lock:
            whole, end, rest = (self._rest + text).rpartition("\n")
            self._rest = rest
            if end:
                self.lines.write(whole)
        return len(text)

    def end(self) -> bool:
        """Write what waits; whether that is done."""
        with self._lock:
            if self._rest:
                self.lines.write(self._rest)
                self._rest = ""
        return self.lines.close(FLUSH_SECONDS_MAX)


@final
class _Stdout(io.FileIO):
    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            raise OutputFailed(error.errno, error.strerror) from error


@final
class _Stderr(io.FileIO):
    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError:  # there is nowhere to say so; the status of the process does
            return len(memoryview(data))
