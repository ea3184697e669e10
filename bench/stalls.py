"""What held up Vela's event loop between two looks at its metrics."""

from __future__ import annotations

import urllib.request
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.parser import text_string_to_metric_families

from web.prometheus import STALL_CPU, STALL_WALL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compat_tests.oracle.server_process import ServerProcess

Counts = dict[tuple[str, str, str], dict[float, float]]
"""(series, kind, name) -> upper bound in seconds -> stalls up to it."""
SCRAPE_SECONDS_MAX: Final = 60.0


def look(server: ServerProcess) -> Counts:
    """The histograms now. None of real Pulsar."""
    with urllib.request.urlopen(f"{server.web_url}/metrics", timeout=SCRAPE_SECONDS_MAX) as page:
        lines = [line.decode() for line in page if b"vela_event_loop_stall" in line]
    return counts_of("".join(lines))


def counts_of(text: str) -> Counts:
    """From lines of a page."""
    found: Counts = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                key = family.name, sample.labels["kind"], sample.labels["name"]
                found[key][float(sample.labels["le"])] = sample.value
    return dict(found)


def between(before: Counts, after: Counts) -> dict[str, Any]:
    """How many turns and callbacks exceeded their budgets, and the longest turns by the clock and
    in CPU time: the bounds of their buckets in milliseconds, with the names."""
    new = {
        key: {bound: count - before.get(key, {}).get(bound, 0.0) for bound, count in each.items()}
        for key, each in after.items()
    }

    def of(series: str, kind: str) -> dict[str, dict[float, float]]:
        return {key[2]: each for key, each in new.items() if key[:2] == (series, kind)}

    found: dict[str, Any] = {
        f"{kind}s": sum(each[float("inf")] for each in of(STALL_WALL, kind).values())
        for kind in ("turn", "callback")
    }
    for title, series in (("longest", STALL_WALL), ("longest CPU", STALL_CPU)):
        found[f"{title} ms"], found[title] = _longest(of(series, "turn"))
    return found


def _longest(turns: Mapping[str, Mapping[float, float]]) -> tuple[float, str]:
    longest, longest_name = 0.0, ""
    for name, counts in turns.items():
        if not counts[float("inf")]:
            continue
        bounds = sorted(counts)
        reached = next(bound for bound in bounds if counts[bound] >= counts[float("inf")])
        if reached > longest:
            longest, longest_name = reached, name
    return longest * 1000, longest_name
