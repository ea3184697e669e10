"""Lines for stderr, written by a thread: neither a stopped reader nor a full disk stops the
process.

The terminal, pipe or file at stderr may accept nothing for any length of time. A write to it blocks
or fails, and an event loop must do neither. Lines wait here instead, up to a number of bytes. Lines
beyond it, and lines that could not be written, are dropped and counted. As soon as writing works
again, a line reports how many were dropped, and why. Lines stay in their order.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

WAITING_BYTES_MAX: Final = 4 * 1024 * 1024
"""Enough for the lines of children in some seconds, however much they log."""
RETRY_SECONDS_MIN: Final = 1.0
RETRY_SECONDS_MAX: Final = 60.0
"""How long after a failure a notice of dropped lines is tried again, without any new line."""
NOT_READ: Final = "stderr was not read"
_STDERR: Final = 2


def write_to_stderr(data: bytes) -> int:
    """Returns how many bytes were written. Raises: OSError."""
    return os.write(_STDERR, data)


@final
class LineWriter:
    """See the module docstring. `write` is for any thread; `close` at the end."""

    def __init__(
        self,
        write: Callable[[bytes], int] = write_to_stderr,
        waiting_bytes_max: int = WAITING_BYTES_MAX,
        retry_seconds_min: float = RETRY_SECONDS_MIN,
    ) -> None:
        """`write` takes lines, in a thread, and returns how many bytes it took; it may wait, and
        raise OSError."""
        self._write = write
        self._waiting_bytes_max = waiting_bytes_max
        self._retry_seconds_min = retry_seconds_min
        self._lock = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._untold = 0
        """Lines that were dropped and that no notice has named."""
        self._reason = ""
        self._is_closed = False
        self._is_within_line = False
        """Whether what was written last ended within a line. Only the thread uses it."""
        self._thread: threading.Thread | None = None
        self.dropped_total = 0
        """Lines that were dropped since the start."""

    def write(self, lines: str) -> None:
        """One or several lines, without the last line's end. Returns at once."""
        data = lines.encode(errors="backslashreplace") + b"\n"
        with self._lock:
            if self._is_closed:
                return
            if self._waiting_bytes + len(data) > self._waiting_bytes_max:
                self._drop(data.count(b"\n"), NOT_READ)
                return
            self._waiting.append(data)
            self._waiting_bytes += len(data)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lines", daemon=True)
                self._thread.start()
            self._lock.notify()

    def close(self, seconds_max: float = 1.0) -> bool:
        """Write what waits, for so long at most; whether that is done. Lines that come later are
        dropped."""
        with self._lock:
            self._is_closed = True
            self._lock.notify()
            thread = self._thread
        if thread is not None:
            thread.join(seconds_max)
        return thread is None or not thread.is_alive()

    def _run(self) -> None:
        retry_seconds = self._retry_seconds_min
        while True:
            data, untold, reason, is_closed = self._take(retry_seconds)
            notice = f"{untold} lines were dropped here: {reason}\n".encode() if untold else b""
            # Lines dropped for want of room came after those that waited; failures came before.
            pieces = [data, notice] if reason == NOT_READ else [notice, data]
            if not self._write_all(b"".join(pieces), data, untold):
                retry_seconds = min(2 * retry_seconds, RETRY_SECONDS_MAX)
            else:
                retry_seconds = self._retry_seconds_min
            if is_closed:
                return

    def _take(self, retry_seconds: float) -> tuple[bytes, int, str, bool]:
        """What is to be written, when there is something: lines, the number of dropped lines to
        report with the reason, and whether this is the end."""
        with self._lock:
            while not self._waiting and not self._is_closed:
                if not self._lock.wait(retry_seconds if self._untold else None):
                    break
            data = b"".join(self._waiting)
            taken = data, self._untold, self._reason, self._is_closed
            self._waiting.clear()
            self._waiting_bytes = self._untold = 0
            return taken

    def _write_all(self, whole: bytes, data: bytes, untold: int) -> bool:
        """Whether all was written. If not, the lines of `data` that were not are dropped, and the
        `untold` ones stay so."""
        rest = b"\n" + whole if self._is_within_line and whole else whole
        try:
            while rest:
                written = self._write(rest)
                self._is_within_line = not rest[:written].endswith(b"\n")
                rest = rest[written:]
        except OSError as error:
            with self._lock:
                self._untold += untold
                lines = min(rest.count(b"\n"), data.count(b"\n"))
                self._drop(lines, f"stderr could not be written: {error.strerror}")
            return False
        return True

    def _drop(self, lines: int, reason: str) -> None:
        self._untold += lines
        self.dropped_total += lines
        self._reason = reason
