"""Files of Maven Central: fetched once, kept where they were put, and checked by their checksum."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.7.1:copy"
FETCH_ATTEMPTS = 3
FETCH_TIMEOUT_SECONDS = 1800


class NotFetched(Exception):
    """The file cannot be had on this machine; the text says why."""


def fetched(artifact: str, path: Path, sha512: str) -> Path:
    """`path`, with the artifact `group:name:version[:type[:classifier]]`, whose file has that name.

    A file without the pinned checksum is thrown away and fetched again, so an interrupted fetch is
    taken up by simply running again. Raises: NotFetched.
    """
    if _is_there(path, sha512):
        return path
    maven = shutil.which("mvn")
    if maven is None:
        raise NotFetched(f"no `mvn` on the path: it fetches {artifact}")
    path.parent.mkdir(parents=True, exist_ok=True)
    told = ""
    for _ in range(FETCH_ATTEMPTS):
        path.unlink(missing_ok=True)
        told = _copy(maven, artifact, path.parent) or "it came with another checksum"
        if _is_there(path, sha512):
            return path
    raise NotFetched(f"Maven could not fetch {artifact} as it is pinned: {told}")


def _is_there(path: Path, sha512: str) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as opened:
        return hashlib.file_digest(opened, "sha512").hexdigest() == sha512


def _copy(maven: str, artifact: str, directory: Path) -> str:
    """The end of what Maven printed when it failed, else nothing."""
    ran = subprocess.run(
        [maven, "-q", "-B", COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={directory}"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=FETCH_TIMEOUT_SECONDS,
        check=False,
    )
    return (ran.stdout + ran.stderr).strip()[-2000:] if ran.returncode else ""
