"""What `make bench-isolation` found: the victim's latencies beside each neighbour."""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from bench.flood_report import short, spread

if TYPE_CHECKING:
    from collections.abc import Callable

ALONE: Final = ""
P50_RATIO_MAX: Final = 2.0
P99_RATIO_MAX: Final = 3.0
P99_MS_MAX: Final = 10.0
NEIGHBOURS: Final = "neighbours"
SCRAPES: Final = "scrapes"
COLD_TOPICS: Final = "cold topics"
COLD_P99_MS_MAX: Final = 5.0
COLD_RATES_MB: Final = (10, 20, 40, 80)
COLD_RATE_MAX_MB: Final = 40
"""Up to which the bound holds."""
BESIDE: Final = {
    ALONE: "nothing",
    "cold": "20 subscriptions reading a cold backlog of 10 KB entries",
    "chunks": "a producer of 50 MB chunked messages",
    "1KB": "a producer of 1 KB at full speed",
    "metrics": "`/metrics`, again and again",
}
UNITS: Final = {"cold": "MB/s", "chunks": "MB/s", "1KB": "msg/s", "metrics": "pages/s"}
CASES: Final = {NEIGHBOURS: ("cold", "chunks", "1KB"), SCRAPES: ("metrics",)}
"""By part of the run; each is also measured alone."""
STILL: Final = "device still ms"
Key = tuple[str, str, str]
"""Server, part, case: a neighbour, or a rate in MB/s."""
Measured = dict[str, Any]


def _p50(measured: Measured) -> float:
    return float(measured["publish"]["p50"])


def _p99(measured: Measured) -> float:
    return float(measured["publish"]["p99"])


def _done(measured: Measured) -> float:
    return float(measured["done per s"])


