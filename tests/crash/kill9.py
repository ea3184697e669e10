"""Kill a server with SIGKILL at random instants under load, and check what it promised.

`python -m tests.crash.kill9 --rounds 100 --seed 1` starts `vela standalone` on loopback, lets
stock Pulsar clients publish and consume, kills the server, starts it again, and so on; then reads
everything back and prints a summary and a line of JSON, which `--output` also puts into a file.
Exit status 1: something did not hold.

Instants (seeded): some time after ready, within the load; right after ready; during start-up;
from within the callback of the n-th acked send, so that the kill falls between an fsync and what
follows it.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import final

from tests.crash.checks import Lifetime, check_topic, kept_hole_count
from tests.crash.command_line import common_parser, tell
from tests.crash.load import Load, quiet_client, read_subscriptions, read_topic
from tests.server_process import VELA, ServerFailed, ServerProcess

PROGRESS_SECONDS_MAX = 60.0


@dataclass
class Options:
    """One run."""

    rounds: int
    seed: int
    rate: int = 150
    """Messages per second of an unbatched producer; a batched one sends four times as many."""
    messages_max: int = 60_000
    """Per producer; one that has sent so many is not waited for any more."""
    flush_seconds: float = 3.0
    """An acknowledgement older than that must survive."""
    ready_seconds_max: float = 240.0
    long_round_share: float = 0.3
    """Rounds that last longer than the flush interval."""
    server_command: str = VELA
    ready_url: str = ""
    directory: Path = field(default_factory=Path)


@dataclass
class Report:
    """The results of a run."""

    seed: int
    rounds: int = 0
    kills: dict[str, int] = field(default_factory=dict)
    ready_seconds: list[float] = field(default_factory=list)
    messages_acked: int = 0
    messages_read: int = 0
    duplicates_of_unacked: int = 0
    acks_given: int = 0
    holes_checked: int = 0
    violations: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """For people."""
        ready = self.ready_seconds or [0.0]
        lines = [
            f"kill -9: {self.rounds} rounds, seed {self.seed}, kills {self.kills}",
            f"ready after {median(ready):.2f} s (median), {max(ready):.2f} s (longest)",
            f"{self.messages_acked} messages acked, {self.messages_read} read back, "
            f"{self.duplicates_of_unacked} sent twice before their ack",
            f"{self.acks_given} acknowledgements, {self.holes_checked} messages in ack holes",
            "everything held" if not self.violations else f"{len(self.violations)} VIOLATIONS:",
        ]
        return "\n".join(lines + [f"  {one}" for one in self.violations])

    def as_json(self) -> dict[str, object]:
        """For programs; `ready_seconds` are of every start, in order."""
        ready = self.ready_seconds or [0.0]
        return asdict(self) | {
            "ready_seconds_median": round(median(ready), 3),
            "ready_seconds_max": max(ready),
        }


@final
class Run:
    """Kills and restarts one server under one load."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._random = random.Random(options.seed)
        self._server = ServerProcess(options.directory, options.server_command, options.ready_url)
        self._lifetimes: list[Lifetime] = []
        self._kills: Counter[str] = Counter()
        self._acks_until_kill = 0
        self._killed_by_ack = threading.Event()
        self._report = Report(options.seed)
        self._load: Load | None = None

    def run(self) -> Report:
        """All rounds and the final check. The server is gone when this returns."""
        report = self._report
        try:
            self._rounds()
            self._final_check()
        except ServerFailed as error:
            report.violations.append(f"the server {error}")
        finally:
            self._server.kill()
            self._server.wait_ended()
            if self._load is not None and self._load.errors:
                report.violations += self._load.errors[:20]
        report.kills = dict(self._kills)
        return report

    def _rounds(self) -> None:
        options = self._options
        ready_at = self._start()
        load = self._load = Load(
            self._server.service_url,
            options.directory,
            options.seed,
            options.rate,
            options.messages_max,
            self._on_ack,
        )
        load.start()
        kind = "load"
        for number in range(options.rounds):
            if number > 0:
                ready_at = self._start()
                kind = self._random.choices(
                    ["load", "early", "ack", "start-up"], weights=[50, 15, 20, 15]
                )[0]
            if kind != "early":
                self._wait_progress()
            self._wait_instant("ack" if kind == "ack" else "load" if kind != "early" else kind)
            self._kill(ready_at, kind)
            if kind == "start-up":
                # The kill just made was an ordinary one; the next incarnation dies unborn.
                self._server.start()
                time.sleep(self._random.random() * median(self._report.ready_seconds))
                self._server.kill()
                self._server.wait_ended()
            self._report.rounds += 1
        ready_at = self._start()
        load.finish_producing(PROGRESS_SECONDS_MAX)
        time.sleep(1 + options.flush_seconds + 1)
        self._kill(ready_at, "quiet")
        load.stop()

    def _start(self) -> float:
        self._server.start()
        self._report.ready_seconds.append(
            round(self._server.wait_ready(self._options.ready_seconds_max), 3)
        )
        return time.monotonic()

    def _kill(self, ready_at: float, kind: str) -> None:
        if self._server.has_ended() and not self._killed_by_ack.is_set():
            raise ServerFailed(f"ended by itself:\n{self._server.last_lines()}")
        killed_at = time.monotonic()
        self._server.kill()
        self._server.wait_ended()
        self._killed_by_ack.clear()
        self._acks_until_kill = 0
        self._lifetimes.append(Lifetime(ready_at, killed_at))
        self._kills[kind] += 1

    def _wait_progress(self) -> None:
        """Every producer gets an answer from this incarnation: none is stuck."""
        assert self._load is not None
        before = list(self._load.ack_counts)
        deadline = time.monotonic() + PROGRESS_SECONDS_MAX
        while stuck := stuck_producers(before, self._load.ack_counts, self._options.messages_max):
            if time.monotonic() > deadline or self._server.has_ended():
                raise ServerFailed(
                    f"answered no send of producers {stuck} within {PROGRESS_SECONDS_MAX} s:\n"
                    f"{self._server.last_lines()}"
                )
            time.sleep(0.02)

    def _wait_instant(self, kind: str) -> None:
        chance = self._random.random()
        if kind == "ack":
            self._acks_until_kill = 1 + int(chance * 400)
            self._killed_by_ack.wait(10)
        elif kind == "early" or self._random.random() > self._options.long_round_share:
            time.sleep(0.05 + chance * 1.5)
        else:
            time.sleep(self._options.flush_seconds + 1 + chance * 1.5)

    def _on_ack(self) -> None:
        """From a client's thread, for every acked send."""
        if self._acks_until_kill > 0:
            self._acks_until_kill -= 1
            if self._acks_until_kill == 0:
                self._server.kill()
                self._killed_by_ack.set()

    def _final_check(self) -> None:
        assert self._load is not None
        options, report = self._options, self._report
        ready_at = self._start()
        client = quiet_client(self._server.service_url, options.directory / "reader.log")
        for topic, history in self._load.topics.items():
            read_topic(client, topic, history, options.seed)
            read_subscriptions(client, topic, history)
        client.close()
        self._lifetimes.append(Lifetime(ready_at, time.monotonic()))
        for topic, history in self._load.topics.items():
            name = topic.rpartition("/")[2]
            report.violations += check_topic(name, history, self._lifetimes, options.flush_seconds)
            report.messages_acked += len(history.acked)
            report.messages_read += len(history.log)
            distinct = {(producer, sequence) for _, producer, sequence, _ in history.log}
            report.duplicates_of_unacked += len(history.log) - len(distinct)
            for subscription in history.subscriptions.values():
                report.acks_given += len(subscription.acked)
                if not subscription.is_cumulative:
                    report.holes_checked += kept_hole_count(subscription, history)


def stuck_producers(before: list[int], now: list[int], messages_max: int) -> list[int]:
    """Which producers got no answer since `before` although they have more to send.

    A few sends fail for good while the server is away, so one near the end may be done.
    """
    return [
        number
        for number, (then, count) in enumerate(zip(before, now, strict=True))
        if count <= then and count < messages_max * 0.9
    ]


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = common_parser("tests.crash.kill9", Options.flush_seconds, __doc__)
    parser.add_argument("--rate", type=int, default=Options.rate)
    parser.add_argument("--server-command", default=VELA, help="other server: its command")
    parser.add_argument("--ready-url", default="", help="other server: 200 when it is ready")
    given = parser.parse_args(arguments)
    directory = given.directory or Path(tempfile.mkdtemp(prefix="vela-kill9-"))
    report = Run(
        Options(
            rounds=given.rounds,
            messages_max=max(60_000, 4_000 * given.rounds),
            seed=given.seed,
            rate=given.rate,
            flush_seconds=given.flush_seconds,
            server_command=given.server_command,
            ready_url=given.ready_url,
            directory=directory,
        )
    ).run()
    return tell(given, directory, report.summary(), report.as_json(), report.violations)


if __name__ == "__main__":
    sys.exit(main())
