"""Shared by all jobs: arguments, progress on stderr, a JSON summary on stdout, one-line errors."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, final

from pipeline.credentials import sink_options_with_token
from pipeline.options import (
    ADMIN_URL_DEFAULT,
    FAIL_FAST,
    MODES,
    PUBLISH_TIME_SKEW_MS_DEFAULT,
    SERVICE_URL_DEFAULT,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from pipeline.options import Connection

EXIT_REFUSED: Final = 1
TOKEN_VARIABLE: Final = "VELA_TOKEN"
POLL_SECONDS: Final = 0.2


class JobError(Exception):
    """An error that the user can mend; the text says how."""


def parser(name: str, what: str) -> argparse.ArgumentParser:
    """With the arguments every job has."""
    made = argparse.ArgumentParser(prog=f"vela pipeline {name}", description=what)
    made.add_argument("--master", default="", help="Spark master [default: local[2]]")
    made.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="for Spark")
    made.add_argument("--summary", type=Path, help="write the JSON summary to this file, too")
    return made


def add_server(made: argparse.ArgumentParser) -> None:
    """Arguments that say where the broker is."""
    made.add_argument("--service-url", default=SERVICE_URL_DEFAULT, help="[default: %(default)s]")
    made.add_argument("--admin-url", default=ADMIN_URL_DEFAULT, help="[default: %(default)s]")
    token = made.add_mutually_exclusive_group()
    token.add_argument(
        "--token",
        default="",
        help="of a role that may read and write the topics; other users of the machine can see it",
    )
    token.add_argument("--token-file", metavar="FILE", help="a file of this machine that holds it")
    token.add_argument(
        "--token-env",
        metavar="NAME",
        help=f"an environment variable that holds it [default: {TOKEN_VARIABLE}, if it is set]",
    )


def add_source(made: argparse.ArgumentParser) -> None:
    """Arguments that choose the topics to read."""
    made.add_argument("--topic", help="one topic")
    made.add_argument("--topics", help="several, comma separated")
    made.add_argument("--topics-pattern", help="a regular expression")
    add_read_engine(made)
    made.add_argument(
        "--allow-data-loss", action="store_true", help="go on where retention left a gap"
    )
    made.add_argument(
        "--mode",
        default=FAIL_FAST,
        choices=MODES,
        help="what becomes of a message that its schema cannot decode: the job ends, its value is "
        "null, or it is left out [default: %(default)s]",
    )
    made.add_argument("--dead-letter-topic", help="gets such messages, with another --mode")


def add_read_engine(made: argparse.ArgumentParser) -> None:
    """Arguments that say who gives the messages, and where bookies are that ids name."""
    made.add_argument("--read-engine", default="broker", choices=("auto", "broker", "bookie"))
    made.add_argument(
        "--metadata-store-url",
        default="",
        metavar="URL",
        help="of a cluster whose bookies are named by ids, as in broker.conf: their addresses are "
        "read there",
    )
    made.add_argument(
        "--metadata-store-config-path", default="", metavar="FILE", help="as in broker.conf"
    )
    made.add_argument(
        "--bookie-addresses",
        default="",
        metavar="ID=HOST:PORT,...",
        help="the same by hand, for a store that only its server can read",
    )


def as_directory(path: str, option: str) -> str:
    """The path, unless a file is there. Raises: JobError."""
    if Path(path).is_file():
        raise JobError(f"{option} {path} is a file: name a directory")
    return path


def server_options(given: argparse.Namespace) -> dict[str, str]:
    """As the data source takes them."""
    options = {"service.url": given.service_url, "admin.url": given.admin_url}
    token = f"token:{given.token}" if given.token else ""
    if given.token_file:
        token = Path(given.token_file).absolute().as_uri()
    elif given.token_env or (not token and os.environ.get(TOKEN_VARIABLE)):
        token = f"env:{given.token_env or TOKEN_VARIABLE}"
    if token:
        options["pulsar.client.authPluginClassName"] = "AuthenticationToken"
        options["pulsar.client.authParams"] = token
    return options


def read_engine_options(given: argparse.Namespace) -> dict[str, str]:
    """As the data source takes them."""
    options = {
        "readEngine": given.read_engine,
        "metadataStoreUrl": given.metadata_store_url,
        "metadataStoreConfigPath": given.metadata_store_config_path,
        "bookieAddresses": given.bookie_addresses,
    }
    return {name: value for name, value in options.items() if value}


def connection(given: argparse.Namespace) -> Connection:
    """For calls that a job makes itself. Raises: InvalidOption."""
    return sink_options_with_token(server_options(given)).connection


def source_options(given: argparse.Namespace) -> dict[str, str]:
    """As the data source takes them; a gap is an error unless it was allowed."""
    options = server_options(given)
    names = {"topic": given.topic, "topics": given.topics, "topicsPattern": given.topics_pattern}
    options |= {name: value for name, value in names.items() if value}
    options |= read_engine_options(given)
    options["mode"] = given.mode
    if given.dead_letter_topic:
        options["deadLetterTopic"] = given.dead_letter_topic
    options["failOnDataLoss"] = str(not given.allow_data_loss).lower()
    return options


def check_times(start_ms: int | None, end_ms: int | None) -> None:
    """Refuse a range of publish times that nothing can lie in.

    Raises: JobError.
    """
    now_ms = time.time_ns() // 1_000_000
    if start_ms is not None and end_ms is not None and start_ms >= end_ms:
        raise JobError(
            f"--start-time-ms {start_ms} is not before --end-time-ms {end_ms}: nothing can lie "
            "between them"
        )
    if start_ms is not None and start_ms > now_ms + PUBLISH_TIME_SKEW_MS_DEFAULT:
        raise JobError(
            f"--start-time-ms {start_ms} lies {(start_ms - now_ms) / 1000:.0f} s in the future: "
            "it is milliseconds since 1970"
        )


def time_range(given: argparse.Namespace) -> dict[str, str]:
    """`--start-time-ms` and `--end-time-ms` as the data source takes them.

    Raises: JobError.
    """
    times = {"startingTime": given.start_time_ms, "endingTime": given.end_time_ms}
    check_times(given.start_time_ms, given.end_time_ms)
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
    with suppress(OSError):  # a log that cannot be written ends no job
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


@final
@dataclass(frozen=True, slots=True)
class Published:
    """Rows that were sent, and how many of them the topic had already."""

    rows: int
    duplicates: int

    def summary(self) -> dict[str, int]:
        """For the summary of a job."""
        return {"rows_stored": self.rows - self.duplicates, "rows_dropped": self.duplicates}


def publish(rows: DataFrame, options: Mapping[str, str]) -> Published:
    """Write rows to topics; what the broker did with them."""
    with TemporaryDirectory(prefix="vela-pipeline-") as directory:
        report = Path(directory, "report.json")
        told = {**options, "reportFile": str(report)}
        rows.write.format("vela").options(**told).mode("append").save()
        written = json.loads(report.read_text(encoding="utf-8"))
    return Published(sum(written["rows"].values()), sum(written["duplicates"].values()))


def tell_dropped(name: str, published: Published, label: str) -> None:
    """Warn of rows that were not stored."""
    if published.duplicates:
        progress(
            f"{name}: {published.duplicates} of {published.rows} rows were dropped, because rows "
            f"with the same numbers were published before under {label}: right for a repeated "
            "run; other data needs another name"
        )


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
