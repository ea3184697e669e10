"""Real Pulsar's server distribution: fetched once through Maven, checked, unpacked into `.oracle/`.

Invariants: the directory returned is complete, because it is unpacked beside its place and renamed
into it; an archive that does not have the pinned checksum is thrown away and fetched again, so an
interrupted fetch is taken up by simply running again. `.oracle/` is never committed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from compat_tests.oracle.maven import NotFetched, fetched

PULSAR_VERSION = "4.0.8"
ARCHIVE_SHA512 = (
    "65b769b10696cdfebf7fc5bcdc95dd663702e27051e616c1a13cb100e9127952"
    "5be35352171befe7b0011176330aab29bd0a6c8a0f2f0646641af46d2e33cbd6"
)
TREE = Path(__file__).resolve().parents[2]
ORACLE_DIRECTORY = TREE / ".oracle"
ARCHIVE_NAME = f"pulsar-server-distribution-{PULSAR_VERSION}-bin.tar.gz"
MAVEN_ARTIFACT = f"org.apache.pulsar:pulsar-server-distribution:{PULSAR_VERSION}:tar.gz:bin"


class OracleAbsent(Exception):
    """Real Pulsar cannot be had on this machine; the text says what is missing."""


def java_major_version() -> int | None:
    """The major version of the `java` on the path, None when there is none."""
    java = shutil.which("java")
    if java is None:
        return None
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    for word in told.replace('"', " ").split():
        head = word.split(".")[0]
        if head.isdigit():
            return int(head)
    return None


def require_java() -> None:
    """Raise OracleAbsent unless Java 17 or later is there."""
    found = java_major_version()
    if found is None:
        raise OracleAbsent("no `java` on the path: real Pulsar 4.0 needs Java 17")
    if found < 17:
        raise OracleAbsent(f"`java` is version {found}: real Pulsar 4.0 needs Java 17")


def pulsar_home() -> Path:
    """The unpacked distribution; fetches it when it is not there yet."""
    require_java()
    home = ORACLE_DIRECTORY / f"apache-pulsar-{PULSAR_VERSION}"
    if (home / "bin" / "pulsar").is_file():
        return home
    ORACLE_DIRECTORY.mkdir(exist_ok=True)
    with open(ORACLE_DIRECTORY / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once fetch it once
        if not (home / "bin" / "pulsar").is_file():
            _unpack(_fetch(), home)
    return home


def _fetch() -> Path:
    try:
        return fetched(MAVEN_ARTIFACT, ORACLE_DIRECTORY / ARCHIVE_NAME, ARCHIVE_SHA512)
    except NotFetched as error:
        raise OracleAbsent(str(error)) from None


def _unpack(archive: Path, home: Path) -> None:
    beside = ORACLE_DIRECTORY / f"unpacking-{os.getpid()}"
    shutil.rmtree(beside, ignore_errors=True)
    with tarfile.open(archive) as packed:
        packed.extractall(beside, filter="tar")
    shutil.rmtree(home, ignore_errors=True)
    os.rename(beside / home.name, home)
    shutil.rmtree(beside)