class Report:
    """The rounds of a run."""

    def __init__(self, commit: str = "") -> None:
        """`commit`: what is added is measured of it."""
        self._commit = commit
        self.rounds: dict[Key, list[Measured]] = defaultdict(list)
        self.failures: list[str] = []

    def add(self, server: str, part: str, case: str, measured: Measured) -> None:
        """One measurement."""
        self.rounds[server, part, case].append({"commit": self._commit, **measured})

    def restore(self, written: dict[str, Any]) -> None:
        """What `as_json` has made in an earlier run."""
        for each in written["rounds"]:
            self.rounds[each["server"], each["part"], each["case"]] += [
                {"commit": written["about"]["commit"], **measured} for measured in each["measured"]
            ]
        self.failures += written["failures"]

    def _median(self, key: Key, figure: Callable[[Measured], float]) -> float | None:
        rounds = self.rounds.get(key, [])
        return median(map(figure, rounds)) if rounds else None

    def ratio(
        self, server: str, part: str, case: str, figure: Callable[[Measured], float]
    ) -> float | None:
        """Of the medians, to those alone; None: one of them was not measured."""
        beside = self._median((server, part, case), figure)
        alone = self._median((server, part, ALONE), figure)
        return beside / alone if beside is not None and alone else None

    def is_met(self, part: str, case: str) -> bool | None:
        """Whether Vela keeps the bounds; None: there is none, or nothing was measured."""
        p99 = self._median(("vela", part, case), _p99)
        if part == COLD_TOPICS:
            if p99 is None or int(case) > COLD_RATE_MAX_MB:
                return None
            return p99 <= COLD_P99_MS_MAX
        p50_ratio = self.ratio("vela", part, case, _p50)
        p99_ratio = self.ratio("vela", part, case, _p99)
        if case == ALONE or p99 is None or p50_ratio is None or p99_ratio is None:
            return None
        return p50_ratio <= P50_RATIO_MAX and p99_ratio <= P99_RATIO_MAX and p99 <= P99_MS_MAX

    def missed(self) -> list[str]:
        """What Vela was measured beside and does not keep its bounds."""
        return [
            f"{part}, {case}"
            for server, part, case in self.rounds
            if server == "vela" and self.is_met(part, case) is False
        ]

    @property
    def rounds_begun(self) -> int:
        """The most rounds that any case has."""
        return max((len(each) for each in self.rounds.values()), default=0)

    # --- the page -----------------------------------------------------------------------

    def table(self) -> str:
        """The neighbours: one line per server and case."""
        lines = [
            "| server | beside | publish p50 ms | of alone | publish p99 ms | of alone"
            " | the neighbour | disk still, ms | Vela's stalls | bounds |",
            "|---|---|---:|---:|---:|---:|---:|---:|---|---|",
        ]
        for part, cases in CASES.items():
            for server in ("vela", "pulsar"):
                lines += [
                    self._line(server, part, case)
                    for case in (ALONE, *cases)
                    if (server, part, case) in self.rounds
                ]
        return "\n".join(lines)

    def _line(self, server: str, part: str, case: str) -> str:
        key = server, part, case
        name = BESIDE[case]
        if part == SCRAPES:
            name += " (10,000 topics)"
        cells = [server, name]
        for figure in (_p50, _p99):
            cells.append(spread(map(figure, self.rounds[key])))
            ratio = self.ratio(server, part, case, figure) if case else None
            cells.append("" if ratio is None else f"{ratio:.2g}")
        cells.append(f"{spread(map(_done, self.rounds[key]))} {UNITS[case]}" if case else "")
        cells += [self._still(key), self._stalls(key)]
        cells.append(self._verdict(server, part, case))
        return "| " + " | ".join(cells) + " |"

    def cold_table(self) -> str:
        """Publishing on 150 topics beside cold reads of 50: one line per rate and server."""
        lines = [
            "| server | publishing MB/s | publish p50 ms | publish p99 ms | reading MB/s"
            " | disk still, ms | Vela's stalls | bound |",
            "|---|---:|---:|---:|---:|---:|---|---|",
        ]
        for server in ("vela", "pulsar"):
            for rate in COLD_RATES_MB:
                key = server, COLD_TOPICS, str(rate)
                if key not in self.rounds:
                    continue
                rounds = self.rounds[key]
                cells = [server, str(rate)]
                cells += [spread(map(figure, rounds)) for figure in (_p50, _p99, _done)]
                cells += [self._still(key), self._stalls(key), self._verdict(*key)]
                lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines)

    def tables(self) -> str:
        """Both."""
        return f"{self.table()}\n\n{self.cold_table()}"

    def commits(self) -> str:
        """Rounds of each case by commit."""
        lines = ["| server | part | case | rounds by commit |", "|---|---|---|---|"]
        for (server, part, case), rounds in sorted(self.rounds.items()):
            counts = Counter(each["commit"] for each in rounds)
            said = ", ".join(f"{count} of {name}" for name, count in counts.items())
            name = f"{case} MB/s" if part == COLD_TOPICS else BESIDE[case]
            lines.append(f"| {server} | {part} | {name} | {said} |")
        return "\n".join(lines)

    def _verdict(self, server: str, part: str, case: str) -> str:
        met = self.is_met(part, case) if server == "vela" else None
        return "" if met is None else "met" if met else "**missed**"

    def _still(self, key: Key) -> str:
        """Nothing, if the device was not watched."""
        watched = [float(each[STILL]) for each in self.rounds[key] if STILL in each]
        return spread(watched) if watched else ""

    def _stalls(self, key: Key) -> str:
        """Of all rounds: how many, and the longest turn by either clock."""
        looks = [each["stalls"] for each in self.rounds[key] if "stalls" in each]
        if not looks:
            return ""
        turns = sum(each["turns"] for each in looks)
        if not turns:
            return "no turn over 5 ms"
        said = [f"{turns:.0f} turns over 5 ms"]
        for title, clock in (("longest", ""), ("longest CPU", " of CPU")):
            longest = max(looks, key=lambda each: each[f"{title} ms"])
            said.append(f"up to {_bound(longest[f'{title} ms'])}{clock}: {longest[title]}")
        return "; ".join(said)

    def document(self, about: dict[str, Any]) -> str:
        """The whole page."""
        failed = "".join(f"* {each}\n" for each in self.failures)
        return (
            "# One producer beside heavy neighbours\n\n"
            "Generated by `make bench-isolation`; do not edit. Medians of the rounds, smallest and"
            f" largest in parentheses. {about['date']}, commit {about['commit']}, Vela"
            f" {about['vela']}, Apache Pulsar {about['pulsar']}, {about['machine']},"
            f" up to {about['rounds']} rounds of {about['seconds']:g} s each (the last table says"
            " how many). Both servers ran on this machine, one at a time (the other was"
            " stopped). Vela runs with `journalSyncData=true`, real Pulsar with its default, which"
            " does not sync.\n\n"
            "A stock Python client publishes 1 KB 500 times a second, each message by itself, and a"
            " consumer reads the tail. A latency counts from the time at which its message was due."
            " The neighbours are stock Python clients, too. The backlogs are written beforehand,"
            " and dropped from the page cache before they are read. Bounds: a p50 of at most"
            f" {P50_RATIO_MAX:g} times that alone, a p99 of at most {P99_RATIO_MAX:g} times that"
            f" alone and at most {P99_MS_MAX:g} ms. Stalls are what Vela's own watchdog counted"
            " ([its series](../operations/monitoring.md#stalls-of-the-event-loop)) in all rounds"
            " together; it knows the bounds of a bucket, not the time itself. `disk still`: the"
            " longest time in which the disk had requests and completed none. A sync of any process"
            " waits at least as long.\n\n"
            f"{self.table()}\n\n"
            "## 100 KB messages on 150 topics, 50 of them read cold\n\n"
            f"The p99 may be at most {COLD_P99_MS_MAX:g} ms, up to {COLD_RATE_MAX_MB} MB/s.\n\n"
            f"{self.cold_table()}\n\n"
            f"## What was measured of which commit\n\n{self.commits()}\n"
            + (f"\nNot counted:\n\n{failed}" if failed else "")
        )

    def as_json(self, about: dict[str, Any]) -> dict[str, Any]:
        """Everything measured."""
        return {
            "about": about,
            "missed": self.missed(),
            "rounds": [
                {"server": server, "part": part, "case": case, "measured": measured}
                for (server, part, case), measured in self.rounds.items()
            ],
            "failures": self.failures,
        }


def _bound(milliseconds: float) -> str:
    return "more than 1,000 ms" if milliseconds == float("inf") else f"{short(milliseconds)} ms"
