"""Run a command whose SIGINT and SIGHUP do what they do by default.

A child inherits the signals that are ignored under nohup or in the background of a shell, and a
shell cannot bring them back."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """The command is what the arguments say, and has the id of this process."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
