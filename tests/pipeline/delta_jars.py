"""Delta Lake's jars, fetched once through Maven into `.oracle/`."""

from __future__ import annotations

import fcntl
from functools import cache

from compat_tests.oracle.distribution import ORACLE_DIRECTORY
from compat_tests.oracle.maven import NotFetched, fetched

DIRECTORY = ORACLE_DIRECTORY / "delta"
SHA512 = {
    "io.delta:delta-spark_4.2_2.13:4.4.0": (
        "e5ed81343c92148c786396698e8543956e41fee78eedfe4c305d231d7de900ce"
        "32ef39d6b63d090bca3baa4650eb9d0e88f5ef697a780da655344e493f438e27"
    ),
    "io.delta:delta-storage:4.4.0": (
        "88dc766fb423a2b81546373133246d7f8216e20456b7f6e8ba5ce6c861d6c7fa"
        "9e8bac3081402775241e7ef62a0ae05f2070d0816f1b07d838f2ef3d98cfa744"
    ),
}


@cache
def delta_jars() -> str:
    """The files as `spark.jars` takes them. Raises: NotFetched."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    found = []
    with open(DIRECTORY / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once fetch them once
        for artifact, sha512 in SHA512.items():
            _, name, version = artifact.split(":")
            found.append(fetched(artifact, DIRECTORY / f"{name}-{version}.jar", sha512))
    return ",".join(map(str, found))


def delta_settings() -> dict[str, str]:
    """Settings that give a Spark session Delta Lake; none where it cannot be fetched."""
    try:
        return {"spark.jars": delta_jars()}
    except NotFetched:
        return {}
