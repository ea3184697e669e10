"""The program `vela`: decides what a signal does, before it loads anything that takes time.

Modules are loaded without the garbage collector: nothing that they make is garbage, and its walks
were a seventh of the CPU of a start. A server gets it back when it runs, another command when it
begins.
"""

from __future__ import annotations

import gc
import sys

from runtime.first_signals import begin_work, end_at_signals, is_server


def main() -> None:
    """Run the command that the arguments name."""
    end_at_signals()
    gc.disable()
    from runtime.output import take_output

    take_output()
    from cli.commands import main as commands

    begin_work()
    if not is_server(sys.argv[1:]):
        gc.enable()
    commands()


if __name__ == "__main__":
    main()
