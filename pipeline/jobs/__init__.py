"""The jobs. Each module has `main(arguments) -> int` and runs by itself under `spark-submit`."""

from typing import Final

JOBS: Final = {
    "archive": "a topic to Parquet or Delta Lake by date and hour, each message exactly once",
    "replay": "an archive or a time range of a topic back to a topic, order and keys kept",
    "windows": "event-time windows over a field of a topic, to a topic, each window once",
    "hazard-broadcast": "camera events joined with areas, published to each area's topic",
    "latency-report": "tables and figures of recorded latencies, and the comparison of runs",
    "seed-telemetry": "simulated vehicles to a topic, to try the others with",
    "last-position": "the newest message of each key, to Parquet",
    "vehicle-trips": "drives between silences, per vehicle, to a topic, each trip once",
    "backlog-audit": "all topics' subscriptions: backlog, stuck ones, leaked ones",
}
"""By name, with what it does."""


def module_of(name: str) -> str:
    """The module of a job."""
    return f"pipeline.jobs.{name.replace('-', '_')}"


def usage() -> str:
    """The help of `vela pipeline`. It needs nothing that only the jobs' environment has."""
    head = "usage: vela pipeline JOB [OPTIONS]; vela pipeline JOB --help"
    return "\n".join([head, "", "jobs:", *(f"  {name:18}{what}" for name, what in JOBS.items())])
