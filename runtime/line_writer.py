"""Lines for stderr, written by a thread: a reader who stops does not stop the process.

The terminal or pipe behind stderr may take nothing for as long as it likes. Whoever writes there
waits, and an event loop must not. Lines wait here instead, up to a number of bytes. Those beyond it
are dropped, and a line says how many they were. Lines stay in their order.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

WAITING_BYTES_MAX: Final = 4 * 1024 * 1024
"""What children say in some seconds, however much they log."""
_STDERR: Final = 2


def write_to_stderr(data: bytes) -> None:
    """Raises: OSError."""
    while data:
        data = data[os.write(_STDERR, data) :]


@final
class LineWriter:
    """See the module docstring. `put` is for one thread; `close` at the end."""

    def __init__(
        self,
        write: Callable[[bytes], None] = write_to_stderr,
        waiting_bytes_max: int = WAITING_BYTES_MAX,
    ) -> None:
        """`write` takes whole lines, in a thread; it may wait, and raise OSError."""
        self._write = write
        self._waiting_bytes_max = waiting_bytes_max
        self._lock = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._dropped = 0
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def put(self, lines: str) -> None:
        """One or several lines, without the last line's end. Returns at once."""
        data = lines.encode(errors="replace") + b"\n"
        with self._lock:
            if self._is_closed:
                return
            if self._waiting_bytes + len(data) > self._waiting_bytes_max:
                self._dropped += data.count(b"\n")
                return
            self._waiting.append(data)
            self._waiting_bytes += len(data)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lines", daemon=True)
                self._thread.start()
            self._lock.notify()

    def close(self, seconds_max: float = 1.0) -> None:
        """Write what waits, for so long at most. Lines that come later are dropped."""
        with self._lock:
            self._is_closed = True
            self._lock.notify()
        if self._thread is not None:
            self._thread.join(seconds_max)

    def _run(self) -> None:
        while data := self._take():
            try:
                self._write(data)
            except OSError:
                return  # nobody reads any more, and there is nowhere to say so

    def _take(self) -> bytes:
        """What waits, when there is something; empty: closed."""
        with self._lock:
            while not self._waiting and not self._is_closed:
                self._lock.wait()
            data = b"".join(self._waiting)
            if self._dropped:
                data += b"%d lines were dropped here: stderr was not read\n" % self._dropped
            self._waiting.clear()
            self._waiting_bytes = self._dropped = 0
            return data
