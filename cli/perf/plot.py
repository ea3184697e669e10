"""The plot of a run: connect times and message latencies.

matplotlib is not among the broker's requirements: with its dependencies it is larger than the
broker, and only this plot needs it. `check_available` says how to install it.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, Final

from cli.perf.report import seconds_text

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from cli.perf.report import Report

_MARKED: Final = ("p50", "p99", "max")


class PlotsUnavailable(Exception):
    """matplotlib is not installed. The text says what to do."""


def check_available() -> None:
    """Raises: PlotsUnavailable."""
    if importlib.util.find_spec("matplotlib") is None:
        raise PlotsUnavailable(
            "--png needs matplotlib: pip install matplotlib, or leave --png away"
        )


def write(report: Report, path: Path) -> None:
    """Write the PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    connect, delivery = figure.subplots(1, 2)
    options = report.options
    figure.suptitle(
        f"{options['consumers']:,} consumers on {options['connections']:,} connections,"
        f" mode {options['mode']}: {report.messages} messages of {options['size']:,} bytes"
        f" at {options['rate']:g} msg/s"
    )
    _histogram(connect, report.connect_histogram, report.connect, "consumers")
    connect.set_title(f"connecting (all: {seconds_text(report.subscribe_all_seconds)})")
    _histogram(delivery, report.delivery_histogram, report.delivery, "messages")
    delivery.set_title(
        f"delivery ({report.lost:,} lost, {report.duplicated:,} duplicated,"
        f" {report.out_of_order:,} out of order)"
    )
    figure.savefig(path, dpi=110)


def _histogram(
    panel: Axes,
    buckets: dict[str, list[Any]],
    marks: dict[str, float | None],
    what: str,
) -> None:
    edges, counts = buckets["edges_seconds"], buckets["counts"]
    panel.stairs(counts, edges, fill=True, color="tab:blue", alpha=0.7)
    for name, color in zip(_MARKED, ("tab:green", "tab:orange", "tab:red"), strict=True):
        value = marks[name]
        if value is not None:
            panel.axvline(value, color=color, label=f"{name} {seconds_text(value)}")
    panel.set_xlabel("seconds")
    panel.set_ylabel(what)
    panel.set_xlim(left=0)
    panel.grid(alpha=0.3)
    panel.legend()
