"""What `make bench-flood` found: the victim's latencies beside each flood, Markdown and JSON."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ALONE: Final = "alone"
SAME: Final = "same"
OTHER: Final = "other"
RATIO_MAX: Final = 3.0
"""The victim's publish p99 on the flooded broker over that beside a second, flooded broker."""
FLOODS: Final = {
    "1KB": "one producer, 1 KB, at full speed",
    "1MB": "one producer, 1 MB, at full speed",
    "idle": "10,000 connections, idle",
    "connecting": "10,000 connections that connect, look up and leave",
    "acks": "a consumer that acknowledges one by one at full speed",
    "1KB limited": "one producer, 1 KB, namespace limited to 1,000 msg/s",
    "1MB limited": "one producer, 1 MB, namespace limited to 1,000 msg/s and 10 MB/s",
}
Key = tuple[str, str, str]
"""Server, flood (empty: none), place."""
Measured = dict[str, Any]


def spread(values: Iterable[float]) -> str:
    """The median, with the smallest and the largest in parentheses."""
    ordered = sorted(values)
    if not ordered:
        return "?"
    if len(ordered) == 1:
        return short(ordered[0])
    return f"{short(median(ordered))} ({short(ordered[0])} to {short(ordered[-1])})"


def short(value: float) -> str:
    """A figure in a cell."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


class Report:
    """The rounds of a run, by server, flood and place."""

    def __init__(self) -> None:
        self.rounds: dict[Key, list[Measured]] = defaultdict(list)
        self.failures: list[str] = []

    def add(self, server: str, flood: str, place: str, measured: Measured) -> None:
        """One measurement."""
        self.rounds[server, flood, place].append(measured)

    def restore(self, written: dict[str, Any]) -> None:
        """What `as_json` has made in an earlier run."""
        for each in written["rounds"]:
            self.rounds[each["server"], each["flood"], each["place"]] += each["measured"]
        self.failures += written["failures"]

    @property
    def rounds_begun(self) -> int:
        """How often it was measured alone, for one of the makes."""
        alone = [len(each) for (_, flood, _), each in self.rounds.items() if not flood]
        return max(alone, default=0)

    def ratio(self, server: str, flood: str) -> float | None:
        """Of the medians of p99; None: it was not measured."""
        same = self._values(server, flood, SAME, _p99)
        other = self._values(server, flood, OTHER, _p99)
        return median(same) / median(other) if same and other else None

    def missed(self) -> list[str]:
        """Floods of Vela over the bound, or without figures."""
        measured = {flood for server, flood, _ in self.rounds if server == "vela" and flood}
        ratios = {flood: self.ratio("vela", flood) for flood in FLOODS if flood in measured}
        return [flood for flood, ratio in ratios.items() if ratio is None or ratio > RATIO_MAX]

    def _values(
        self, server: str, flood: str, place: str, figure: Callable[[Measured], float]
    ) -> list[float]:
        return [figure(each) for each in self.rounds.get((server, flood, place), [])]

    def table(self) -> str:
        """One line per server and flood."""
        lines = [
            "| server | flood | place | publish p50 ms | publish p99 ms | end-to-end p99 ms"
            " | p99 ratio | flood per s | CPU of the flooded broker, of the flood |",
            "|---|---|---|---:|---:|---:|---:|---:|---:|",
        ]
        for server in sorted({key[0] for key in self.rounds}, reverse=True):
            lines.append(self._line(server, "", ALONE, ""))
            for flood in FLOODS:
                ratio = self.ratio(server, flood)
                if ratio is None:
                    continue
                shown = f"{ratio:.2g}"
                if server == "vela" and ratio > RATIO_MAX:
                    shown = f"**{shown}**"
                lines.append(self._line(server, flood, SAME, shown))
                lines.append(self._line(server, flood, OTHER, ""))
        return "\n".join(lines)

    def tables(self) -> str:
        """The table, and its bound."""
        return f"{self.table()}\n\nbound {RATIO_MAX:g}"

    def _line(self, server: str, flood: str, place: str, ratio: str) -> str:
        def of(figure: Callable[[Measured], float]) -> str:
            return spread(self._values(server, flood, place, figure))

        cells = [server, FLOODS.get(flood, "none"), _PLACES[place]]
        cells += [of(_p50), of(_p99), of(_end_to_end), ratio]
        cells.append(of(_rate) if flood else "")
        cells.append(f"{of(_broker_cpu)}, {of(_flood_cpu)}" if flood else "")
        return "| " + " | ".join(cells) + " |"

    def document(self, about: dict[str, Any]) -> str:
        """The whole page."""
        missed = self.missed()
        names = "; ".join(FLOODS[flood] for flood in missed)
        verdict = f"Over the bound: {names}." if missed else "No flood is over the bound."
        failed = "".join(f"* {each}\n" for each in self.failures)
        return (
            "# One tenant beside a flood of another\n\n"
            "Generated by `make bench-flood`; do not edit. Medians of the rounds, smallest and"
            f" largest in parentheses. {about['date']}, commit {about['commit']}, Vela"
            f" {about['vela']}, Apache Pulsar {about['pulsar']}, {about['machine']},"
            f" {about['rounds']} rounds of {about['seconds']:g} s each.\n\n"
            "The victim is a stock Python client: a producer of 1 KB messages, 500 a second, each"
            " by itself, and a consumer that reads the tail. Its latency counts from the time at"
            " which a message was due. The flood comes from another tenant, through frames made"
            " beforehand, so that the broker and not the client is its limit. It goes to the"
            " victim's broker, or, to show what it costs the machine, to a second broker beside."
            f" The p99 on the victim's broker may be at most {RATIO_MAX:g} times the p99 beside"
            " the second one. The CPU columns are processors, of the broker that is flooded and of"
            " the flood's client. Vela runs with `journalSyncData=true`, real Pulsar with its"
            " default, which does not sync.\n\n"
            f"{self.table()}\n\n{verdict}\n" + (f"\nNot counted:\n\n{failed}" if failed else "")
        )

    def as_json(self, about: dict[str, Any]) -> dict[str, Any]:
        """Everything measured."""
        return {
            "about": about,
            "ratios": {
                server: {flood: self.ratio(server, flood) for flood in FLOODS}
                for server in sorted({key[0] for key in self.rounds})
            },
            "rounds": [
                {"server": server, "flood": flood, "place": place, "measured": measured}
                for (server, flood, place), measured in self.rounds.items()
            ],
            "failures": self.failures,
        }


_PLACES: Final = {ALONE: "", SAME: "the victim's broker", OTHER: "a second broker"}


def _p50(measured: Measured) -> float:
    return float(measured["publish"]["p50"])


def _p99(measured: Measured) -> float:
    return float(measured["publish"]["p99"])


def _end_to_end(measured: Measured) -> float:
    return float(measured["end to end"]["p99"])


def _rate(measured: Measured) -> float:
    return float(measured["flood per s"])


def _broker_cpu(measured: Measured) -> float:
    return float(measured["flooded broker CPU"])


def _flood_cpu(measured: Measured) -> float:
    return float(measured["flood CPU"])
