"""Kill a server with SIGKILL in the middle of a broadcast, and check what it owes each consumer.

`python -m tests.crash.broadcast_kill9 --rounds 20 --seed 1` starts `vela standalone` on loopback
with ledgers of a few entries, publishes to one broadcast subscription, kills the server, starts it
again, and so on. Consumers join during the load, stay away for a life and come back. At the end
everybody has everything; then an administrator skips the rest, and nothing may be left. Prints a
summary and a line of JSON, which `--output` also puts into a file. Exit status 1: something did
not hold.

Instants (seeded): within the load, now and then later than the flush interval; while newcomers are
being subscribed; right after ready; during start-up.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import urllib.request
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import final

import trio

from tests.crash.broadcast_load import SUBSCRIPTION, TOPIC, Consumer, Load
from tests.crash.command_line import common_parser, tell
from tests.server_process import VELA, ServerFailed, ServerProcess

CONFIGURATION = """\
managedLedgerMaxEntriesPerLedger=40
managedLedgerMinLedgerRolloverTimeMinutes=0
broadcastSnapshotIntervalMillis=500
"""
KINDS = ("load", "joining", "early", "start-up")
READY_SECONDS_MAX = 240.0
LAST_MESSAGES = 20


@dataclass
class Options:
    """One run."""

    rounds: int
    seed: int
    consumers: int = 60
    connections: int = 4
    rate: float = 150.0
    """Messages per second."""
    flush_seconds: float = 3.0
    """An acknowledgement older than that must survive."""
    long_round_share: float = 0.25
    """Rounds that last longer than that."""
    absent_share: float = 0.1
    """Consumers that stay away for a life."""
    directory: Path = field(default_factory=Path)


@dataclass
class Report:
    """The results of a run."""

    seed: int
    rounds: int = 0
    kills: dict[str, int] = field(default_factory=dict)
    consumers: int = 0
    messages_published: int = 0
    messages_durable: int = 0
    deliveries: int = 0
    acks_sent: int = 0
    violations: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """For people."""
        lines = [
            f"kill -9 of a broadcast: {self.rounds} rounds, seed {self.seed}, kills {self.kills}",
            f"{self.messages_published} messages published, {self.messages_durable} durable",
            f"{self.deliveries} deliveries to {self.consumers} consumers, {self.acks_sent} acks",
            "everything held" if not self.violations else f"{len(self.violations)} VIOLATIONS:",
        ]
        return "\n".join(lines + [f"  {one}" for one in self.violations[:40]])


@final
class Run:
    """Kills and restarts one server under one load."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._random = random.Random(options.seed)
        options.directory.mkdir(parents=True, exist_ok=True)
        configuration = options.directory / "broker.conf"
        configuration.write_text(CONFIGURATION)
        self._server = ServerProcess(options.directory, f"{VELA} --config {configuration}")
        self._load: Load | None = None
        self._kills: Counter[str] = Counter()
        self._report = Report(options.seed)

    def run(self) -> Report:
        """All rounds and the final check. The server is gone when this returns."""
        report = self._report
        try:
            trio.run(self._run)
        except* ServerFailed as failed:
            report.violations += [f"the server {error}" for error in failed.exceptions]
        except* trio.TooSlowError:
            waited = f"something was never answered:\n{self._server.last_lines()}"
            report.violations.append(waited)
        finally:
            self._server.kill()
            self._server.wait_ended()
        load = self._load
        if load is not None:
            report.violations += load.violations
            report.consumers = len(load.consumers)
            report.messages_published, report.messages_durable = load.sent, len(load.durable)
            report.deliveries, report.acks_sent = load.deliveries, load.acks_sent
        report.kills = dict(self._kills)
        return report

    async def _run(self) -> None:
        options = self._options
        load = self._load = Load(self._server.service_url, options.connections)
        load.consumers += [Consumer(number) for number in range(options.consumers)]
        for number in range(options.rounds):
            kind = self._random.choices(KINDS, weights=[50, 20, 15, 15])[0] if number else "load"
            await self._life(load, kind)
            self._kills[kind] += 1
            self._report.rounds += 1
        await self._last_life(load)

    async def _life(self, load: Load, kind: str) -> None:
        """Start, load, kill."""
        if kind == "start-up":
            self._server.start()
            await trio.sleep(self._random.random())
            self._kill()
        await self._start()
        async with trio.open_nursery() as nursery:
            await load.begin_life(nursery)
            present = [each for each in load.consumers if not self._is_absent(each)]
            await load.subscribe(present, wait=kind != "early")
            nursery.start_soon(load.publish_until_killed, self._options.rate)
            await self._instant(kind)
            if kind == "joining":
                newcomers = [Consumer(len(load.consumers) + each) for each in range(20)]
                load.consumers += newcomers
                await load.subscribe(newcomers, wait=False)
                await trio.sleep(self._random.random() * 0.05)
            killed_at = trio.current_time()
            self._kill()
            nursery.cancel_scope.cancel()
        # Only now: what was still on its way when the server was killed belongs to that life.
        load.end_life(killed_at, self._options.flush_seconds)

    async def _last_life(self, load: Load) -> None:
        """Everybody gets what is still owed; then nothing may be left."""
        await self._start()
        async with trio.open_nursery() as nursery:
            await load.begin_life(nursery)
            await load.subscribe(load.consumers)
            await load.publish(LAST_MESSAGES)
            await load.until(lambda: load.sent - 1 in load.durable)
            newest = load.sent - 1
            with trio.move_on_after(60):
                await load.until(
                    lambda: all(newest in each.history.received for each in load.consumers)
                )
            nursery.cancel_scope.cancel()
        # What anybody has received was durable, confirmed or not.
        durable = load.durable.union(*(each.history.received for each in load.consumers))
        for consumer in load.consumers:
            missing = consumer.history.missing(durable)
            if missing:
                load.violations.append(f"{consumer.history.name} never got {missing[:10]}")
        await self._check_backlog()

    async def _check_backlog(self) -> None:
        """An administrator skips what is left: then the subscription holds nothing."""
        base = f"http://127.0.0.1:{self._server.web_port}/admin/v2/{TOPIC.replace('://', '/')}"
        await trio.to_thread.run_sync(
            partial(_http, "POST", f"{base}/subscription/{SUBSCRIPTION}/skip_all")
        )
        stats = json.loads(await trio.to_thread.run_sync(partial(_http, "GET", f"{base}/stats")))
        shown = stats["subscriptions"][SUBSCRIPTION]
        if shown["type"] != "Broadcast" or shown["msgBacklog"] != 0:
            self._report.violations.append(f"left over: {shown['type']} {shown['msgBacklog']}")

    async def _instant(self, kind: str) -> None:
        """Wait for the instant of the kill."""
        chance = self._random.random()
        if kind == "early":
            await trio.sleep(chance * 0.2)
        elif self._random.random() < self._options.long_round_share:
            await trio.sleep(self._options.flush_seconds + 0.5 + chance)
        else:
            await trio.sleep(0.1 + chance)

    def _is_absent(self, consumer: Consumer) -> bool:
        """Only who has been told that it is subscribed may stay away."""
        known = consumer.history.start is not None
        return self._random.random() < self._options.absent_share and known

    async def _start(self) -> None:
        self._server.start()
        await trio.to_thread.run_sync(self._server.wait_ready, READY_SECONDS_MAX)

    def _kill(self) -> None:
        if self._server.has_ended():
            raise ServerFailed(f"ended by itself:\n{self._server.last_lines()}")
        self._server.kill()
        self._server.wait_ended()


def _http(method: str, url: str) -> str:
    request = urllib.request.Request(url, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = common_parser("tests.crash.broadcast_kill9", Options.flush_seconds)
    parser.add_argument("--consumers", type=int, default=Options.consumers)
    given = parser.parse_args(arguments)
    directory = given.directory or Path(tempfile.mkdtemp(prefix="vela-broadcast-kill9-"))
    report = Run(
        Options(
            rounds=given.rounds,
            seed=given.seed,
            consumers=given.consumers,
            flush_seconds=given.flush_seconds,
            directory=directory,
        )
    ).run()
    return tell(given, directory, report.summary(), asdict(report), report.violations)


if __name__ == "__main__":
    sys.exit(main())
