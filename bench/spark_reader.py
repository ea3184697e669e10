"""A Spark program of `spark_program.py`, told what to read, and what its processes spend.

Invariants: it runs in a process group of its own, which ends with it; its output goes to a file of
its own; every answer has a time limit.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import psutil

from compat_tests.oracle.distribution import TREE

if TYPE_CHECKING:
    from pathlib import Path

START_SECONDS_MAX = 120.0
LOG_TAIL_BYTES = 2000


class ReadFailed(Exception):
    """Spark could not read, or did not in time; the text is what it said."""


class SparkReader:
    """A session that stays up, and warm; used as a context manager."""

    def __init__(self, python: Path, jar: str, directory: Path, cores: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._log_path = directory / "spark.log"
        answers, answers_of_program = os.pipe()
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        command = [str(python), "-m", "bench.spark_program"]
        with open(self._log_path, "ab") as log:
            self._process = subprocess.Popen(
                [*command, jar, str(answers_of_program), str(directory), str(cores)],
                cwd=TREE,
                env=os.environ | {"PYTHONPATH": str(TREE)},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                pass_fds=(answers_of_program,),
                start_new_session=True,
            )
        os.close(answers_of_program)
        self._thread = threading.Thread(target=self._collect, args=(answers,), daemon=True)
        self._thread.start()

    def __enter__(self) -> SparkReader:
        try:
            self.version = str(self._answer(START_SECONDS_MAX)["ready"])
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(
        self, form: str, options: dict[str, str], *, check: bool, seconds_max: float
    ) -> dict[str, Any]:
        """The results of the program.

        Raises: ReadFailed.
        """
        assert self._process.stdin is not None
        request = {"format": form, "options": options, "check": check}
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise ReadFailed(f"Spark has ended: {self._log_tail()}") from None
        return self._answer(seconds_max)

    def cpu_seconds(self) -> dict[str, float]:
        """The CPU seconds of its JVM and its Python processes so far, ended ones included."""
        driver = psutil.Process(self._process.pid)
        spent = {"JVM": 0.0, "Python": sum(driver.cpu_times()[:2])}
        for process in driver.children(recursive=True):
            try:
                own, ended = process.cpu_times()[:2], process.cpu_times()[2:4]
                is_jvm = process.name() == "java"
            except psutil.NoSuchProcess:
                continue  # its parent has its time now, and is asked the next time
            spent["JVM" if is_jvm else "Python"] += sum(own)
            spent["Python"] += sum(ended)
        return spent

    def close(self) -> None:
        """kill -9 of the whole group: nothing that it holds is wanted."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._thread.join(5.0)

    def _answer(self, seconds_max: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=seconds_max)
        except queue.Empty:
            raise ReadFailed(f"no answer in {seconds_max:g} s: {self._log_tail()}") from None
        if not line:
            raise ReadFailed(f"Spark has ended: {self._log_tail()}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise ReadFailed(answer["failed"])
        return answer

    def _collect(self, answers: int) -> None:
        with os.fdopen(answers, encoding="utf-8") as lines:
            for line in lines:
                self._answers.put(line)
        self._answers.put("")

    def _log_tail(self) -> str:
        return self._log_path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
