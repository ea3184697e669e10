"""`vela perf fanout` on the command line. docs/perf-fanout.md explains it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import click

from runtime.command_line import FilePath

if TYPE_CHECKING:
    from pathlib import Path

MODES: Final = ("broadcast", "own")
TYPES: Final = ("exclusive", "shared", "failover")
EXIT_INCOMPLETE: Final = 1
SIZE_MIN: Final = 64

Given = Any
"""Value of an option, checked by click."""


@click.group("perf")
def command() -> None:
    """Measure a broker, Vela or Pulsar."""


@final
class _Bars:
    """A progress bar on stderr, one per phase; nothing where stderr is not a terminal."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._reached = 0

    def phase(self, name: str, length: int) -> None:
        """See Progress."""
        self.done()
        self._reached = 0
        if sys.stderr.isatty():
            self._bar = click.progressbar(
                length=max(1, length), label=f"{name:<12}", file=sys.stderr, show_pos=True
            )
            self._bar.__enter__()

    def reached(self, count: int) -> None:
        """See Progress."""
        if self._bar is not None and count > self._reached:
            self._bar.update(count - self._reached)
            self._reached = count

    def done(self) -> None:
        """See Progress."""
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None

    def note(self, text: str) -> None:
        """See Progress."""
        self.done()
        print(f"vela: {text}", file=sys.stderr)


@command.command()
@click.option("--service-url", default="pulsar://127.0.0.1:6650", show_default=True)
@click.option(
    "--trust-cert-file", default="", help="Authorities of servers (PEM) [default: the system's]."
)
@click.option(
    "--auth-params",
    default="",
    envvar="VELA_PERF_AUTH_PARAMS",
    help="token:<a token> or file:<the path of its file>. Others can see options in lists of"
    " processes, and not the variable VELA_PERF_AUTH_PARAMS.",
)
@click.option("--http-url", default="", help="For the stages, and to delete the run's topic.")
@click.option("--broker-pid", type=int, help="For CPU and memory of the broker, on this machine.")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default=MODES[0],
    show_default=True,
    help="One broadcast subscription (Vela), or a subscription of its own for each consumer.",
)
@click.option("--consumers", type=click.IntRange(1, 9_000_000), default=1000, show_default=True)
@click.option("--connections", type=click.IntRange(1), default=16, show_default=True)
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True)
@click.option("--messages", type=click.IntRange(1), default=30, show_default=True)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Messages per second.",
)
@click.option("--size", type=click.IntRange(SIZE_MIN), default=10_000, show_default=True)
@click.option("--ack/--no-ack", "acks", default=True, show_default=True)
@click.option(
    "--lookups/--no-lookups",
    default=True,
    show_default=True,
    help="Ask for partitions and owner for each consumer, as client libraries do.",
)
@click.option("--topic", default="", help="[default: a new one, deleted afterwards]")
@click.option("--subscription", default="perf", show_default=True)
@click.option("--subscription-type", type=click.Choice(TYPES), default=TYPES[0], show_default=True)
@click.option("--receiver-queue", type=click.IntRange(1), default=1000, show_default=True)
@click.option(
    "--window",
    type=click.IntRange(1),
    default=500,
    show_default=True,
    help="Consumers of a connection that are subscribing at once.",
)
@click.option(
    "--stuck-percent",
    type=click.FloatRange(0, 100),
    default=0.0,
    show_default=True,
    help="Percentage of consumers that take nothing until all others have everything.",
)
@click.option(
    "--unacked-percent",
    type=click.FloatRange(0, 100),
    default=0.0,
    show_default=True,
    help="Percentage of consumers that never acknowledge.",
)
@click.option(
    "--neighbour-rate",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Measure a second subscription, and another topic with this many messages a second.",
)
@click.option(
    "--neighbour-seconds",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    help="How long the other topic is measured before the fan-out.",
)
@click.option("--neighbour-url", default="", help="Another broker for the other topic.")
@click.option("--connect-timeout", type=float, default=300.0, show_default=True, help="Seconds.")
@click.option(
    "--drain",
    type=float,
    default=60.0,
    show_default=True,
    help="Seconds to wait until all consumers have the last message.",
)
@click.option(
    "--samples",
    default="",
    help="Write every delivery as CSV into this directory; vela pipeline latency-report reads it.",
)
@click.option("--json", "json_path", type=FilePath(), help="Write the report.")
@click.option("--png", "png_path", type=FilePath(), help="Draw the report.")
def fanout(
    *,
    json_path: Path | None,
    png_path: Path | None,
    connect_timeout: float,
    drain: float,
    **given: Given,
) -> None:
    """One publisher, very many consumers: how fast they connect, how late messages come.

    Exit status 1: a consumer could not subscribe, or a message was lost.
    """
    from cli.perf import plot
    from cli.perf.fanout import FanoutRun, Options, write_json
    from cli.perf.generator_processes import RunFailed
    from cli.perf.report import text

    try:
        if png_path is not None:
            plot.check_available()
        options = Options(connect_timeout_seconds=connect_timeout, drain_seconds=drain, **given)
        report = FanoutRun(options, _Bars()).run()
        if json_path is not None:
            write_json(report, json_path)
        if png_path is not None:
            plot.write(report, png_path)
    except (RunFailed, plot.PlotsUnavailable) as error:
        _refuse(str(error))
    except OSError as error:
        _refuse(f"{error.filename}: {error.strerror}")
    except KeyboardInterrupt:
        _refuse("interrupted")
    print(text(report))
    if not report.is_complete:
        sys.exit(EXIT_INCOMPLETE)


def _refuse(reason: str) -> NoReturn:
    print(f"vela: {' '.join(reason.split())}", file=sys.stderr, flush=True)
    sys.exit(EXIT_INCOMPLETE)
