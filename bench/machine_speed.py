"""How fast the machine is at the moment, so that figures of two machines, or of two hours of one,
can be told apart.

A loop of the interpreter stands for the processor. A copy into new memory stands for what the
kernel does for each page, of which much is copied here. The memory is mapped for each try: the
allocator of the C library gives memory out again that a process had before, which has its pages
already and takes a quarter of the time. Neither depends on Vela or on Pulsar.
"""

from __future__ import annotations

import mmap
import time
from dataclasses import dataclass

_STEPS = 500_000
_BLOCK_BYTES = 8 << 20
_BLOCKS = 8
_TIMES = 3


@dataclass(frozen=True)
class MachineSpeed:
    """The best of a few tries."""

    loop_ms: float
    """CPU time of half a million steps of a Python loop."""
    copy_gb_s: float
    """Bytes copied into new memory, 10^9 in a second."""


def machine_speed() -> MachineSpeed:
    """Takes about a quarter of a second of one processor, and 64 MB."""
    return MachineSpeed(
        loop_ms=min(_loop_seconds() for _ in range(_TIMES)) * 1e3,
        copy_gb_s=_BLOCK_BYTES * _BLOCKS / min(_copy_seconds() for _ in range(_TIMES)) / 1e9,
    )


def _loop_seconds() -> float:
    begun = time.process_time()
    total = 0
    for step in range(_STEPS):
        total += step
    return time.process_time() - begun


def _copy_seconds() -> float:
    source = bytes(_BLOCK_BYTES)
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    with mmap.mmap(-1, _BLOCK_BYTES * _BLOCKS, flags=private) as memory:
        begun = time.perf_counter()
        for _ in range(_BLOCKS):
            memory.write(source)
        return time.perf_counter() - begun
