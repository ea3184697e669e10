"""`python -m bench.spark`: reading topics with Spark, on Vela and on real Pulsar.

The stock connector in its environment and the data source `vela` in its own read the same data
sets, one at a time, and on Vela so does `pipeline.spark3` in the connector's session; then a topic
is read from its beginning while a consumer follows its end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from bench import oracle
from bench import spark_report as report
from bench.measurement import write_out
from bench.rounds import turns
from bench.spark_load import DataSet, Tail, publish, served_bytes
from bench.spark_program import NO_JAR, SPARK3
from bench.spark_reader import ReadFailed, SparkReader
from bench.spark_report import Backfill, Measured, Results, Variant
from bench.tree import OUTPUT, QUICK_OUTPUT, commit, how_vela_runs, machine_now
from compat_tests.clients.driver import ClientAbsent
from compat_tests.oracle.distribution import TREE, OracleAbsent
from compat_tests.oracle.pulsar_server import PulsarServer
from compat_tests.oracle.server_process import ServerFailed
from compat_tests.oracle.vela_server import VelaServer
from compat_tests.spark.environment import CONNECTOR_VERSION, SPARK_VERSION, spark_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compat_tests.oracle.server_process import ServerProcess

PIPELINE_PYTHON = TREE / ".venv-pipeline" / "bin" / "python"
READ_SECONDS_MAX = 240.0
IDLE_SECONDS = 15.0
QUICK_IDLE_SECONDS = 3.0
TAIL_RATE = 200
BACKFILL_PARTS = 2
"""The backfill gets as much time as so many data sets."""
QUICK_BACKFILL_MEGABYTES = 50
BACKFILL_ROUNDS_MAX = 5
"""The slowest hundredth of some seconds differs more from round to round than a rate does."""
BACKFILL_SIZE_BYTES = 10_000
ENGINES = ("broker", "bookie")
SAME_SPARK = f" on Spark {SPARK_VERSION}"
"""Ends the name of an engine that reads in the connector's session."""
# Several closed ledgers, and nothing trimmed.
CONFIGURATION = {
    "managedLedgerMaxSizePerLedgerMbytes": "32",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
}
VELA_CONFIGURATION = {"journalSyncData": "true", "bookiePort": "0"}


