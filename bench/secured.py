"""`python -m bench.secured`: what TLS, tokens and authorization cost on both servers.

Four servers stay up, two of each kind; one is under load at a time, the others are stopped.
"""

from __future__ import annotations

import sys
from typing import Final

from bench import secured_report
from bench.scenarios import SCENARIOS, warm_up
from bench.secured_servers import SERVERS, make
from bench.side_by_side import Benchmark

LOADS: Final = (
    "1 KB unbatched, one topic",
    "1 KB batched, one topic",
    "1,000 msg/s unbatched",
    "5,000 msg/s end to end",
)
BENCHMARK: Final = Benchmark(
    name="secured",
    report=secured_report,
    servers=SERVERS,
    loads={load: SCENARIOS[load] for load in LOADS},
    make=make,
    warm=warm_up,
)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
