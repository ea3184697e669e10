"""The cost of the broker while clients work: CPU seconds and resident memory of its processes."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import psutil

from bench.perf_client import PerfFailed

if TYPE_CHECKING:
    from pathlib import Path

    from bench.results import Figures
    from bench.subject import Subject

MEBIBYTE = 1024 * 1024


class BrokerMeter:
    """Reads the broker's CPU time on demand and its memory every two seconds."""

    def __init__(self, server: Subject) -> None:
        self._server = server
        self._resident_bytes_max = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> BrokerMeter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def resident_mebibytes_max(self) -> float:
        return self._resident_bytes_max / MEBIBYTE

    def _watch(self) -> None:
        while not self._stopped.wait(2.0):
            try:
                resident = self._server.resident_bytes()
            except psutil.NoSuchProcess:
                return
            self._resident_bytes_max = max(self._resident_bytes_max, resident)


def per_million(cpu_seconds: float, messages: int) -> float:
    """CPU seconds for a million messages at the cost seen for these.

    Raises: PerfFailed: there were none.
    """
    if messages <= 0:
        raise PerfFailed("no message passed while it was measured")
    return cpu_seconds * 1e6 / messages


def idle_figures(server: Subject, settle_seconds: float, watch_seconds: float) -> Figures:
    """CPU share and memory of an idle server."""
    time.sleep(settle_seconds)
    before = server.cpu_seconds()
    begun = time.monotonic()
    time.sleep(watch_seconds)
    spent = server.cpu_seconds() - before
    return {
        "idle CPU %": 100.0 * spent / (time.monotonic() - begun),
        "idle resident MB": server.resident_bytes() / MEBIBYTE,
    }


def write_out() -> None:
    """Write what is in the page cache, after a server was stopped: real Pulsar leaves gigabytes to
    the kernel, which would write them while the other server is measured."""
    os.sync()


def drop_from_page_cache(directory: Path, *, writes_out: bool = True) -> None:
    """Write everything out and ask the kernel to forget the files, so that reads are cold. Without
    the first step, which holds up whoever writes meanwhile, it keeps what is not written yet."""
    if writes_out:
        os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            try:
                opened = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue  # the server has just removed it
            try:
                os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(opened)
