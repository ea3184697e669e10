"""Entry of a child process: `python -m runtime.child <descriptor> <module> <argument>...`.

The child ends with its parent, whatever ends the parent. On Linux the kernel kills it (prctl,
option PR_SET_PDEATHSIG); besides, `descriptor` is the reading end of a pipe whose other end only
the parent has, and its end kills the child, too. The kernel's rule does not cover a parent that
died before it was set, or a thread of the parent that ended.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
import threading
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
"""Source: prctl(2)."""


def end_with_parent(descriptor: int) -> None:
    """See the module docstring. Returns at once."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    threading.Thread(
        target=_wait_for_end, args=(descriptor,), name="parent-watch", daemon=True
    ).start()


def _wait_for_end(descriptor: int) -> None:
    os.read(descriptor, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run the module as a program."""
    descriptor, module, *arguments = sys.argv[1:]
    end_with_parent(int(descriptor))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
