"""Which release of real Pulsar a benchmark measures beside Vela: of its option `--oracle`.

A program measures one release, which it chooses before it starts anything. The files of 5.0.1 are
in a directory of their own below those of 4.0.8, under the same names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.tree import OUTPUT, QUICK_OUTPUT
from compat_tests.oracle.releases import FIRST, RELEASES, Release

if TYPE_CHECKING:
    import argparse
    from pathlib import Path


@dataclass
class _Choice:
    release: Release


_CHOICE: Final = _Choice(FIRST)


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options of the command line, with the release among them, which is chosen."""
    parser.add_argument(
        "--oracle",
        choices=RELEASES,
        default=FIRST.version,
        help=f"the release of real Pulsar beside Vela, with its own pulsar-perf ({FIRST.version})",
    )
    options = parser.parse_args()
    _CHOICE.release = RELEASES[options.oracle]
    return options


def chosen() -> Release:
    """The release of this program."""
    return _CHOICE.release


def output(options: argparse.Namespace) -> Path:
    """The directory of the files, unless the options name one."""
    named: Path | None = getattr(options, "output", None)
    if named is not None:
        return named
    directory = QUICK_OUTPUT if getattr(options, "quick", False) else OUTPUT
    return directory if chosen() is FIRST else directory / chosen().name
