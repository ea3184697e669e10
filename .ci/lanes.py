"""Runs the parts of CI, several at a time, and ends with pytest's closing line of each part.

    python .ci/lanes.py             # what must pass before a change lands
    python .ci/lanes.py nightly     # what is long and rarely fails

Stages come one after the other. The parts of a stage share the machine: each lane takes the next
part when its last one has ended. A part's output is kept in `build/ci/` and printed in one piece
when the part ends. A part that fails, the end of the time, or a signal ends all others, with every
process that they have started; the exit status is then 1.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
OUTPUT: Final = ROOT / "build" / "ci"
SECONDS_MAX: Final = 85 * 60
"""A run that takes longer is ended here, where it still says which parts had not ended."""
NIGHTLY_SECONDS_MAX: Final = 12 * 3600
INTERRUPTED_SECONDS_MAX: Final = 60
"""How long an interrupted part may take to end the servers of its tests."""
CLOSING_LINE: Final = re.compile(r"\b\d+ (passed|failed|errors?|skipped)\b.* in [\d.]+s")


@dataclass(frozen=True)
class Part:
    """A command of CI."""

    name: str
    command: tuple[str, ...]


def target(name: str, *arguments: str) -> Part:
    """A target of the Makefile."""
    return Part(name, ("make", "--no-print-directory", name, *arguments))


@dataclass(frozen=True)
class Stage:
    """Parts that may run beside each other, the longest first, in so many lanes."""

    parts: tuple[Part, ...]
    lanes: int


REQUIRED: Final = "COMPAT_ARGS=--oracle-required"
STAGES: Final = (
    # The network and the minutes of servers are waited for while tests have the processors.
    Stage((target("test"), target("setup-compat"), target("compat-waits", REQUIRED)), lanes=2),
    Stage(
        (
            target("compat-scenarios", REQUIRED),
            target("compat-clusters", REQUIRED),
            target("compat-servers", REQUIRED),
            target("test-pipeline"),
            target("compat-spark", REQUIRED),
            target("compat-smoke", REQUIRED),
        ),
        # A client that waits for its server, or for a JVM to start, leaves a processor idle.
        lanes=3,
    ),
)

NIGHT: Final = os.environ.get("NIGHT", "1")
"""The seed of everything that takes one."""
NIGHTLY: Final = (
    Stage(
        (
            target("compat-all", REQUIRED + " --oracle both"),
            target("simulate", "SEEDS=1000", f"FROM={NIGHT}000"),
            target("crash", f"SEED={NIGHT}", "CRASH_OUTPUT=build/ci"),
            target("damage", f"SEED={NIGHT}"),
            target("test-slow"),
            target("test-many-examples", f"NIGHT={NIGHT}"),
            target("strangers", f"SEED={NIGHT}"),
            target("sanitize", "SANITIZE_ARGS=--hypothesis-profile many"),
            target("compat-spark", REQUIRED),
            target("test-pipeline-all"),
            target("token-expiry"),
            # Last, because servers that start after it find the compiled modules, too.
            target("test-compiled"),
        ),
        lanes=2,
    ),
)


@dataclass
class Run:
    """What has ended and what runs."""

    output: Path
    """The directory of the parts' output."""
    seconds_max: float
    goes_on: bool
    """Whether a part that fails leaves the others to run to their ends."""
    begun: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    failed: str = ""
    """Why the run has failed, if it has."""
    is_ended: bool = False
    """Whether no part is to begin, and those that run are to end."""
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def part(self, part: Part) -> None:
        """Run it to its end, unless something has failed before."""
        with self._guard:
            if self.is_ended:
                return
            begun = time.monotonic()
            say(f"{part.name} begins")
            with open(self.output_path(part), "wb") as output:
                self.running[part.name] = process = subprocess.Popen(
                    part.command,
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        status = process.wait()
        with self._guard:
            del self.running[part.name]
            self.seconds[part.name] = time.monotonic() - begun
            if status:
                self.fail(f"{part.name} failed with exit status {status}", ends=not self.goes_on)
            say(f"{part.name} ended after {self.seconds[part.name]:.0f} s; its output:")
            say(self.output_of(part))

    def fail(self, why: str, *, ends: bool) -> None:
        """Remember the first reason."""
        self.failed = self.failed or why
        self.is_ended |= ends

    def output_path(self, part: Part) -> Path:
        """Where a part's output is kept."""
        return self.output / f"{part.name}.log"

    def output_of(self, part: Part) -> str:
        """What a part has printed."""
        return self.output_path(part).read_text(errors="replace")

    def stage(self, stage: Stage) -> None:
        """All parts of a stage, or those that begin before something fails."""
        waiting: queue.SimpleQueue[Part] = queue.SimpleQueue()
        for part in stage.parts:
            waiting.put(part)

        def lane() -> None:
            with contextlib.suppress(queue.Empty):
                while True:
                    self.part(waiting.get_nowait())

        lanes = [threading.Thread(target=lane) for _ in range(stage.lanes)]
        for each in lanes:
            each.start()
        while any(each.is_alive() for each in lanes):
            if time.monotonic() - self.begun > self.seconds_max:
                self.fail(f"not done after {self.seconds_max / 60:.0f} minutes", ends=True)
            if self.is_ended:
                self.end_what_runs()
            time.sleep(0.2)
        for each in lanes:
            each.join()

    def end_what_runs(self) -> None:
        """Interrupt the parts, so that tests end their servers; kill what does not end."""
        for process in list(self.running.values()):
            _signal(process.pid, signal.SIGINT)
        end = time.monotonic() + INTERRUPTED_SECONDS_MAX
        while self.running and time.monotonic() < end:
            time.sleep(0.2)
        for process in list(self.running.values()):
            _signal(process.pid, signal.SIGKILL)


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def say(*lines: str) -> None:
    """Print at once."""
    print(*lines, sep="\n", flush=True)


def adopt_orphans() -> None:
    """Become the parent of processes whose own parent has ended, so that none is lost."""
    set_child_subreaper = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
    ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)


