"""`python -m bench.limits`: how exactly publish rates and backlog quotas are held.

Producers of the stock Python client publish as fast as they can, all cases on one server at once,
each on topics of its own. What the server took is read once a second from its statistics. The first
seconds, in which the tokens of one second are used at once, are not counted.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import pulsar

from bench import backlog_bounds, oracle
from bench.rounds import tell
from bench.session import new_server
from bench.tree import OUTPUT, commit, how_vela_runs, machine
from compat_tests.oracle.distribution import TREE
from compat_tests.oracle.vela_server import VelaServer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compat_tests.oracle.server_process import ServerProcess

SETTLING_SECONDS: Final = 5.0
WINDOW_SECONDS: Final = 10.0
PENDING: Final = 2_000
"""Of a producer: enough that the server has always more to read than the limit lets pass."""
TOLERANCE: Final = 0.02
FLUSH_SECONDS_MAX: Final = 60.0


@dataclass(frozen=True)
class Case:
    """One limit with those that publish under it."""

    name: str
    per_second: int
    """The limit."""
    counter: str
    """Of a topic's statistics, in the unit of the limit."""
    connections: int = 1
    """To each topic."""
    namespaces: int = 1
    """With one topic each. Several share the budget of a resource group."""
    payload_bytes: int = 100
    batched: bool = False

    @property
    def group(self) -> dict[str, int]:
        """The resource group of several namespaces."""
        field = "publishRateInMsgs" if self.counter == MESSAGES else "publishRateInBytes"
        return {field: self.per_second}

    @property
    def policy(self) -> dict[str, int]:
        """The publish rate of one namespace."""
        of_messages = self.counter == MESSAGES
        return {
            "publishThrottlingRateInMsg": self.per_second if of_messages else -1,
            "publishThrottlingRateInByte": -1 if of_messages else self.per_second,
        }


MESSAGES: Final = "msgInCounter"
BYTES: Final = "bytesInCounter"
CASES: Final = (
    Case("1,000 msg/s, one producer", 1_000, MESSAGES),
    Case("1,000 msg/s, one producer, batches", 1_000, MESSAGES, batched=True),
    Case("1,000 msg/s, four connections", 1_000, MESSAGES, connections=4),
    Case("1,000 msg/s, a group of two namespaces", 1_000, MESSAGES, namespaces=2),
    Case("1 MB/s, one producer of 10 KB", 1_000_000, BYTES, payload_bytes=10_000),
    Case("1 MB/s, four connections of 1 KB", 1_000_000, BYTES, connections=4, payload_bytes=1_000),
)


@dataclass(frozen=True)
class Sample:
    """What a server had taken at a moment."""

    at: float
    taken: int


@dataclass(frozen=True)
class Held:
    """How exactly a limit was held: shares of it, above or below."""

    server: str
    case: str
    seconds: float
    per_second: float
    off: float
    off_in_worst_window: float

    @property
    def is_met(self) -> bool:
        """Whether it was within the tolerance over the whole time."""
        return abs(self.off) <= TOLERANCE


def held(server: str, case: Case, samples: Sequence[Sample]) -> Held:
    """The figures of one case. The windows are `WINDOW_SECONDS` long."""

    def off(first: Sample, last: Sample) -> float:
        return (last.taken - first.taken) / (last.at - first.at) / case.per_second - 1

    first, last = samples[0], samples[-1]
    windows = [
        off(begin, next(each for each in samples if each.at >= begin.at + WINDOW_SECONDS))
        for begin in samples
        if begin.at + WINDOW_SECONDS <= last.at
    ]
    whole = off(first, last)
    return Held(
        server,
        case.name,
        round(last.at - first.at, 1),
        round((1 + whole) * case.per_second, 1),
        whole,
        max(windows, key=abs, default=whole),
    )


class Flood:
    """The producers of one case."""

    def __init__(self, server: ServerProcess, case: Case, number: int, stack: ExitStack) -> None:
        self._server = server
        self.case = case
        self._topics = [f"public/limits-{number}-{each}/t" for each in range(case.namespaces)]
        group = f"limits-{number}"
        if case.namespaces > 1:
            self._ask("PUT", f"resourcegroups/{group}", case.group)
        for topic in self._topics:
            namespace = f"namespaces/{topic.removesuffix('/t')}"
            self._ask("PUT", namespace)
            if case.namespaces > 1:
                self._ask("POST", f"{namespace}/resourcegroup/{group}")
            else:
                self._ask("POST", f"{namespace}/publishRate", case.policy)
            self._ask("PUT", f"persistent/{topic}")
        self.samples: list[Sample] = []
        self._producers = [
            self._producer(stack.enter_context(_Client(server)), topic)
            for topic in self._topics
            for _ in range(case.connections)
        ]

    def _producer(self, client: pulsar.Client, topic: str) -> pulsar.Producer:
        return client.create_producer(
            f"persistent://{topic}",
            send_timeout_millis=0,
            block_if_queue_full=True,
            max_pending_messages=PENDING,
            batching_enabled=self.case.batched,
        )

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = self._server.http(method, f"/admin/v2/{path}", body)
        if status >= 300:
            raise RuntimeError(f"{method} {path} answered {status} {answer!r}")
        return answer

    def start(self, ended: threading.Event) -> list[threading.Thread]:
        """Publish until the event is set."""
        payload = b"x" * self.case.payload_bytes

        def publish(producer: pulsar.Producer) -> None:
            while not ended.is_set():
                producer.send_async(payload, _ignore)
            producer.flush()

        threads = [threading.Thread(target=publish, args=(each,)) for each in self._producers]
        for thread in threads:
            thread.start()
        return threads

    def sample(self) -> None:
        """Read the counters."""
        before = time.monotonic()
        read = [self._ask("GET", f"persistent/{topic}/stats") for topic in self._topics]
        moment = (before + time.monotonic()) / 2
        self.samples.append(Sample(moment, sum(int(each[self.case.counter]) for each in read)))


