"""`backlog-audit`: every subscription of every topic, and which are stuck, abandoned or leaked.

Writes a table (Parquet) and a chart of the largest backlogs when it is given a directory.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.admin import Admin, NotFound
from pipeline.audit import SubscriptionRow, rows_of, summary
from pipeline.jobs.command import (
    add_server,
    as_directory,
    connection,
    finish,
    parser,
    progress,
    run,
    spark_session,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

NAME = "backlog-audit"
BARS_MAX = 20
ROWS_DDL = (
    "topic STRING, subscription STRING, type STRING, durable BOOLEAN, consumers BIGINT, "
    "backlog BIGINT, backlog_size BIGINT, unacked BIGINT, rate_out DOUBLE, "
    "why_not_dispatching STRING, state STRING"
)
COLOURS = {"ok": "#4c78a8", "stuck": "#f58518", "abandoned": "#e45756", "leaked": "#b279a2"}


def main(arguments: Sequence[str]) -> int:
    """Run the job; prints its summary."""
    given = _arguments(arguments)
    if given.output:
        as_directory(given.output, "--output")
    admin = Admin(connection(given))
    topics, rows = collect(admin, given.namespace)
    result = {"job": NAME, "topics": topics, **summary(rows)}
    if given.output:
        with spark_session(NAME, given) as spark:
            table = spark.createDataFrame([row.as_dict() for row in rows], ROWS_DDL)
            table.coalesce(1).write.mode("overwrite").parquet(f"{given.output}/subscriptions")
        result["chart"] = str(draw(rows, Path(given.output)))
    return finish(given, result)


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    made = parser(NAME, __doc__ or "")
    add_server(made)
    made.add_argument("--namespace", help="tenant/namespace [default: all]")
    made.add_argument("--output", help="directory for the table and the chart")
    return made.parse_args(arguments)


def collect(admin: Admin, namespace: str | None) -> tuple[int, list[SubscriptionRow]]:
    """How many topics, and their subscriptions. Topics that vanish meanwhile are left out."""
    count, rows = 0, []
    for name in [namespace] if namespace else admin.namespaces():
        topics = admin.topics_of("persistent", name)
        progress(f"{NAME}: {name}: {len(topics)} topics")
        for topic in topics:
            try:
                rows += rows_of(topic, admin.stats(topic))
            except NotFound:
                continue
            count += 1
    return count, rows


def draw(rows: Sequence[SubscriptionRow], directory: Path) -> Path:
    """The largest backlogs as bars."""
    from matplotlib.figure import Figure

    largest = sorted(rows, key=lambda row: row.backlog)[-BARS_MAX:]
    figure = Figure(figsize=(10, 1.5 + 0.3 * max(len(largest), 1)), layout="constrained")
    axes = figure.subplots()
    names = [f"{row.topic.partition('://')[2]}\n{row.subscription}" for row in largest]
    axes.barh(
        range(len(largest)),
        [row.backlog for row in largest],
        color=[COLOURS[row.state] for row in largest],
    )
    axes.set_yticks(range(len(largest)), names, fontsize=6)
    axes.set_xlabel("messages in the backlog")
    for state, colour in COLOURS.items():
        axes.barh([0], [0], color=colour, label=state)
    axes.legend(loc="lower right")
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "backlog.png"
    figure.savefig(path, dpi=120)
    return path


if __name__ == "__main__":
    sys.exit(run(NAME, main, sys.argv[1:]))