def _children(of: int) -> Iterator[int]:
    """Processes below one."""
    with contextlib.suppress(OSError):
        for each in Path(f"/proc/{of}/task/{of}/children").read_text().split():
            yield int(each)
            yield from _children(int(each))


def end_orphans() -> list[int]:
    """Kill what the parts have left running; returns it."""
    left = []
    while below := list(_children(os.getpid())):
        for each in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        left += below
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.1)
    return left


def closing_lines(output: str) -> list[str]:
    """The lines with which pytest ended; a part without tests has none."""
    return [line for line in output.splitlines() if CLOSING_LINE.search(line)]


def report(run: Run, parts: Sequence[Part]) -> None:
    """What became of each part, with pytest's closing line as the last one."""
    say(f"--- after {time.monotonic() - run.begun:.0f} s ---")
    for part in parts:
        if part.name not in run.seconds:
            say(f"{part.name}: not begun")
            continue
        say(f"{part.name}, {run.seconds[part.name]:.0f} s:", *closing_lines(run.output_of(part)))
    if run.failed:
        say(f"FAILED: {run.failed}")


def run_stages(
    stages: Sequence[Stage], output: Path, seconds_max: float, *, goes_on: bool = False
) -> int:
    """Exit status 0 if every part had one of 0."""
    output.mkdir(parents=True, exist_ok=True)
    for old in output.glob("*.log"):
        old.unlink()
    adopt_orphans()
    run = Run(output, seconds_max, goes_on)

    def stop(number: int, frame: object) -> None:
        run.fail(f"ended by {signal.Signals(number).name}", ends=True)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    for stage in stages:
        if not run.is_ended:
            run.stage(stage)
    end_orphans()
    report(run, [part for stage in stages for part in stage.parts])
    return 1 if run.failed else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["nightly"]:
        sys.exit(run_stages(NIGHTLY, OUTPUT, NIGHTLY_SECONDS_MAX, goes_on=True))
    sys.exit(run_stages(STAGES, OUTPUT, SECONDS_MAX))