class _Client:
    """A client of the server, as a context."""

    def __init__(self, server: ServerProcess) -> None:
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(server.directory / "client.log"))
        self._client = pulsar.Client(server.service_url, logger=logger)

    def __enter__(self) -> pulsar.Client:
        return self._client

    def __exit__(self, *_raised: object) -> None:
        self._client.close()


def _ignore(_result: object, _message_id: object) -> None:
    """Messages are counted by the server."""


def measure(server: ServerProcess, seconds: float) -> list[Held]:
    """All cases at once."""
    ended = threading.Event()
    with ExitStack() as stack:
        floods = [Flood(server, case, number, stack) for number, case in enumerate(CASES)]
        threads = [thread for flood in floods for thread in flood.start(ended)]
        try:
            time.sleep(SETTLING_SECONDS)
            until = time.monotonic() + seconds
            while True:
                for flood in floods:
                    flood.sample()
                if time.monotonic() >= until:
                    break
                time.sleep(1.0)
        finally:
            ended.set()
            for thread in threads:
                thread.join(FLUSH_SECONDS_MAX)
    return [held(server.name, flood.case, flood.samples) for flood in floods]


def table(results: Sequence[Held]) -> str:
    """In Markdown."""
    lines = [
        "| limit | server | seconds | per second | off | worst 10 s | |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for case in CASES:
        lines += [
            f"| {each.case} | {each.server} | {each.seconds:.0f} | {each.per_second:,.1f} |"
            f" {each.off:+.2%} | {each.off_in_worst_window:+.2%} |"
            f" {'met' if each.is_met else '**missed**'} |"
            for each in results
            if each.case == case.name
        ]
    return "\n".join(lines)


def document(results: Sequence[Held], bounds: Sequence[backlog_bounds.Bound], origin: str) -> str:
    """The page `limits.md`."""
    return (
        "# How exactly publish rates and backlog quotas are held\n\n"
        "Generated by `python -m bench.limits`; do not edit. Producers of the stock"
        " Python client publish as fast as they can under a rate of their namespace, or the budget"
        " of a resource group, all cases on one server at once. What the server took is read from"
        " its statistics once a second; the"
        f" first {SETTLING_SECONDS:.0f} s are not counted. The target is ±{TOLERANCE:.0%} over the"
        f" whole time. {origin}\n\n{table(results)}\n\n"
        "## Backlog quotas\n\n"
        f"{backlog_bounds.SAID}\n\n{backlog_bounds.table(bounds)}\n"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.limits")
    parser.add_argument("--seconds", type=float, default=60.0, help="measured (default 60)")
    parser.add_argument("--output", type=Path, help=f"directory ({OUTPUT})")
    return oracle.parsed(parser)


def main() -> int:
    """Measure, print the table, write the files; 1 when Vela missed a limit."""
    options = _arguments()
    results: list[Held] = []
    bounds: list[backlog_bounds.Bound] = []
    (TREE / "build").mkdir(exist_ok=True)
    with TemporaryDirectory(dir=TREE / "build") as directory:
        for name in ("vela", "pulsar"):
            server = new_server(name, Path(directory), backlog_bounds.CHECKED_EVERY_SECOND)
            try:
                server.start()
                results += measure(server, options.seconds)
                bounds += backlog_bounds.measure(server, _Client)
                server.stop()
            finally:
                server.close()
            tell(f"{server.name} measured")
    origin = (
        f"Apache Pulsar {oracle.chosen().version}; Vela at {commit()}, {how_vela_runs()};"
        f" on {machine()}."
    )
    output = oracle.output(options)
    output.mkdir(parents=True, exist_ok=True)
    (output / "limits.md").write_text(document(results, bounds, origin))
    limits: list[Held | backlog_bounds.Bound] = [*results, *bounds]
    rows = [{**asdict(each), "met": each.is_met} for each in limits]
    (output / "limits.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    print(f"{table(results)}\n\n{backlog_bounds.table(bounds)}")
    return 0 if all(each.is_met for each in limits if each.server == VelaServer.name) else 1


if __name__ == "__main__":
    sys.exit(main())
