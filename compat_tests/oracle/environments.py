"""Python environments in `.oracle/`, each made once from a lock file with checksums.

Invariant: an environment counts as made when the stamp with the checksum of its lock file is
written, which comes last; one that an interruption left half made is made again.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

INSTALL_TIMEOUT_SECONDS = 1200


class NotInstalled(Exception):
    """The packages cannot be had on this machine; the text says why."""


def python_of(environment: Path, lock_file: Path) -> Path:
    """The `python` of this environment, which has the packages of the lock file.

    The caller sees to it that two runs do not make it at once. Raises: NotInstalled.
    """
    python = environment / "bin" / "python"
    stamp = environment / "made-from"
    wanted = hashlib.sha512(lock_file.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(environment, ignore_errors=True)
    told = _run(environment.parent, sys.executable, "-m", "venv", str(environment))
    if not told:
        install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        told = _run(
            environment.parent, str(python), *install, "--require-hashes", "-r", str(lock_file)
        )
    if told:
        raise NotInstalled(f"the packages of {lock_file.name} could not be installed: {told}")
    stamp.write_text(wanted)
    return python


def _run(directory: Path, *command: str) -> str:
    """The end of what the command printed when it failed, else nothing."""
    ran = subprocess.run(
        command,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_SECONDS,
        check=False,
    )
    return (ran.stdout + ran.stderr).strip()[-2000:] if ran.returncode else ""
