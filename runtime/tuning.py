"""Settings of the Python process, in one place, with their measured effect.

* Garbage collection. Everything loaded at start-up is frozen out of the collector. A broker makes
  few reference cycles but keeps many live objects (entries in caches, acknowledgement state), which
  a full collection walks in one stop of the loop. Rarer young collections and far rarer old ones
  keep that out of the latency tail; cycles (exceptions, finished tasks) are still collected. The
  first threshold bounds one stop of the loop while thousands of topics or consumers are made: it is
  about 1 us for each new object that lives. The product of the first two bounds the stops of the
  next generation: with a million they took 120-300 ms while 100,000 consumers subscribed, with
  100,000 12-50 ms, with 10,000 they take 2-5 ms. Cycles that live longer wait for a full
  collection. Freezing the live objects from time to time would hide cycles that form later, such as
  those of connections that end, for ever.
* Thread switch interval. The event loop shares the interpreter with the journal and flush threads.
  A thread that comes back from fdatasync asks for the interpreter; with Python's 5 ms the answer to
  a whole group of publishes waits that long while the loop is busy. 0.1 ms bounds it, and costs
  nothing when only the loop wants to run. A group of the journal asks three times: while another
  tenant's consumer acknowledged at full speed, a publish took 15 ms (p99) with 0.5 ms, and 9 ms
  with 0.1 ms, at the same CPU per acknowledgement.

Measured with the stock Python client, 1 KB unbatched at 1,000 messages a second, on two cores that
were busy with other work (so: the direction, not the size): publish p99, median of three runs,
10 ms with an interval of 0.5 ms, 26 ms with Python's switch interval, 36 ms with Python's collector
thresholds; broker CPU the same within 5 %.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

GC_THRESHOLDS: Final = (2_000, 5, 10_000)
SWITCH_INTERVAL_SECONDS: Final = 0.0001


def tune_process() -> None:
    """Call once, when the modules are loaded and before the event loop runs: the collection takes
    20 ms."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)


def keep_for_good() -> None:
    """All present objects live as long as the process: let no collection walk them."""
    gc.freeze()


def collect_young() -> None:
    """Collect what was made since the last collection of the second generation. For work that makes
    very many objects that live: without it up to 100,000 of them are walked in one stop of the
    loop."""
    gc.collect(1)
