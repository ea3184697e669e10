"""Lines of a parent whose stderr is read, not read, and closed."""

import subprocess
import sys
import threading
from pathlib import Path

from runtime.line_writer import LineWriter

TREE = Path(__file__).resolve().parent.parent.parent
WAIT_SECONDS_MAX = 30.0


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

    @property
    def lines(self):
        return b"".join(self.taken).decode().splitlines()


def test_lines_are_written_in_their_order_before_the_end():
    reader = Reader()
    reader.go_on.set()
    lines = LineWriter(reader.write)
    for number in range(100):
        lines.put(f"{number}\nand {number}")
    lines.close(WAIT_SECONDS_MAX)
    assert reader.lines == [text for n in range(100) for text in (f"{n}", f"and {n}")]


def test_a_reader_who_stops_holds_up_nobody_and_is_told_what_is_missing():
    reader = Reader()
    lines = LineWriter(reader.write, waiting_bytes_max=100)
    lines.put("first")
    assert reader.asked.wait(WAIT_SECONDS_MAX)
    for _number in range(1_000):  # returns although nobody reads
        lines.put("123456789")
    reader.go_on.set()
    lines.close(WAIT_SECONDS_MAX)
    kept = ["first"] + 10 * ["123456789"]
    assert reader.lines == [*kept, "990 lines were dropped here: stderr was not read"]


def test_an_end_does_not_wait_for_a_reader_who_stopped():
    reader = Reader()
    lines = LineWriter(reader.write)
    lines.put("first")
    assert reader.asked.wait(WAIT_SECONDS_MAX)
    lines.close(0.01)
    lines.put("late")
    reader.go_on.set()
    lines.close(WAIT_SECONDS_MAX)
    assert reader.lines == ["first"]


def test_a_closed_stderr_ends_the_lines_and_not_the_process():
    script = """if True:
        from runtime.line_writer import LineWriter
        input()
        lines = LineWriter()
        for _ in range(10):
            lines.put("x" * 100_000)
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
