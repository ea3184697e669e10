"""Small file systems of their own for bookies, which can be filled: tmpfs in a mount namespace.

The runner starts itself again in namespaces of its own, where a user without privileges may mount,
too. The mounts are seen by its children only, and go with it.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

SIZE_MB: Final = 96
_MARK: Final = "VELA_FAULTS_OWN_MOUNTS"
_BALLAST: Final = "ballast"
_UNSHARE: Final = ["unshare", "--user", "--map-root-user", "--mount"]


def enter_own_mounts(arguments: list[str]) -> bool:
    """Start this program again where it can mount, with the same arguments. Returns only there
    (True), or where the system does not allow it (False)."""
    if os.environ.get(_MARK):
        return True
    if shutil.which(_UNSHARE[0]) is None:
        return False
    tried = subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False)
    if tried.returncode != 0:
        return False
    os.environ[_MARK] = "1"
    os.execvp(_UNSHARE[0], [*_UNSHARE, sys.executable, *arguments])


def mount_small(directory: Path) -> None:
    """An empty file system at a directory. Raises: subprocess.CalledProcessError."""
    directory.mkdir(parents=True, exist_ok=True)
    options = f"size={SIZE_MB}m,mode=700"
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(directory)]
    subprocess.run(command, check=True, capture_output=True)


def unmount(directory: Path) -> None:
    """What is in it is gone, at the latest when nobody uses it any more."""
    subprocess.run(["umount", "--lazy", str(directory)], check=True, capture_output=True)


def used_share(directory: Path) -> float:
    """Of the file system that holds the directory."""
    status = os.statvfs(directory)
    return 1 - status.f_bavail / status.f_blocks


def fill(directory: Path, left_bytes: int) -> None:
    """Leave so much free space. A bookie may take some between the look and the reservation, so
    that is tried again."""
    with open(directory / _BALLAST, "wb") as ballast:
        for last in (False, False, True):
            status = os.statvfs(directory)
            size = status.f_bavail * status.f_frsize - left_bytes
            try:
                os.posix_fallocate(ballast.fileno(), 0, max(1, size))
            except OSError as error:
                if last or error.errno != errno.ENOSPC:
                    raise
            else:
                return


def free(directory: Path) -> None:
    """Take back what `fill` did."""
    (directory / _BALLAST).unlink(missing_ok=True)
