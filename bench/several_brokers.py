"""What a message costs with one, two and four brokers on one machine, and one bookie beside them.

Ten topics are written as fast as the machine can, by stock pulsar-perf, 1 KB, unbatched or batched.
Every round starts each machine anew, one after the other. CPU per message must not grow by more
than a fifth over that of one broker.

    python -m bench.several_brokers --rounds 3 --windows 3
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median

from bench.perf_client import PerfClient
from compat_tests.oracle.vela_machine import VelaMachine

BROKERS = (1, 2, 4)
TOPICS = 10
GROWTH_MAX = 1.2
LOADS = {
    "unbatched": ["-db", "-o", "1000"],
    "batched": ["-bm", "1000", "-b", "1", "-o", "10000"],
}
Costs = dict[str, float]
"""Microseconds of CPU per message by kind of process; `rate` is messages per second."""


def measure(directory: Path, brokers: int, load: str, windows: int) -> Costs:
    """Of a new machine, after the start of the clients."""
    machine = VelaMachine(directory, brokers, 1, {"defaultNumberOfNamespaceBundles": 16})
    machine.start()
    arguments = ["produce", "-s", "1024", "-r", "10000000", "-t", str(TOPICS), *LOADS[load]]
    try:
        with PerfClient(machine, [*arguments, "persistent://public/default/several"]) as perf:
            begun = perf.wait_begun()
            before = machine.cpu_by_kind()
            last = perf.wait_window(begun + windows)
            after = machine.cpu_by_kind()
            first = perf.windows()[begun]
            problems = perf.problems()
    finally:
        machine.stop()
    if problems:
        raise SystemExit(f"pulsar-perf: {problems[0]}")
    messages = last.messages - first.messages
    costs = {kind: (after[kind] - before[kind]) * 1e6 / messages for kind in after}
    costs["total"] = sum(costs.values())
    costs["rate"] = messages / (last.printed_at - first.printed_at)
    return costs


def main() -> None:
    """Print the medians; exit code 1 above the bound."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--windows", type=int, default=3, help="Of ten seconds, per round.")
    given = parser.parse_args()
    is_kept = True
    for load in LOADS:
        found: dict[int, list[Costs]] = defaultdict(list)
        for _ in range(given.rounds):
            for brokers in BROKERS:
                with tempfile.TemporaryDirectory(prefix="vela-several-") as directory:
                    found[brokers].append(measure(Path(directory), brokers, load, given.windows))
        one = median(costs["total"] for costs in found[BROKERS[0]])
        for brokers in BROKERS:
            middle = {kind: median(each[kind] for each in found[brokers]) for kind in found[1][0]}
            growth = middle["total"] / one
            is_kept &= growth <= GROWTH_MAX
            print(
                f"{load}, {brokers} brokers: {middle['total']:.1f} us of CPU per message "
                f"(brokers {middle['broker']:.1f}, bookie {middle['bookie']:.1f}, parent "
                f"{middle['parent']:.2f}), {growth:.2f} of one broker; {middle['rate']:.0f} msg/s",
                flush=True,
            )
    print(f"bound {GROWTH_MAX}: {'kept' if is_kept else 'EXCEEDED'}")
    sys.exit(0 if is_kept else 1)


if __name__ == "__main__":
    main()
