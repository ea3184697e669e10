"""Only regular files are read, and no more of them than is asked for."""

from __future__ import annotations

import os

import pytest

from settings.plain_file import read_plain_file


def test_a_file_is_read_as_a_whole(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    assert read_plain_file(tmp_path / "file", 7) == b"content"
    (tmp_path / "link").symlink_to("file")
    assert read_plain_file(str(tmp_path / "link"), 7) == b"content"


def test_a_larger_file_shows_that_it_is(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    assert read_plain_file(tmp_path / "file", 3) == b"cont"


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is not a regular file"):
        read_plain_file(tmp_path / "pipe", 10)


@pytest.mark.parametrize(
    ("path", "told"),
    [("/dev/zero", "it is not a regular file"), ("/dev", "Is a directory"), ("/none", "No such")],
)
def test_what_is_no_file_is_refused(path, told):
    with pytest.raises(OSError, match=told):
        read_plain_file(path, 10)
