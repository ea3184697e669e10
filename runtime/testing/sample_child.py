"""A child process for tests of supervision: prints what its arguments say, and waits for
SIGTERM."""

from __future__ import annotations

import signal
import sys
import time


def main() -> None:
    """Arguments: `refuse`, `deaf` (ignores SIGTERM) or nothing."""
    print("on stderr", file=sys.stderr, flush=True)
    if "refuse" in sys.argv:
        print("vela: the port is taken", file=sys.stderr, flush=True)
        sys.exit(1)
    if "deaf" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, _end)
    print("sample ready: here", flush=True)
    while True:
        time.sleep(60)


def _end(_number: int, _frame: object) -> None:
    print("ended in order", flush=True)
    sys.exit(0)


if __name__ == "__main__":
    main()
