"""What held up the event loop, on a Prometheus page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runtime.watchdog import LoopWatchdog
    from web.prometheus import Page

WALL: Final = "vela_event_loop_stall_seconds"
CPU: Final = "vela_event_loop_stall_cpu_seconds"
_WALL_HELP: Final = "Seconds of turns and callbacks of the event loop that exceeded their budget"
_CPU_HELP: Final = "CPU seconds of the same; the rest was waiting"


def add_stall_series(page: Page, watchdog: LoopWatchdog | None, labels: Mapping[str, str]) -> None:
    """Nothing if the loop is not watched."""
    if watchdog is None:
        return
    for (kind, name), stall in sorted(watchdog.stalls().items()):
        of_stall = {**labels, "kind": kind, "name": name}
        page.add_histogram(WALL, _WALL_HELP, of_stall, stall.wall)
        page.add_histogram(CPU, _CPU_HELP, of_stall, stall.cpu)
