"""A job that streams one topic into Parquet until it is killed, or its time is over.

Arguments: the connector's jar, a directory for Spark, the service URL, the admin URL, the topic,
and the directory of the files (its checkpoint lies beside it).
"""

from __future__ import annotations

import sys

from compat_tests.spark.program import session

LIFE_SECONDS_MAX = 180


def main(jar: str, directory: str, service_url: str, admin_url: str, topic: str, out: str) -> None:
    """Returns when the time is over."""
    options = {"service.url": service_url, "admin.url": admin_url, "topic": topic}
    stream = session(jar, directory).readStream.format("pulsar").options(**options)
    (
        stream.option("startingOffsets", "earliest")
        .load()
        .writeStream.format("parquet")
        .option("path", out)
        .option("checkpointLocation", f"{out}-checkpoint")
        .start()
        .awaitTermination(LIFE_SECONDS_MAX)
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
