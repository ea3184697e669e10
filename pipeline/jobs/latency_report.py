"""`latency-report`: recorded latencies as the tables and figures of a report.

Inputs, any number of each:

* `--samples NAME=PATH`: (consumer_id, seq, publish_ns, recv_ns) of every delivery, as Parquet or as
  CSV with headings, a file or a directory of files: what `vela perf fanout --samples` writes. Or a
  topic (`NAME=persistent://...`) whose schema has these fields. Gives exact percentiles per
  consumer, a histogram, fairness between consumers, and what is lost, doubled or out of order.
* `--fanout NAME=FILE`: reports of `vela perf fanout --json`.
* `--perf NAME=FILE`: what pulsar-perf printed.
* `--hgrm NAME=FILE`: what pulsar-perf wrote to `--histogram-file`, or another HdrHistogram log.
* `--omb NAME=FILE`: results of the OpenMessaging Benchmark.

Several runs of one NAME are one system; the first system named is what the others are compared to.
Samples of a NAME that has reports, too, are the detail of those runs and not counted again.
Writes `report.md`, tables as Parquet, and the figures beside it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.jobs import latency_figures
from pipeline.jobs.command import (
    JobError,
    add_server,
    as_directory,
    finish,
    parser,
    progress,
    run,
    server_options,
    spark_session,
)
from pipeline.jobs.files import names_in
from pipeline.latency import (
    BUCKETS,
    PERCENTILES,
    Comparison,
    RunFigures,
    compare,
    from_fanout,
    from_omb,
    from_pulsar_perf,
    gini,
    spread,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

NAME = "latency-report"
COLUMNS = ("consumer_id", "seq", "publish_ns", "recv_ns")
TOPIC_PREFIX = "persistent://"
CONSUMER_FIGURES = ("p50", "p99", "max")
SLOWEST_SHOWN = 10


def main(arguments: Sequence[str]) -> int:
    """Run the job; prints its summary."""
    given = _arguments(arguments)
    output = Path(as_directory(given.output, "--output"))
    runs = _recorded(given)
    output.mkdir(parents=True, exist_ok=True)
    reported = set(runs)
    samples: dict[str, dict[str, Any]] = {}
    if given.samples:
        with spark_session(NAME, given) as spark:
            for index, text in enumerate(given.samples):
                system, path = _named(text, "--samples")
                progress(f"{NAME}: {path}")
                frame = _samples_of(spark, path, server_options(given))
                figures = analyse(spark, path, frame, output / f"consumers-{system}-{index}")
                samples[f"{system}-{index}"] = figures | {"recording": path}
                if system not in reported:
                    runs.setdefault(system, []).append(_as_run(path, figures))
    if not runs:
        raise JobError("give at least one of --samples, --fanout, --perf, --hgrm and --omb")
    comparisons, warnings = compare(runs)
    charts = latency_figures.draw_all(output, runs, samples)
    (output / "report.md").write_text(
        latency_figures.report(runs, samples, comparisons, warnings, charts), encoding="utf-8"
    )
    return finish(
        given,
        {
            "job": NAME,
            "report": str(output / "report.md"),
            "figures": [str(path) for path in charts],
            "comparison": [_row(each) for each in comparisons],
            "warnings": warnings,
            "samples": samples,
        },
    )


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    made = parser(NAME, __doc__ or "")
    made.add_argument("--samples", action="append", default=[], metavar="NAME=PATH")
    made.add_argument("--fanout", action="append", default=[], metavar="NAME=FILE")
    made.add_argument("--perf", action="append", default=[], metavar="NAME=FILE")
    made.add_argument("--hgrm", action="append", default=[], metavar="NAME=FILE")
    made.add_argument(
        "--hgrm-unit",
        default="ms",
        choices=("ms", "us", "ns"),
        help="of values in --hgrm: pulsar-perf has ms in consume, us in produce [%(default)s]",
    )
    made.add_argument("--omb", action="append", default=[], metavar="NAME=FILE")
    add_server(made)
    made.add_argument("--output", required=True, help="directory for the report")
    return made.parse_args(arguments)


def _named(text: str, option: str) -> tuple[str, str]:
    name, separator, path = text.partition("=")
    if not separator or not name or not path:
        raise JobError(f"{option} must be NAME=PATH, got {text!r}")
    return name, path


def _recorded(given: argparse.Namespace) -> dict[str, list[RunFigures]]:
    def hgrm(path: str, content: str) -> RunFigures:
        from pipeline.histogram_log import from_histogram_log

        return from_histogram_log(f"{path} ({given.hgrm_unit})", content, given.hgrm_unit)

    read: dict[str, Callable[[str, str], RunFigures]] = {
        "fanout": lambda path, content: from_fanout(path, json.loads(content)),
        "perf": from_pulsar_perf,
        "hgrm": hgrm,
        "omb": lambda path, content: from_omb(path, json.loads(content)),
    }
    runs: dict[str, list[RunFigures]] = {}
    for option, figures_of in read.items():
        for text in getattr(given, option):
            system, path = _named(text, f"--{option}")
            try:
                figures = figures_of(path, Path(path).read_text(encoding="utf-8"))
            except OSError as error:
                raise JobError(f"{path}: {error.strerror or error}") from None
            except json.JSONDecodeError as error:
                raise JobError(f"--{option} {path} is not JSON: {error}") from None
            except UnicodeDecodeError:
                raise JobError(f"--{option} {path} is no text") from None
            runs.setdefault(system, []).append(figures)
    return runs


def _as_run(path: str, figures: dict[str, Any]) -> RunFigures:
    return RunFigures(
        run=path,
        delivery=figures["delivery_ms"],
        messages=figures["deliveries"],
        errors=figures["lost"] + figures["duplicated"] + figures["out_of_order"],
    )


def _row(each: Comparison) -> dict[str, Any]:
    return {
        "system": each.system,
        "figure": each.figure,
        "min_ms": each.least,
        "median_ms": each.median,
        "max_ms": each.most,
        "ratio": each.ratio,
    }


def _samples_of(spark: SparkSession, path: str, options: Mapping[str, str]) -> DataFrame:
    if path.startswith(TOPIC_PREFIX):
        return spark.read.format("vela").options(**options, topic=path).load()
    if any(name.endswith(".csv") for name in (path, *names_in(spark, path))):
        kinds = "consumer_id STRING, seq BIGINT, publish_ns BIGINT, recv_ns BIGINT"
        csv = {"header": "true", "enforceSchema": "false", "mode": "FAILFAST"}
        return spark.read.schema(kinds).options(**csv).csv(path)
    return spark.read.parquet(path)


def analyse(spark: SparkSession, path: str, frame: DataFrame, table: Path) -> dict[str, Any]:
    """Everything about the recording at `path`, which `frame` reads; per-consumer rows go to
    `table`. Times in the result are ms.

    Raises: JobError.
    """
    from pyspark.sql import functions as f

    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise JobError(f"{path} has no column {', '.join(missing)}")
    rows = frame.select(
        "consumer_id",
        "seq",
        "recv_ns",
        ((f.col("recv_ns") - f.col("publish_ns")) / 1e6).alias("ms"),
    ).persist()
    consumers = per_consumer(rows)
    consumers.write.mode("overwrite").parquet(str(table))
    consumers = spark.read.parquet(str(table))
    total = rows.agg(*_percentiles(), f.count("ms").alias("n")).first()
    assert total is not None
    if not total["n"]:
        raise JobError(f"{path} holds no deliveries")
    of_consumers = {
        name: sorted(row[0] for row in consumers.select(f.col(f"`{name}`")).collect())
        for name in CONSUMER_FIGURES
    }
    p99s = of_consumers["p99"]
    slowest = consumers.orderBy(f.desc("p99"), "consumer_id").limit(SLOWEST_SHOWN).collect()
    sums = consumers.agg(
        f.sum("lost").alias("lost"),
        f.sum("duplicated").alias("duplicated"),
        f.sum("out_of_order").alias("out_of_order"),
    ).first()
    assert sums is not None
    figures = {
        "deliveries": total["n"],
        "consumers": len(p99s),
        "delivery_ms": {name: total[name] for name in PERCENTILES},
        "histogram": _histogram(rows, total["max"]),
        "per_consumer_ms": {name: spread(values) for name, values in of_consumers.items()},
        "slowest": [row.asDict() for row in slowest],
        "fairness": {
            "p99_max_to_median": p99s[-1] / p99s[len(p99s) // 2] if p99s[len(p99s) // 2] else None,
            "p99_gini": gini(p99s),
        },
        **{name: int(sums[name] or 0) for name in ("lost", "duplicated", "out_of_order")},
    }
    rows.unpersist()
    return figures


def _percentiles() -> list[Any]:
    """The smallest value that at least that part of all is not above, as `vela perf` has it."""
    from pyspark.sql import functions as f

    parts = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
    exact = [
        f.expr(f"percentile_disc({part}) WITHIN GROUP (ORDER BY ms)").alias(name)
        for name, part in parts.items()
    ]
    return [*exact, f.max("ms").alias("max")]


def per_consumer(rows: DataFrame) -> DataFrame:
    """Percentiles, and what is lost (a seq that others have), doubled or out of order."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    expected = rows.agg(f.countDistinct("seq").alias("expected"))
    order = Window.partitionBy("consumer_id").orderBy("recv_ns", "seq")
    seen = order.rowsBetween(Window.unboundedPreceding, -1)
    marked = rows.withColumn("before", f.max("seq").over(seen))
    counted = marked.groupBy("consumer_id").agg(
        *_percentiles(),
        f.count("ms").alias("received"),
        f.countDistinct("seq").alias("different"),
        f.count(f.when(f.col("seq") < f.col("before"), 1)).alias("out_of_order"),
    )
    return counted.crossJoin(f.broadcast(expected)).select(
        "consumer_id",
        *(f.col(f"`{name}`") for name in PERCENTILES),
        "received",
        (f.col("expected") - f.col("different")).alias("lost"),
        (f.col("received") - f.col("different")).alias("duplicated"),
        "out_of_order",
    )


def _histogram(rows: DataFrame, most: float) -> dict[str, list[Any]]:
    """Counts of equally wide buckets from 0 to the maximum."""
    from pyspark.sql import functions as f

    width = (most or 1.0) / BUCKETS
    bucket = f.least(f.floor(f.col("ms") / width), f.lit(BUCKETS - 1))
    counts = [0] * BUCKETS
    for row in rows.groupBy(f.greatest(bucket, f.lit(0)).alias("bucket")).count().collect():
        counts[row["bucket"]] = row["count"]
    edges = [width * index for index in range(BUCKETS + 1)]
    return {"edges_ms": edges, "counts": counts}


if __name__ == "__main__":
    sys.exit(run(NAME, main, sys.argv[1:]))