def data_sets(quick: bool) -> list[DataSet]:
    """The data sets that are read."""
    rows = 20_000 if quick else 300_000
    return [
        DataSet("1 KB in batches", rows, 1000, True),
        DataSet("1 KB one by one", rows // 3, 1000, False),
        DataSet("1 KB in batches 4 partitions", rows, 1000, True, partitions=4),
    ]


def variants(servers: list[str]) -> list[Variant]:
    """Readers and servers; on Vela each engine on the connector's Spark, too."""
    same_spark = [Variant(engine + SAME_SPARK, "vela") for engine in ENGINES]
    return [
        *(Variant(reader, server) for server in servers for reader in ("connector", *ENGINES)),
        *(same_spark if "vela" in servers else ()),
    ]


class Run:
    """Both servers and both Sparks, up and warm for the whole run."""

    def __init__(
        self,
        results: Results,
        servers: dict[str, ServerProcess],
        readers: dict[str, SparkReader],
    ) -> None:
        self._results = results
        self._servers = servers
        self._readers = readers

    def table_of(self, data: DataSet, rounds: int, deadline: float) -> None:
        """Load it, see that everybody reads the same, and measure: one round, and more while one
        more would end before the deadline (`time.monotonic`)."""
        for server in self._servers.values():
            with _awake(server):
                publish(server, data)
        wanted = [Measured(data.name, each) for each in variants(list(self._servers))]
        self._results.measured += wanted
        found = {}
        for each in wanted:
            if (answer := self._guarded(each, data, check=True)) is not None:
                found[each.variant.name] = answer
        wrong = report.disagreement(found, data.rows)
        if wrong is not None:
            self._results.failed.append(f"{data.name}: not measured: {wrong}")
            return
        wanted = [each for each in wanted if not each.failed]
        for each in wanted:
            self._guarded(each, data)
        by_name = {each.variant.name: each for each in wanted}
        for attempt in in_time(rounds, deadline, time.monotonic):
            for name in turns(attempt, list(by_name)):
                figures = self._guarded(by_name[name], data)
                if figures is not None:
                    by_name[name].rounds.append(figures)
                    tell(f"{data.name}, {name}: {told(figures)}")

    def _guarded(self, each: Measured, data: DataSet, check: bool = False) -> Any:
        server = self._servers[each.variant.server]
        try:
            with _awake(server):
                if check:
                    return self._read(each.variant.reader, server, data, check=True)
                return self._timed(each.variant.reader, server, data)
        except (ReadFailed, RuntimeError, OSError) as failure:
            each.failed.append(report.last_line(failure))
            tell(f"{data.name}, {each.variant.name}: not counted: {failure}")
            return None

    def _read(
        self, reader: str, server: ServerProcess, data: DataSet, *, check: bool
    ) -> dict[str, Any]:
        options = {
            "service.url": server.service_url,
            "admin.url": server.web_url,
            "topic": data.topic,
            "startingOffsets": "earliest",
            "failOnDataLoss": "true",
        }
        form = "pulsar"
        if reader != "connector":
            form = "vela" if reader in ENGINES else SPARK3
            options["readEngine"] = reader.removesuffix(SAME_SPARK)
        spark = self._session_of(reader)
        return spark.read(form, options, check=check, seconds_max=READ_SECONDS_MAX)

    def _session_of(self, reader: str) -> SparkReader:
        return self._readers["source" if reader in ENGINES else "connector"]

    def _timed(
        self, reader: str, server: ServerProcess, data: DataSet, *, grows: bool = False
    ) -> report.Figures:
        spark = self._session_of(reader)
        served, spent, cpu = served_bytes(server, data), server.cpu_seconds(), spark.cpu_seconds()
        answer = self._read(reader, server, data, check=False)
        after = spark.cpu_seconds()
        cpu = {name: after[name] - cpu[name] for name in cpu}
        cpu["server"] = server.cpu_seconds() - spent
        served = served_bytes(server, data) - served
        rows = answer["rows"]
        if rows < data.rows or (rows > data.rows and not grows):
            raise ReadFailed(f"{rows} rows of {data.rows}")
        return report.figures_of(rows, rows * data.size_bytes, answer["seconds"], cpu, served)

    def backfill(self, data: DataSet, rounds: int, idle_seconds: float, deadline: float) -> None:
        """Follow the topic while each reader reads it; first without a reader."""
        server = self._servers["vela"]
        seen = {name: Backfill(name) for name in ("nothing", *ENGINES, "connector")}
        self._results.backfills += seen.values()
        with _awake(server):
            publish(server, data)
            with Tail(server, data.topic, TAIL_RATE, BACKFILL_SIZE_BYTES) as tail:
                tail.warm_up(TAIL_RATE)
                for attempt in in_time(rounds, deadline, time.monotonic):
                    for name in turns(attempt, list(seen)):
                        self._beside(tail, server, data, seen[name], idle_seconds)
                order = tail.stop()
        if order != list(range(tail.sent)):
            self._results.failed.append(
                f"backfill: of {tail.sent} messages {len(set(order))} came, in another order"
            )

    def _beside(
        self,
        tail: Tail,
        server: ServerProcess,
        data: DataSet,
        backfill: Backfill,
        idle_seconds: float,
    ) -> None:
        begun = time.perf_counter_ns()
        try:
            if backfill.reader == "nothing":
                time.sleep(idle_seconds)
            else:
                figures = self._timed(backfill.reader, server, data, grows=True)
                backfill.reads.append(figures)
            backfill.tails.append(tail.between(begun, time.perf_counter_ns()))
        except (ReadFailed, RuntimeError, OSError, ValueError) as failure:
            backfill.failed.append(report.last_line(failure))
            tell(f"backfill, {backfill.reader}: not counted: {failure}")
            return
        last = backfill.tails[-1]
        tell(f"backfill, {backfill.reader}: tail p99 {last.p99:.1f} ms, max {last.max:.0f} ms")


def in_time(rounds: int, deadline: float, clock: Callable[[], float]) -> Iterator[int]:
    """The numbers of the rounds: the first one, and each that would end before the deadline if it
    took as long as the one before."""
    for attempt in range(rounds):
        begun = clock()
        yield attempt
        ended = clock()
        if ended + (ended - begun) > deadline:
            return


@contextmanager
def _awake(server: ServerProcess) -> Iterator[None]:
    server.resume()
    try:
        yield
    finally:
        server.pause()
        write_out()


def tell(text: str) -> None:
    """A line for the person who waits."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def told(figures: report.Figures) -> str:
    """The figures of a round in a line."""
    return ", ".join(f"{name} {report.short(value)}" for name, value in figures.items())


def write(results: Results, output: Path) -> None:
    """spark.json, spark.md and spark.png."""
    (output / "spark.json").write_text(json.dumps(report.as_json(results), indent=1) + "\n")
    report.plot(results, output / "spark.png")
    (output / "spark.md").write_text(report.document(results))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark")
    parser.add_argument("--rounds", type=int, default=3, help="of each variant (3)")
    parser.add_argument("--cores", type=int, default=2, help="of each Spark, local[N] (2)")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="data sets with this in the name")
    parser.add_argument("--only-server", choices=("vela", "pulsar"))
    parser.add_argument("--backfill-megabytes", type=int, default=2000, help="0: none (2000)")
    parser.add_argument(
        "--minutes", type=float, default=13.0, help="no new round that would end later (13)"
    )
    parser.add_argument("--quick", action="store_true", help=f"small; into {QUICK_OUTPUT}")
    parser.add_argument("--output", type=Path, help=f"directory of the files (default {OUTPUT})")
    options = oracle.parsed(parser)
    if options.quick:
        options.rounds = 1
        options.backfill_megabytes = min(options.backfill_megabytes, QUICK_BACKFILL_MEGABYTES)
    return options


def measure(run: Run, options: argparse.Namespace, begun: float) -> None:
    """All data sets, then the backfill; each gets its part of the time that is left."""
    end = begun + options.minutes * 60
    sets = [
        data
        for data in data_sets(options.quick)
        if not options.only or any(text in data.name for text in options.only)
    ]
    megabytes = options.backfill_megabytes if options.only_server != "pulsar" else 0
    for index, data in enumerate(sets):
        parts = len(sets) - index + (BACKFILL_PARTS if megabytes else 0)
        run.table_of(data, options.rounds, time.monotonic() + (end - time.monotonic()) / parts)
    if megabytes:
        rows = megabytes * 1_000_000 // BACKFILL_SIZE_BYTES
        data = DataSet("backfill", rows, BACKFILL_SIZE_BYTES, True)
        idle_seconds = QUICK_IDLE_SECONDS if options.quick else IDLE_SECONDS
        run.backfill(data, 1 if options.quick else BACKFILL_ROUNDS_MAX, idle_seconds, end)


def main() -> int:
    """Run, print the tables, write the files; 1 when something could not be measured."""
    options = _options()
    output = oracle.output(options)
    output.mkdir(parents=True, exist_ok=True)
    (TREE / "build").mkdir(exist_ok=True)
    directory = Path(mkdtemp(prefix="spark-", dir=TREE / "build"))
    begun = time.monotonic()
    servers: dict[str, ServerProcess] = {}
    try:
        with ExitStack() as stack:
            connector_python, *_, jar = spark_command()
            if options.only_server != "vela":
                oracle.chosen().fetch()
                servers["pulsar"] = PulsarServer(
                    directory / "pulsar", CONFIGURATION, small=False, release=oracle.chosen()
                )
            if options.only_server != "pulsar":
                configuration = CONFIGURATION | VELA_CONFIGURATION
                servers["vela"] = VelaServer(directory / "vela", configuration)
            for server in servers.values():
                stack.callback(server.kill)
                server.start()
                server.pause()
                write_out()
            pythons = {
                "connector": (Path(connector_python), jar),
                "source": (PIPELINE_PYTHON, NO_JAR),
            }
            readers = {
                name: stack.enter_context(SparkReader(python, jar, directory / name, options.cores))
                for name, (python, jar) in pythons.items()
            }
            results = Results(_about(options, readers))
            measure(Run(results, servers, readers), options, begun)
    except (OracleAbsent, ClientAbsent, ServerFailed, ReadFailed) as absent:
        print(f"it cannot be measured: {absent}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    results.about["seconds"] = round(time.monotonic() - begun)
    write(results, output)
    print(f"\n{report.table(results.measured)}\n\n{report.backfill_table(results.backfills)}\n")
    print(f"written: {output}, after {results.about['seconds']} s")
    return 1 if results.problems() else 0


def _about(options: argparse.Namespace, readers: dict[str, SparkReader]) -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "commit": commit(),
        "vela": how_vela_runs(),
        "pulsar": oracle.chosen().version,
        "machine": machine_now(),
        "cores": options.cores,
        "connector": CONNECTOR_VERSION,
        "spark": {name: reader.version for name, reader in readers.items()},
        "tail_rate": TAIL_RATE,
        "backfill_bytes": options.backfill_megabytes * 1_000_000,
    }


if __name__ == "__main__":
    sys.exit(main())
