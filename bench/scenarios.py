"""The measurements: each scenario is a function of a server that gives figures by name.

All drive stock `pulsar-perf` with the same arguments on both servers. `-db` turns batching off;
`-o` bounds what is outstanding per producer. Every measurement has topics of its own.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pulsar

from bench.measurement import BrokerMeter, drop_from_page_cache, per_million
from bench.perf_client import PerfClient, PerfFailed
from bench.victim import MeasureFailed, Victim

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.results import Figures
    from bench.subject import Subject

TOPIC_PREFIX = "bench-"
FULL_SPEED = "10000000"
UNBATCHED = ["-db", "-o", "1000"]
BATCHED = ["-bm", "1000", "-b", "1", "-o", "10000"]
KEYED = [*UNBATCHED, "-mk", "random"]
SINGLE_ACKS = ("-st", "Shared", "--acks-delay-millis", "0")
HUNDRED_BY_KEY = ("-st", "Key_Shared", "-n", "100")
# Ten-second lines, by whether they are batched: those write ten times as much.
WARM_UP_WINDOWS_MAX = {False: 6, True: 3}
WARM_UP_WINDOWS_MIN = 2
WINDOW_SECONDS = 10.0
"""Between two lines of pulsar-perf."""
_serial = itertools.count()


@dataclass(frozen=True)
class Bench:
    """The needs of a scenario besides the server."""

    windows: int
    catch_up_messages: int
    cold_messages_per_topic: int
    look: Callable[[Subject], None] = lambda server: None
    """Called about every second of a measurement; ends it by raising."""
    clients: list[PerfClient] = field(default_factory=list)
    """All that were started, to be asked for their problems."""

    def perf(self, server: Subject, *arguments: str) -> PerfClient:
        """A pulsar-perf on this server."""
        look = partial(self.look, server)
        client = PerfClient(server, list(arguments), look)
        self.clients.append(client)
        return client


def fresh_topic(name: str) -> str:
    """A topic nothing has used yet."""
    return f"persistent://public/default/{TOPIC_PREFIX}{name}-{next(_serial)}"


@dataclass(frozen=True)
class Published:
    """What pulsar-perf published between two of its lines, and what that took."""

    messages: int
    seconds: float
    p50_ms: float
    p99_ms: float
    """Means over the lines."""
    cpu_seconds: dict[str, float]
    """By kind of process."""
    resident_mebibytes_max: float

    @property
    def figures(self) -> Figures:
        """Those that do not depend on the kinds of processes."""
        return {
            "throughput msg/s": self.messages / self.seconds,
            "publish p50 ms": self.p50_ms,
            "publish p99 ms": self.p99_ms,
        }


def publish(
    bench: Bench, server: Subject, name: str, options: list[str], topics: int, rate: str
) -> Published:
    """1 KB messages to new topics. Raises: PerfFailed."""
    return publish_to(bench, server, fresh_topic(name), options, topics, rate)


def publish_to(
    bench: Bench,
    server: Subject,
    topic: str,
    options: list[str],
    topics: int,
    rate: str,
    size_bytes: int = 1024,
) -> Published:
    """To this topic, or to so many: `<topic>-0` and so on. Raises: PerfFailed."""
    arguments = ["produce", "-s", str(size_bytes), "-r", rate, "-t", str(topics), *options, topic]
    with bench.perf(server, *arguments) as perf, BrokerMeter(server) as meter:
        begun = perf.wait_begun()
        cpu_before = server.cpu_by_kind()
        last = perf.wait_window(begun + bench.windows)
        cpu_after = server.cpu_by_kind()
        first, *measured = perf.windows()[begun : begun + bench.windows + 1]
    return Published(
        messages=last.messages - first.messages,
        seconds=last.printed_at - first.printed_at,
        p50_ms=fmean(window.p50_ms for window in measured),
        p99_ms=fmean(window.p99_ms for window in measured),
        cpu_seconds={kind: spent - cpu_before[kind] for kind, spent in cpu_after.items()},
        resident_mebibytes_max=meter.resident_mebibytes_max,
    )


def _produce(
    bench: Bench, server: Subject, name: str, options: list[str], topics: int, rate: str
) -> Figures:
    published = publish(bench, server, name, options, topics, rate)
    spent = sum(published.cpu_seconds.values())
    return {
        **published.figures,
        "broker CPU s/million": per_million(spent, published.messages),
        "resident MB": published.resident_mebibytes_max,
    }


def _end_to_end(bench: Bench, server: Subject) -> Figures:
    topic = fresh_topic("end-to-end")
    rate = 5000
    produce = ["produce", "-s", "1024", "-r", str(rate), *UNBATCHED, topic]
    # Both start together; a line with three seconds' messages in it holds the start of both.
    # pulsar-perf knows latencies from end to end in whole milliseconds, so the latencies are those
    # of a client of their own, which comes when CPU has been measured.
    with (
        BrokerMeter(server) as meter,
        bench.perf(server, "consume", "-ss", "s", topic) as consumer,
        bench.perf(server, *produce) as producer,
    ):
        begun = consumer.wait_begun(messages=3 * rate)
        first = consumer.wait_window(begun)
        cpu_before = server.cpu_seconds()
        last = consumer.wait_window(begun + bench.windows)
        spent = server.cpu_seconds() - cpu_before
        published = producer.windows()[-1]
        messages = last.messages - first.messages
        client = _victim_figures(bench, server)
    return {
        "throughput msg/s": messages / (last.printed_at - first.printed_at),
        "end-to-end p50 ms of a client": client["end to end"]["p50"],
        "end-to-end p99 ms of a client": client["end to end"]["p99"],
        "publish p99 ms of a client": client["publish"]["p99"],
        "publish max ms of a client": client["publish"]["max"],
        "client late by ms, max": client["latest ms"],
        "end-to-end p99 ms": last.p99_ms,
        "publish p99 ms": published.p99_ms,
        "broker CPU s/million": per_million(spent, messages),
        "resident MB": meter.resident_mebibytes_max,
    }


def _victim_figures(bench: Bench, server: Subject) -> dict[str, Any]:
    """What `flood_victim` answers, beside what goes on. Raises: PerfFailed."""
    try:
        victim = Victim(server.service_url, fresh_topic("victim"))
        try:
            measured = victim.figures(bench.windows * WINDOW_SECONDS)
        finally:
            victim.close()
    except MeasureFailed as failure:
        raise PerfFailed(f"the client that measures latencies: {failure}") from failure
    bench.look(server)
    return measured


def _subscribe_once(server: Subject, topics: list[str]) -> None:
    client = pulsar.Client(
        server.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    try:
        for topic in topics:
            client.subscribe(topic, "s").close()
    finally:
        client.close()


def _catch_up(
    bench: Bench, server: Subject, options: list[str], consume: tuple[str, ...] = ()
) -> Figures:
    """A backlog is published with these options, and then read by `consume`."""
    topic = fresh_topic("catch-up")
    count = str(bench.catch_up_messages)
    _subscribe_once(server, [topic])
    with bench.perf(
        server, "produce", "-s", "1024", "-r", FULL_SPEED, "-m", count, *options, topic
    ) as producer:
        producer.wait_line("DONE", 240.0)
    time.sleep(1.0)
    cpu_before = server.cpu_seconds()
    with (
        BrokerMeter(server) as meter,
        bench.perf(server, "consume", "-ss", "s", "-m", count, *consume, topic) as consumer,
    ):
        begun = consumer.wait_line("Start receiving")
        ended = consumer.wait_line("DONE", 240.0)
        spent = server.cpu_seconds() - cpu_before
    return {
        "throughput msg/s": bench.catch_up_messages / (ended - begun),
        "broker CPU s/million": per_million(spent, bench.catch_up_messages),
        "resident MB": meter.resident_mebibytes_max,
    }


def _cold_reads(bench: Bench, server: Subject) -> Figures:
    topic = fresh_topic("cold")
    large = ["-s", "102400", *UNBATCHED]
    read_topics, all_topics = 50, 150
    _subscribe_once(server, [f"{topic}-{index}" for index in range(read_topics)])
    stored = read_topics * bench.cold_messages_per_topic
    with bench.perf(
        server, "produce", "-r", "1000", "-m", str(stored), "-t", str(read_topics), *large, topic
    ) as producer:
        producer.wait_line("DONE", 240.0)
    time.sleep(3.0)  # both brokers drop entries without readers after about a second
    drop_from_page_cache(server.directory)
    with (
        BrokerMeter(server) as meter,
        bench.perf(server, "produce", "-r", "150", "-t", str(all_topics), *large, topic) as writer,
    ):
        writing = writer.wait_begun()
        first = writer.windows()[writing]
        cpu_before = server.cpu_seconds()
        consume = ["consume", "-ss", "s", "-q", "10", "-m", str(stored), "-t", str(read_topics)]
        with bench.perf(server, *consume, topic) as reader:
            begun = reader.wait_line("Start receiving")
            ended = reader.wait_line("DONE", 240.0)
        last = writer.wait_window(max(writing + bench.windows, len(writer.windows())))
        spent = server.cpu_seconds() - cpu_before
        written = last.messages - first.messages
        meanwhile = [window for window in writer.windows() if window.printed_at > first.printed_at]
    return {
        "throughput msg/s": stored / (ended - begun),
        "publish msg/s": written / (last.printed_at - first.printed_at),
        "publish p50 ms": fmean(window.p50_ms for window in meanwhile),
        "publish p99 ms": fmean(window.p99_ms for window in meanwhile),
        "broker CPU s/million": per_million(spent, written + stored),
        "resident MB": meter.resident_mebibytes_max,
    }


def _full_speed(options: list[str], name: str, topics: int) -> Callable[..., Figures]:
    return partial(_produce, name=name, options=options, topics=topics, rate=FULL_SPEED)


SCENARIOS: dict[str, Callable[[Bench, Subject], Figures]] = {
    "1 KB unbatched, one topic": _full_speed(UNBATCHED, "unbatched", 1),
    "1 KB batched, one topic": _full_speed(BATCHED, "batched", 1),
    "1 KB unbatched, ten topics": _full_speed(UNBATCHED, "unbatched-ten", 10),
    "1 KB batched, ten topics": _full_speed(BATCHED, "batched-ten", 10),
    "1,000 msg/s unbatched": partial(
        _produce, name="latency", options=UNBATCHED, topics=1, rate="1000"
    ),
    "5,000 msg/s end to end": _end_to_end,
    "catch-up, unbatched": partial(_catch_up, options=UNBATCHED),
    "catch-up, batched": partial(_catch_up, options=BATCHED),
    "catch-up, Shared, single acks": partial(_catch_up, options=UNBATCHED, consume=SINGLE_ACKS),
    "catch-up, Key_Shared, 100 consumers": partial(
        _catch_up, options=KEYED, consume=HUNDRED_BY_KEY
    ),
    "100 KB on 150 topics, 50 read cold": _cold_reads,
}


def is_warm(rates: list[float]) -> bool:
    """Whether the last of these rates is no more than the noise above an earlier one."""
    return len(rates) >= 2 and rates[-1] <= 1.05 * max(rates[:-1])


def warm_up(bench: Bench, server: Subject, windows_min: int = WARM_UP_WINDOWS_MIN) -> None:
    """Uncounted load until the server gets no faster; a JVM's broker does for a minute or more.

    Several JVMs that share two processors get faster in steps, with pauses between them:
    `windows_min` lines are waited for in any case, or as many as there may be.
    """
    for options in (UNBATCHED, BATCHED):
        topic = fresh_topic("warm-up")
        produce = ["produce", "-s", "1024", "-r", FULL_SPEED, *options, topic]
        with (
            bench.perf(server, "consume", "-ss", "s", topic),
            bench.perf(server, *produce) as producer,
        ):
            begun = producer.wait_begun()
            rates: list[float] = []
            windows_max = WARM_UP_WINDOWS_MAX[options is BATCHED]
            while len(rates) < min(windows_min, windows_max) or (
                not is_warm(rates) and len(rates) < windows_max
            ):
                rates.append(producer.wait_window(begun + 1 + len(rates)).rate)
