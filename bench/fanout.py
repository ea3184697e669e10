"""`python -m bench.fanout`: very many consumers, on Vela and on real Pulsar.

Drives `vela perf fanout` of this tree against one server at a time. Each round of each row of Vela
gets a server of its own, so that memory is that of the row; real Pulsar keeps one server for its
rows, because a JVM that has just started is slow, and is warmed up first. The rounds go over all
rows, every other one in reverse, so that what the machine does meanwhile meets all rows alike.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from bench import fanout_report as report
from bench import oracle
from bench.fanout_report import Load, Measured, Row
from bench.secured_servers import vela_over_tls
from bench.tree import OUTPUT, QUICK_OUTPUT, commit, how_vela_runs, machine_now
from compat_tests.oracle.distribution import TREE, OracleAbsent
from compat_tests.oracle.pulsar_server import PulsarServer
from compat_tests.oracle.server_process import ServerFailed
from compat_tests.oracle.vela_server import VelaServer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compat_tests.oracle.server_process import ServerProcess

QUICK_LOAD = Load(messages=3)
ROUND_SECONDS_MAX = 400.0
MILLION_MEBIBYTES_MAX = 1.3e9 / report.MEBIBYTE
WARM_UP = Row("pulsar", "own", 1_000, 16, 1)
SCALED = (25_000, 50_000, 100_000)
NEIGHBOUR_RATE = "--neighbour-rate=100"
OTHER_BROKER = "neighbour on another broker"
PICTURES = {("vela", 100_000), ("pulsar", 20_000)}
"""Server and consumers of the rows whose last round is drawn."""


def _limits(subscribe: float, p99: float, longest: float, **more: float) -> dict[str, float]:
    return {
        "subscribe all s": subscribe,
        "delivery p99 s": p99,
        "delivery max s": longest,
        "lost": 0,
        "duplicated": 0,
        **more,
    }


def rows(rounds: int) -> list[Row]:
    """The measured systems, Pulsar first."""
    return [
        Row("pulsar", "own", 5_000, 16, 1),
        Row("pulsar", "own", 20_000, 16, 1),
        Row("vela", "own", 5_000, 16, 1),
        Row("vela", "own", 20_000, 16, 1),
        Row("vela", "broadcast", 5_000, 16, 1),
        Row("vela", "broadcast", 20_000, 16, rounds, _limits(2, 0.15, 0.3)),
        Row("vela", "broadcast", 25_000, 16, rounds),
        Row("vela", "broadcast", 50_000, 32, rounds),
        Row(
            "vela",
            "broadcast",
            100_000,
            64,
            rounds,
            _limits(8, 0.5, 1, **{"broker memory MB": 400.0, "broker CPU s/message": 0.25}),
        ),
        Row(
            "vela",
            "broadcast",
            100_000,
            64,
            rounds,
            {"delivery p99 s": 2, "lost": 0},
            load=Load(messages=20, rate=2.0),
        ),
        Row("vela", "broadcast", 10_000, 10_000, rounds, _limits(10, 0.5, 1)),
        Row("vela", "broadcast", 20_000, 16, 1, is_over_tls=True),
        *million_rows(),
        *disturbed_rows(20_000, 16, rounds),
        *neighbour_rows(100_000, 64, rounds),
    ]


def million_rows() -> list[Row]:
    """As many consumers as one machine is asked to serve; the second rate is a goal."""
    bounds = {"subscribe all s": 40.0, "lost": 0.0, "broker memory MB": MILLION_MEBIBYTES_MAX}
    return [
        Row(
            "vela",
            "broadcast",
            1_000_000,
            640,
            1,
            bounds | {"delivery p99 s": p99},
            load=Load(messages, 1_000, rate),
        )
        for rate, messages, p99 in ((0.2, 6, 3.0), (1.0, 15, 2.0))
    ]


def disturbed_rows(consumers: int, connections: int, rounds: int) -> list[Row]:
    """One of a hundred consumers behaves badly; to be compared with the same row without."""
    return [
        Row("vela", "broadcast", consumers, connections, rounds, {}, variant, (argument,))
        for variant, argument in (
            ("1 % give no permits", "--stuck-percent=1"),
            ("1 % never acknowledge", "--unacked-percent=1"),
        )
    ]


def neighbour_rows(consumers: int, connections: int, rounds: int) -> list[Row]:
    """The effect on other clients of the broker and, once, on others of the machine."""
    limits = {f"{name} p99 ratio": report.DOUBLING_MAX for name in report.NEIGHBOURS}
    numbers = ("vela", "broadcast", consumers, connections)
    arguments = (NEIGHBOUR_RATE,)
    return [
        Row(*numbers, rounds, limits, "neighbours on the broker", arguments),
        Row(*numbers, 1, {}, OTHER_BROKER, arguments, needs_other=True),
    ]


def quick_rows() -> list[Row]:
    """A small one of each kind, to see that it runs."""
    small = [
        Row("pulsar", "own", 500, 4, 1),
        Row("vela", "own", 500, 4, 1),
        Row("vela", "broadcast", 500, 4, 1, _limits(10, 1, 2)),
        Row("vela", "broadcast", 200, 200, 1),
        Row("vela", "broadcast", 500, 4, 1, is_over_tls=True),
        *disturbed_rows(500, 4, 1),
        *neighbour_rows(500, 4, 1),
    ]
    return [replace(row, load=QUICK_LOAD) for row in small]


class RoundFailed(Exception):
    """The load generator did not end well; the text is what it said."""


def measure(
    row: Row,
    server: ServerProcess,
    pictures: Path,
    other_url: str = "",
) -> report.Figures:
    """One round; `other_url`: of the broker where the neighbour is, if it is another one.

    Raises: RoundFailed.
    """
    written = server.directory / "fanout.json"
    command = [sys.executable, "-m", "cli", "perf", "fanout"]
    command += [f"--service-url={server.service_url}", f"--http-url={server.web_url}"]
    command += [f"--broker-pid={server.pid}", f"--mode={row.mode}", f"--json={written}"]
    command += [f"--consumers={row.consumers}", f"--connections={row.connections}"]
    command.append(f"--processes={row.processes}")
    load = row.load
    command += [f"--messages={load.messages}", f"--size={load.size_bytes}", f"--rate={load.rate:g}"]
    command += [*server.perf_arguments, *row.arguments]
    if other_url:
        command.append(f"--neighbour-url={other_url}")
    if (row.server, row.consumers) in PICTURES and row.load.is_usual and not row.variant:
        command.append(f"--png={pictures / _picture(row)}")
    written.unlink(missing_ok=True)
    try:
        ran = subprocess.run(
            command,
            cwd=TREE,
            env=os.environ | {"PYTHONPATH": str(TREE)},
            capture_output=True,
            text=True,
            timeout=ROUND_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RoundFailed(f"no end after {ROUND_SECONDS_MAX:g} s") from None
    if not written.is_file():
        raise RoundFailed(ran.stderr.strip()[-500:] or f"ended with {ran.returncode}")
    return report.figures_of(json.loads(written.read_text()))


def _picture(row: Row) -> str:
    return f"fanout-{row.server}-{row.consumers}.png"


class Run:
    """All rows."""

    def __init__(self, directory: Path, output: Path) -> None:
        self.measured: list[Measured] = []
        self._directory = directory
        self._output = output

    def all_of(self, wanted: Iterable[Row]) -> None:
        """Measure them; what fails is kept as such."""
        wanted = list(wanted)
        theirs = [row for row in wanted if row.server == "pulsar"]
        if theirs:
            self._pulsar(theirs)
        ours = [Measured(row) for row in wanted if row.server == "vela"]
        self.measured += ours
        for number in range(max((each.row.rounds for each in ours), default=0)):
            for each in ours if number % 2 == 0 else reversed(ours):
                if number < each.row.rounds:
                    self._vela(each)

    def _pulsar(self, wanted: list[Row]) -> None:
        server = PulsarServer(self._directory / "pulsar", small=False, release=oracle.chosen())
        measured = [Measured(row) for row in wanted]
        self.measured += measured
        try:
            server.start()
            for each in (Measured(WARM_UP), *measured):
                for _ in range(each.row.rounds):
                    self._round(each, server)
        except ServerFailed as failure:
            for each in measured:
                if not each.rounds:
                    each.failed.append(str(failure))
        finally:
            server.kill()
            shutil.rmtree(server.directory, ignore_errors=True)

    def _vela(self, measured: Measured) -> None:
        names = ["vela", "other"] if measured.row.needs_other else ["vela"]
        make = vela_over_tls if measured.row.is_over_tls else VelaServer
        configuration = {"journalSyncData": "true"}
        servers = [make(self._directory / name, configuration) for name in names]
        try:
            for server in servers:
                server.start()
            other = servers[1].service_url if measured.row.needs_other else ""
            self._round(measured, servers[0], other)
        except ServerFailed as failure:
            measured.failed.append(str(failure))
        finally:
            for server in servers:
                server.kill()
                shutil.rmtree(server.directory, ignore_errors=True)

    def _round(self, measured: Measured, server: ServerProcess, other_url: str = "") -> None:
        try:
            figures = measure(measured.row, server, self._output, other_url)
        except RoundFailed as failure:
            measured.failed.append(str(failure))
            _tell(f"{measured.row.name}: not counted: {failure}")
            return
        measured.rounds.append(figures)
        told = ", ".join(f"{name} {report.short(value)}" for name, value in figures.items())
        _tell(f"{measured.row.name}: {told}")


def _tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def write(run: Run, output: Path, about: dict[str, Any]) -> None:
    """fanout.md, fanout.json and fanout.png."""
    made = report.as_json(run.measured, SCALED, about)
    (output / "fanout.json").write_text(json.dumps(made, indent=1) + "\n")
    report.plot(run.measured, output / "fanout.png")
    drawn = [_picture(each.row) for each in run.measured if each.rounds]
    images = ["fanout.png", *(name for name in drawn if (output / name).is_file())]
    (output / "fanout.md").write_text(
        report.document(run.measured, SCALED, about, list(dict.fromkeys(images)))
    )


def main() -> int:
    """Run, print the tables, write the files; 1 when something could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.fanout")
    parser.add_argument("--rounds", type=int, default=3, help="of Vela's broadcast rows (3)")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="rows with this in the name")
    parser.add_argument("--only-server", choices=("vela", "pulsar"))
    parser.add_argument("--quick", action="store_true", help=f"small; into {QUICK_OUTPUT}")
    parser.add_argument("--output", type=Path, help=f"directory of the files (default {OUTPUT})")
    options = oracle.parsed(parser)
    output = oracle.output(options)
    output.mkdir(parents=True, exist_ok=True)
    wanted = [
        row
        for row in (quick_rows() if options.quick else rows(options.rounds))
        if options.only_server in (None, row.server)
        and (not options.only or any(text in row.name for text in options.only))
    ]
    begun = time.monotonic()
    (TREE / "build").mkdir(exist_ok=True)
    directory = Path(mkdtemp(prefix="fanout-", dir=TREE / "build"))
    about = {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "commit": commit(),
        "vela": how_vela_runs(),
        "pulsar": oracle.chosen().version,
        "machine": machine_now(),
        "messages": (QUICK_LOAD if options.quick else report.USUAL_LOAD).messages,
    }
    run = Run(directory, output)
    try:
        if any(row.server == "pulsar" for row in wanted):
            oracle.chosen().fetch()
        run.all_of(wanted)
    except OracleAbsent as absent:
        print(f"the ratio needs real Pulsar: {absent}; or --only-server vela", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    about["seconds"] = round(time.monotonic() - begun)
    write(run, output, about)
    print(f"\n{report.table(run.measured)}\n\n{report.ratio_table(run.measured)}\n")
    print(
        f"{report.scaling_table(run.measured, SCALED)}\n\n{report.disturbed_table(run.measured)}\n"
    )
    print(f"{report.neighbour_table(run.measured)}\n\nwritten: {output}")
    return 1 if any(each.failed for each in run.measured) else 0


if __name__ == "__main__":
    sys.exit(main())
