"""Unix sockets that only the processes of one user can connect to.

A process must be able to enter the directory of the socket to connect. It is made for this user
alone before the socket is in it, and a directory of another user is refused.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from typing import Final

import trio

PATH_BYTES_MAX: Final = 107
"""Source: unix(7), sun_path."""
DIRECTORY_MODE: Final = 0o700
SOCKET_MODE: Final = 0o600
_CREDENTIALS: Final = struct.Struct("3i")
"""pid, uid and gid. Source: unix(7), struct ucred."""


def listen_at_path(path: str) -> trio.SocketListener:
    """Listen at a path. A socket that a killed process has left there is replaced, so the caller
    has made sure, by a lock, that no other process serves it.

    Raises: OSError: also if the path is too long, or its directory belongs to another user.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _own_directory(os.path.dirname(path))
        _remove_socket(path)
        listening.bind(path)
        os.chmod(path, SOCKET_MODE)
        listening.listen(socket.SOMAXCONN)
    except BaseException:
        listening.close()
        raise
    return trio.SocketListener(trio.socket.from_stdlib_socket(listening))


def peer_process(connected: socket.socket | trio.socket.SocketType) -> int:
    """The id of the process that has connected. Raises: OSError."""
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process_id: int = _CREDENTIALS.unpack(raw)[0]
    return process_id


def _own_directory(directory: str) -> None:
    """Raises: OSError: among others, it is a symbolic link or belongs to another user."""
    os.makedirs(directory, DIRECTORY_MODE, exist_ok=True)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(0, f"directory {directory} belongs to another user")
        os.fchmod(descriptor, DIRECTORY_MODE)
    finally:
        os.close(descriptor)


def _remove_socket(path: str) -> None:
    """Raises: OSError: what is there is no socket, or cannot be removed."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(0, "there is a file that is no socket")
    os.unlink(path)
