"""The program `vela`: decides what a signal does, before it loads anything that takes time."""

from __future__ import annotations

from runtime.first_signals import begin_work, end_at_signals


def main() -> None:
    """Run the command that the arguments name."""
    end_at_signals()
    from runtime.output import take_output

    take_output()
    from cli.commands import main as commands

    begin_work()
    commands()


if __name__ == "__main__":
    main()
