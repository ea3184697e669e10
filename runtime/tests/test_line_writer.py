"""Lines of a parent whose stderr is read, not read, and closed."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

from runtime.line_writer import LineWriter

TREE = Path(__file__).resolve().parent.parent.parent
WAIT_SECONDS_MAX = 60.0


class Reader:
    """Where the lines go. It takes nothing before `go_on`."""

    def __init__(self):
        self.taken = []
        self.asked = threading.Event()
        self.go_on = threading.Event()

    def write(self, data):
        self.asked.set()
        assert self.go_on.wait(WAIT_SECONDS_MAX)
        self.taken.append(data)
        return len(data)

    @property
    def lines(self):
        return b"".join(self.taken).decode().splitlines()


def test_lines_are_written_in_their_order_before_the_end():
    reader = Reader()
    reader.go_on.set()
    lines = LineWriter(reader.write)
    for number in range(100):
        lines.write(f"{number}\nand {number}")
    lines.close(WAIT_SECONDS_MAX)
    assert reader.lines == [text for n in range(100) for text in (f"{n}", f"and {n}")]


def test_a_reader_who_stops_holds_up_nobody_and_is_told_what_is_missing():
    reader = Reader()
    lines = LineWriter(reader.write, waiting_bytes_max=100)
    lines.write("first")
    assert reader.asked.wait(WAIT_SECONDS_MAX)
    for _number in range(1_000):  # returns although nobody reads
        lines.write("123456789")
    reader.go_on.set()
    lines.close(WAIT_SECONDS_MAX)
    kept = ["first"] + 10 * ["123456789"]
    assert reader.lines == [*kept, "990 lines were dropped here: stderr was not read"]


def test_an_end_does_not_wait_for_a_reader_who_stopped():
    reader = Reader()
    lines = LineWriter(reader.write)
    lines.write("first")
    assert reader.asked.wait(WAIT_SECONDS_MAX)
    lines.close(0.01)
    lines.write("late")
    reader.go_on.set()
    lines.close(WAIT_SECONDS_MAX)
    assert reader.lines == ["first"]


def test_a_closed_stderr_ends_the_lines_and_not_the_process():
    script = """if True:
        from runtime.line_writer import LineWriter
        input()
        lines = LineWriter()
        for _ in range(10):
            lines.write("x" * 100_000)
        lines.close()
        print("alive")
    """
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=TREE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        process.stderr.close()
        said, _ = process.communicate(b"\n", WAIT_SECONDS_MAX)
    assert said == b"alive\n"


class Disk:
    """It takes so many bytes; then it is full until it has room again."""

    def __init__(self, room):
        self.room = room
        self.taken = b""
        self.failed = threading.Event()
        self.told = threading.Event()

    def write(self, data):
        if not self.room:
            self.failed.set()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        piece = data[: self.room]
        self.taken += piece
        self.room -= len(piece)
        if b"dropped" in self.taken and self.taken.endswith(b"\n"):
            self.told.set()
        return len(piece)


def test_lines_for_a_full_disk_are_dropped_and_counted_and_the_next_one_says_so():
    disk = Disk(0)
    lines = LineWriter(disk.write)
    for number in range(3):
        disk.failed.clear()
        lines.write(f"lost {number}\nand its second line")
        assert disk.failed.wait(WAIT_SECONDS_MAX)
    disk.room = 1_000
    lines.write("kept")
    lines.close(WAIT_SECONDS_MAX)
    notice = "6 lines were dropped here: stderr could not be written: No space left on device"
    assert disk.taken.decode().splitlines() == [notice, "kept"]
    assert lines.dropped_total == 6


def test_room_on_the_disk_is_noticed_without_another_line():
    disk = Disk(0)
    lines = LineWriter(disk.write, retry_seconds_min=0.01)
    lines.write("lost")
    assert disk.failed.wait(WAIT_SECONDS_MAX)
    disk.room = 1_000
    assert disk.told.wait(WAIT_SECONDS_MAX)
    assert disk.taken.startswith(b"1 lines were dropped here")
    lines.close(WAIT_SECONDS_MAX)


def test_a_line_of_which_a_part_was_written_counts_as_dropped_and_the_next_one_begins_a_line():
    disk = Disk(len("whole\npart"))
    lines = LineWriter(disk.write, retry_seconds_min=0.01)
    lines.write("whole\npart of a line")
    assert disk.failed.wait(WAIT_SECONDS_MAX)
    disk.room = 1_000
    assert disk.told.wait(WAIT_SECONDS_MAX)
    lines.write("later")
    lines.close(WAIT_SECONDS_MAX)
    notice = "1 lines were dropped here: stderr could not be written: No space left on device"
    assert disk.taken.decode().splitlines() == ["whole", "part", notice, "later"]


def test_lines_of_several_threads_stay_whole():
    reader = Reader()
    reader.go_on.set()
    lines = LineWriter(reader.write)

    def say(name):
        for _ in range(500):
            lines.write(name * 100)

    threads = [threading.Thread(target=say, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines.close(WAIT_SECONDS_MAX)
    assert sorted(reader.lines) == [name * 100 for name in "abcd" for _ in range(500)]
