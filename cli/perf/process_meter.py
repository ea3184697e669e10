"""CPU time and memory of a process and its children, from /proc. Linux only, no library needed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_KIBIBYTE: Final = 1024
_PARENT, _USER, _SYSTEM, _WAITED_USER, _WAITED_SYSTEM = 1, 11, 12, 13, 14
"""Fields of /proc/<pid>/stat, counted after the name, which is in parentheses."""


class NoSuchProcess(Exception):
    """There is no process with this id, or it belongs to another user."""


@dataclass(frozen=True, slots=True)
class Usage:
    """At one moment."""

    cpu_seconds: float
    memory_bytes: int
    """Proportional set size: each page once, also where a JVM maps its heap at several places."""


def usage(process_id: int) -> Usage:
    """The usage of the process and all its descendants.

    Raises: NoSuchProcess.
    """
    cpu_seconds = 0.0
    memory_bytes = 0
    for each in _family(process_id):
        try:
            cpu_seconds += _cpu_seconds(each)
            memory_bytes += _memory_bytes(each)
        except OSError as error:
            if each == process_id:
                raise NoSuchProcess(f"process {process_id}: {error.strerror}") from None
            # A child that has just ended: its time is in its parent's.
    return Usage(cpu_seconds, memory_bytes)


def _stat(process_id: int) -> list[str]:
    text = (_PROC / str(process_id) / "stat").read_text()
    return text[text.rindex(")") + 2 :].split()


def _cpu_seconds(process_id: int) -> float:
    fields = _stat(process_id)
    ticks = (int(fields[at]) for at in (_USER, _SYSTEM, _WAITED_USER, _WAITED_SYSTEM))
    return sum(ticks) / _TICKS_PER_SECOND


def _memory_bytes(process_id: int) -> int:
    for line in (_PROC / str(process_id) / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * _KIBIBYTE
    return 0


def _family(process_id: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                parent = int(_stat(int(entry.name))[_PARENT])
            except (OSError, ValueError):
                continue  # it has just ended
            children.setdefault(parent, []).append(int(entry.name))
    family = [process_id]
    for each in family:
        family += children.get(each, [])
    return family
