"""The report of a run: figures by name, and the text for a person.

Pure. `Report` is written as JSON; times are seconds, sizes bytes. A figure that could not be
obtained is None ("?" in the text).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cli.perf.samples import histogram, summary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cli.perf.process_meter import Usage
    from cli.perf.samples import Samples
    from cli.perf.stage_metrics import Stage

HISTOGRAM_BUCKETS: Final = 100
_MEBIBYTE: Final = 1024 * 1024


@dataclass(slots=True)
class BrokerUse:
    """The resources used by the broker's processes."""

    cpu_seconds_subscribing: float
    cpu_seconds_delivering: float
    cpu_seconds_per_message: float
    memory_bytes: int
    """The highest of the readings before, between and after."""


@dataclass(slots=True)
class Report:
    """See the module docstring."""

    options: dict[str, Any]
    subscribe_all_seconds: float
    connect: dict[str, float | None]
    failed: int
    failures: dict[str, int]
    messages: int
    delivery: dict[str, float | None]
    expected: int
    received: int
    lost: int
    duplicated: int
    out_of_order: int
    corrupt: int
    foreign: int
    publish: dict[str, float | None]
    resumed: dict[str, float | int | None] = field(default_factory=dict)
    """The stuck consumers: their number, the time until they had everything, their losses."""
    neighbour: dict[str, Any] = field(default_factory=dict)
    """Latency of other clients of the broker, without and with the fan-out; see `neighbour`."""
    broker: BrokerUse | None = None
    generator_cpu_seconds: float = 0.0
    generator_cpu_seconds_per_message: float = 0.0
    """While the measured messages were delivered, by all of its processes."""
    stages: dict[str, dict[str, float | None]] = field(default_factory=dict)
    connect_histogram: dict[str, list[Any]] = field(default_factory=dict)
    delivery_histogram: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether every consumer was subscribed and got everything, undamaged."""
        return not (self.failed or self.lost or self.corrupt or self.resumed.get("lost"))

    def as_json(self) -> dict[str, Any]:
        """For json.dump."""
        return asdict(self)


def broker_use(
    before: Usage, subscribed: Usage, start: Usage, end: Usage, messages: int
) -> BrokerUse:
    """From readings before the run, after subscribing, and around the measured messages."""
    spent = end.cpu_seconds - start.cpu_seconds
    return BrokerUse(
        subscribed.cpu_seconds - before.cpu_seconds,
        spent,
        spent / messages if messages else 0.0,
        max(reading.memory_bytes for reading in (before, subscribed, start, end)),
    )


def connect_figures(times_ns: list[int]) -> tuple[dict[str, float | None], dict[str, list[Any]]]:
    """Percentiles and histogram of the time from a consumer's begin to its SUCCESS."""
    weighted = [(time / 1e9, 1) for time in times_ns]
    return summary(weighted), _as_histogram(weighted)


def delivery_figures(
    samples: Samples, first_sequence: int
) -> tuple[dict[str, float | None], dict[str, list[Any]]]:
    """Percentiles and histogram of the latency from the publish call to the arrival."""
    weighted = samples.weighted_seconds(first_sequence)
    return summary(weighted), _as_histogram(weighted)


def publish_figures(receipt_times_ns: list[int]) -> dict[str, float | None]:
    """Percentiles of the time from the publish call to the receipt."""
    return summary([(time / 1e9, 1) for time in receipt_times_ns])


def stage_figures(
    before: Mapping[str, Stage], after: Mapping[str, Stage]
) -> dict[str, dict[str, float | None]]:
    """Mean, p50 and p99 of each stage between two readings."""
    figures = {}
    for name, stage in after.items():
        spent = stage.since(before[name]) if name in before else stage
        figures[name] = {
            "mean": spent.mean_seconds,
            "p50": spent.percentile(0.5),
            "p99": spent.percentile(0.99),
        }
    return figures


def _as_histogram(weighted: list[tuple[float, int]]) -> dict[str, list[Any]]:
    edges, counts = histogram(weighted, HISTOGRAM_BUCKETS)
    return {"edges_seconds": edges, "counts": counts}


# ---- Text ----------------------------------------------------------------------------------------


def seconds_text(value: float | None) -> str:
    """A duration in readable form."""
    if value is None:
        return "?"
    if value < 0.001:
        return f"{value * 1e6:.0f} us"
    if value < 1:
        return f"{value * 1e3:.1f} ms"
    return f"{value:.2f} s"


def _row(name: str, figures: Mapping[str, float | None]) -> str:
    cells = "  ".join(f"{key} {seconds_text(value)}" for key, value in figures.items())
    return f"{name:<16}{cells}"


def _neighbour_lines(found: Mapping[str, Any]) -> list[str]:
    where = "on another broker" if found["on_another_broker"] else "on this broker"
    lines = [f"neighbours {where}, {found['rate']:g} messages a second ({found['unread']} unread)"]
    for name in ("topic", "second subscription"):
        if name not in found:
            continue
        figures = found[name]
        cells = []
        for part in ("p50", "p99"):
            before, beside = figures["before"][part], figures["beside"][part]
            ratio = figures["ratio"][part]
            times = "?" if ratio is None else f"{ratio:.2f}"
            cells.append(f"{part} {seconds_text(before)} -> {seconds_text(beside)} (x {times})")
        lines.append(f"  {name:<22}{'  '.join(cells)}  target: p99 x {found['ratio_max']:g}")
    return lines


def text(report: Report) -> str:
    """A few lines."""
    subscribed = int(report.options["consumers"]) - report.failed
    lines = [
        f"{'subscribed':<16}{subscribed:,} of {report.options['consumers']:,} consumers on"
        f" {report.options['connections']:,} connections in"
        f" {seconds_text(report.subscribe_all_seconds)}",
        _row("connect time", report.connect),
        _row("delivery", report.delivery),
        _row("publish", report.publish),
        f"{'received':<16}{report.received:,} of {report.expected:,}: {report.lost:,} lost,"
        f" {report.duplicated:,} duplicated, {report.out_of_order:,} out of order,"
        f" {report.corrupt:,} corrupt",
    ]
    if report.resumed:
        lines.append(
            f"{'resumed':<16}{report.resumed['consumers']:,} stuck consumers had everything after"
            f" {seconds_text(report.resumed['seconds'])}, {report.resumed['lost']:,} lost"
        )
    if report.neighbour:
        lines += _neighbour_lines(report.neighbour)
    use = report.broker
    if use is not None:
        lines.append(
            f"{'broker':<16}CPU {use.cpu_seconds_subscribing:.2f} s to subscribe all,"
            f" {seconds_text(use.cpu_seconds_per_message)} per message,"
            f" memory {use.memory_bytes / _MEBIBYTE:.0f} MB"
        )
    processes = min(report.options["processes"], report.options["connections"])
    lines.append(
        f"{'generator':<16}CPU {report.generator_cpu_seconds:.2f} s,"
        f" {seconds_text(report.generator_cpu_seconds_per_message)} per message,"
        f" {processes} {'process' if processes == 1 else 'processes'}"
    )
    if report.stages:
        lines.append("stages (percentiles are upper ends of buckets)")
        lines += [_row(f"  {name}", figures) for name, figures in report.stages.items()]
    lines += [f"failed: {count:,} x {reason}" for reason, count in report.failures.items()]
    return "\n".join(lines)
