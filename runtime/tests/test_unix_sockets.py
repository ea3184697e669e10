"""Unix sockets for one user: the directory is closed to others before the socket is in it."""

import os
import socket
import stat

import pytest
import trio

from runtime.unix_sockets import PATH_BYTES_MAX, listen_at_path, peer_process


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


async def test_others_can_enter_neither_the_directory_nor_the_socket(tmp_path):
    path = tmp_path / "run" / "a.sock"
    path.parent.mkdir(mode=0o755)
    async with listen_at_path(str(path)) as listener:
        assert (mode_of(path.parent), mode_of(path)) == (0o700, 0o600)
        async with await trio.open_unix_socket(path), await listener.accept() as accepted:
            assert peer_process(accepted.socket) == os.getpid()


async def test_the_socket_of_a_killed_process_is_replaced(tmp_path):
    path = str(tmp_path / "a.sock")
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(path)
    async with listen_at_path(path), await trio.open_unix_socket(path):
        pass


def test_a_file_that_is_no_socket_is_kept(tmp_path):
    path = tmp_path / "a.sock"
    path.write_text("kept")
    with pytest.raises(FileExistsError, match="no socket"):
        listen_at_path(str(path))
    assert path.read_text() == "kept"


def test_a_directory_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "run").symlink_to("elsewhere")
    with pytest.raises(OSError, match="Not a directory"):
        listen_at_path(str(tmp_path / "run" / "a.sock"))
    assert mode_of(tmp_path / "elsewhere") == 0o755
    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory of another user")
def test_a_directory_of_another_user_is_refused(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    os.chown(run, 65_534, 65_534)
    with pytest.raises(PermissionError, match="belongs to another user"):
        listen_at_path(str(run / "a.sock"))
    assert os.listdir(run) == []


def test_a_path_that_is_too_long_is_refused(tmp_path):
    path = f"{tmp_path}/".ljust(PATH_BYTES_MAX + 1, "a")
    with pytest.raises(OSError, match="too long"):
        listen_at_path(path)
