"""What jobs share: arguments, progress on stderr, one JSON summary on stdout, one-line errors."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.options import ADMIN_URL_DEFAULT, SERVICE_URL_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

EXIT_REFUSED: Final = 1
POLL_SECONDS: Final = 0.2
_QUOTED_BY_SPARK: Final = ("Error: ", "Exception: ")


class JobError(Exception):
    """What the user can do something about; the text says what."""


def parser(name: str, what: str) -> argparse.ArgumentParser:
    """With the arguments every job has."""
    made = argparse.ArgumentParser(prog=f"vela pipeline {name}", description=what)
    made.add_argument("--master", default="", help="Spark master [default: local[2]]")
    made.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="for Spark")
    made.add_argument("--summary", type=Path, help="write the JSON summary to this file, too")
    return made


def add_server(made: argparse.ArgumentParser) -> None:
    """Where the broker is."""
    made.add_argument("--service-url", default=SERVICE_URL_DEFAULT, help="[default: %(default)s]")
    made.add_argument("--admin-url", default=ADMIN_URL_DEFAULT, help="[default: %(default)s]")
    made.add_argument("--token", default="", help="of a role that may read and write the topics")


def add_source(made: argparse.ArgumentParser) -> None:
    """What to read."""
    made.add_argument("--topic", help="one topic")
    made.add_argument("--topics", help="several, comma separated")
    made.add_argument("--topics-pattern", help="a regular expression")
    made.add_argument("--read-engine", default="broker", choices=("auto", "broker", "bookie"))
    made.add_argument(
        "--allow-data-loss", action="store_true", help="go on where retention left a gap"
    )


def as_directory(path: str, option: str) -> str:
    """The path, unless a file is there. Raises: JobError."""
    if Path(path).is_file():
        raise JobError(f"{option} {path} is a file: name a directory")
    return path


def server_options(given: argparse.Namespace) -> dict[str, str]:
    """As the data source takes them."""
    options = {"service.url": given.service_url, "admin.url": given.admin_url}
    if given.token:
        options["pulsar.client.authPluginClassName"] = "AuthenticationToken"
        options["pulsar.client.authParams"] = f"token:{given.token}"
    return options


def source_options(given: argparse.Namespace) -> dict[str, str]:
    """As the data source takes them; a gap is an error unless it was allowed."""
    options = server_options(given)
    names = {"topic": given.topic, "topics": given.topics, "topicsPattern": given.topics_pattern}
    options |= {name: value for name, value in names.items() if value}
    options["readEngine"] = given.read_engine
    options["failOnDataLoss"] = str(not given.allow_data_loss).lower()
    return options


def time_range(given: argparse.Namespace) -> dict[str, str]:
    """`--start-time-ms` and `--end-time-ms` as the data source takes them."""
    times = {"startingTime": given.start_time_ms, "endingTime": given.end_time_ms}
    return {name: str(value) for name, value in times.items() if value is not None}


@contextmanager
def spark_session(name: str, given: argparse.Namespace) -> Iterator[SparkSession]:
    """A session for the job: the caller's if there is one, else an own one that ends with it.

    Raises: JobError.
    """
    from pyspark.sql import SparkSession

    from pipeline.session import session

    settings = {}
    for each in given.conf:
        key, separator, value = each.partition("=")
        if not separator:
            raise JobError(f"--conf must be KEY=VALUE, got {each!r}")
        settings[key] = value
    is_own = SparkSession.getActiveSession() is None
    spark = session(f"vela-{name}", given.master, settings)
    try:
        yield spark
    finally:
        if is_own:
            spark.stop()


def progress(text: str) -> None:
    """A line for the person who waits."""
    print(text, file=sys.stderr, flush=True)


def watch(query: StreamingQuery, name: str) -> dict[str, Any]:
    """Report each micro-batch until the query ends by itself; what it read in this run, and the
    most rows its state held.

    Raises: the query's failure.
    """
    began, seen, rows, batches = time.monotonic(), -1, 0, 0
    state_rows: list[int] = []
    while True:
        ended = query.awaitTermination(POLL_SECONDS)
        for each in query.recentProgress:
            if each["batchId"] <= seen:
                continue
            seen = each["batchId"]
            rows += each["numInputRows"]
            batches += 1
            if each["stateOperators"]:
                state_rows.append(sum(state["numRowsTotal"] for state in each["stateOperators"]))
            progress(f"{name}: micro-batch {seen}: {each['numInputRows']} rows, {rows} in this run")
        if ended:
            seconds = time.monotonic() - began
            summary = {"rows": rows, "micro_batches": batches, "seconds": round(seconds, 3)}
            return summary | ({"state_rows_max": max(state_rows)} if state_rows else {})


def publish(rows: DataFrame, options: Mapping[str, str]) -> int:
    """How many rows went out, counted on their way: their source is read once."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    counted = rows.observe(seen, f.count(f.lit(1)).alias("rows"))
    counted.write.format("vela").options(**options).mode("append").save()
    return int(seen.get["rows"])


def started(writer: DataStreamWriter, follow_seconds: int | None) -> StreamingQuery:
    """Until what is there now is done, or for ever, a micro-batch every so often."""
    if follow_seconds:
        return writer.trigger(processingTime=f"{follow_seconds} seconds").start()
    return writer.trigger(availableNow=True).start()


def finish(given: argparse.Namespace, summary: dict[str, Any]) -> int:
    """Print the summary; the exit code."""
    text = json.dumps(summary, indent=2, sort_keys=True, default=str)
    print(text, flush=True)
    if given.summary:
        given.summary.parent.mkdir(parents=True, exist_ok=True)
        given.summary.write_text(text + "\n", encoding="utf-8")
    return 0


def run(name: str, main: Callable[[Sequence[str]], int], arguments: Sequence[str]) -> int:
    """Call a job; what goes wrong is one line that begins with `vela pipeline`."""
    try:
        return main(arguments)
    except KeyboardInterrupt:
        print(f"vela pipeline {name}: stopped", file=sys.stderr)
        return 130
    except ModuleNotFoundError as error:
        print(
            f"vela pipeline {name}: {sys.executable} has no package {error.name}: run `make "
            "setup-pipeline`, or install there what requirements-pipeline.lock names",
            file=sys.stderr,
            flush=True,
        )
        return EXIT_REFUSED
    except Exception as error:
        print(f"vela pipeline {name}: {reason(error)}", file=sys.stderr, flush=True)
        return EXIT_REFUSED


def reason(error: Exception) -> str:
    """The sentence in an error; Spark hands on a worker's traceback, whose last line it is."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in reversed(lines):
        head, separator, text = line.partition(": ")
        if separator and head.startswith("pipeline.") and " " not in head:
            return text
    return " ".join(lines[:3]) or type(error).__name__
