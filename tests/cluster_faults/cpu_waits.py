"""How long processes were ready to run and had no CPU: what a busy machine adds to every pause.

Source: /proc/<pid>/task/<tid>/schedstat of Linux, whose second number are the nanoseconds spent
waiting on a run queue. Elsewhere nothing is known, and nothing is added.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterable


def waited_seconds(process_id: int) -> float:
    """Of all threads of a process together; 0 if it is gone."""
    total = 0
    for path in Path(f"/proc/{process_id}/task").glob("*/schedstat"):
        try:
            total += int(path.read_text().split()[1])
        except (OSError, IndexError, ValueError):
            continue  # the thread has ended
    return total / 1e9


@final
class CpuWaits:
    """From its making on. Processes that come later are not counted."""

    def __init__(self, process_ids: Iterable[int]) -> None:
        self._before = {each: waited_seconds(each) for each in process_ids}

    def longest_seconds(self) -> float:
        """Of the process that waited most."""
        waited = (waited_seconds(each) - before for each, before in self._before.items())
        return max(0.0, *waited)
