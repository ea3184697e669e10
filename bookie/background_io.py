"""Reads of entry logs give way to the journal at the device: for readers, and for collections.

A synced write of the journal has to be answered now, and is small. The device serves in the order
of arrival, and Linux's scheduler prefers reads. So four reads of 1 MB that are under way all the
time make a write of 4 KB take 15 to 24 ms (p50, mq-deadline, direct reads at 1.4 GB/s, on a busy
machine); with the idle class for the reads it takes 3.

The class belongs to a thread, and trio's threads do other work as well. So it is set for a call,
and the thread has its old class afterwards. Any process may lower itself. Schedulers without
classes (`none`, for NVMe) and other systems ignore it.

The class also gives way to other programs. Journals leave gaps between their writes, in which the
idle class is served. Six programs that read all the time leave none: a synced write of 4 MB took
20 s instead of 0.03, as mq-deadline lets a request of this class wait up to `prio_aging_expire`
(10 s). Flushes are therefore not in this class, although a journal that writes groups of 2 MB would
gain (2.4 and 3.4 ms instead of 4.6 and 3.9): adds are refused when no flush makes room for them.
The copies of a compaction are not in it either, because flushes wait for them.

Numbers: ioprio_set(2), linux/ioprio.h. glibc has no function for it.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    _Call = Callable[..., int]

T = TypeVar("T")

_SET_AND_GET: Final = {"x86_64": (251, 252), "aarch64": (30, 31), "riscv64": (30, 31)}
"""System calls."""
_OF_A_THREAD: Final = 1
_THIS_ONE: Final = 0
_CLASS_SHIFT: Final = 13
IDLE: Final = 3 << _CLASS_SHIFT
"""IOPRIO_CLASS_IDLE: served while nothing else is under way, or after waiting long."""


def in_background(call: Callable[[], T]) -> T:
    """Call it in this thread. The disk serves all others before its reads and writes."""
    with _giving_way():
        return call()


def class_of_thread() -> int | None:
    """Class and level of this thread, as the system has them; None: it has none."""
    calls = _calls()
    if calls is None:
        return None
    value = calls[1](_OF_A_THREAD, _THIS_ONE)
    return value if value >= 0 else None


def settable(value: int) -> int:
    """The value that sets a thread to a class that was read. Some versions of Linux report a level
    with the default, class 0, and all refuse to set one with it."""
    return value if value >> _CLASS_SHIFT else 0


@contextmanager
def _giving_way() -> Iterator[None]:
    before = class_of_thread()
    calls = _calls()
    if calls is None or before is None or calls[0](_OF_A_THREAD, _THIS_ONE, IDLE) < 0:
        yield
        return
    try:
        yield
    finally:
        calls[0](_OF_A_THREAD, _THIS_ONE, settable(before))


@cache
def _calls() -> tuple[_Call, _Call] | None:
    """ioprio_set and ioprio_get. They keep the interpreter, because they never wait."""
    numbers = _SET_AND_GET.get(platform.machine())
    if numbers is None or not sys.platform.startswith("linux"):
        return None
    call = ctypes.PyDLL(None)["syscall"]
    call.restype = ctypes.c_long
    return (
        lambda *arguments: int(call(numbers[0], *arguments)),
        lambda *arguments: int(call(numbers[1], *arguments)),
    )
