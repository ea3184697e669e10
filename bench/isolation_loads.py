"""`python -m bench.isolation_loads KIND URL WEB_URL DIRECTORY TOPIC`: one neighbour of
the victim, until its input ends.

Stock Python clients, unlike the floods: what one program of a user does to another one. It prints
one line when it is under way, and one at its end with what it did. `--fill` stores what a reader of
a backlog will read, and ends.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pulsar

from bench.flood_loads import Stop, begun
from bench.measurement import drop_from_page_cache

if TYPE_CHECKING:
    from collections.abc import Callable


MEGABYTE: Final = 1_000_000
CHUNKED_BYTES: Final = 50 * MEGABYTE
LOOK_SECONDS: Final = 0.02
SCRAPE_SECONDS_MAX: Final = 60.0
FILL_SECONDS_MAX: Final = 240.0
TOPICS: Final = 10_000


@dataclass(frozen=True)
class Place:
    """Where the server is, and what of it the load uses."""

    url: str
    web_url: str
    directory: Path
    topic: str

    def client(self) -> pulsar.Client:
        """Connected when it is used."""
        return pulsar.Client(self.url, logger=_log())


def _log() -> logging.Logger:
    """Of errors only, and not on the standard output, which has the answers."""
    log = logging.getLogger("pulsar")
    log.setLevel(logging.ERROR)
    return log


@dataclass(frozen=True)
class Backlog:
    """Entries that are read by several subscriptions, again and again, and never acknowledged."""

    topics: int
    subscriptions: int
    """Of each topic."""
    messages: int
    """Of each topic."""
    size_bytes: int
    queue_messages: int
    """Receiver queue of each consumer."""

    def fill(self, place: Place) -> None:
        """Store it, one message per entry."""
        client = place.client()
        for topic, subscription in self._places(place):
            client.subscribe(topic, subscription).close()
        payload = bytes(self.size_bytes)
        for topic in dict.fromkeys(topic for topic, _ in self._places(place)):
            producer = client.create_producer(
                topic, batching_enabled=False, block_if_queue_full=True
            )
            for _ in range(self.messages):
                producer.send_async(payload, _expect_ok)
            producer.flush()
            producer.close()
        client.close()

    def read(self, stop: Stop, place: Place) -> float:
        """Megabytes read until told to stop. A consumer at the end starts again, from the disk."""
        client = place.client()
        counts = [0] * (self.topics * self.subscriptions)
        consumers = [
            client.subscribe(
                topic,
                subscription,
                receiver_queue_size=self.queue_messages,
                message_listener=_counting(counts, number),
            )
            for number, (topic, subscription) in enumerate(self._places(place))
        ]
        done = 0
        waiting = set(range(len(counts)))
        """Those that have received nothing yet."""
        while not stop.look():
            if waiting:
                waiting = {number for number in waiting if not counts[number]}
                if not waiting:
                    begun()
            ended = [number for number, count in enumerate(counts) if count >= self.messages]
            if ended:
                drop_from_page_cache(place.directory, writes_out=False)
            for number in ended:
                done += self.messages
                counts[number] = 0
                consumers[number].seek(pulsar.MessageId.earliest)
            time.sleep(LOOK_SECONDS)
        done += sum(counts)
        client.close()
        return done * self.size_bytes / MEGABYTE

    def _places(self, place: Place) -> list[tuple[str, str]]:
        return [
            (f"{place.topic}-{topic}", f"s-{number}")
            for topic in range(self.topics)
            for number in range(self.subscriptions)
        ]


def _expect_ok(result: pulsar.Result, _: object) -> None:
    if result != pulsar.Result.Ok:
        print(f"cannot publish: {result}", file=sys.stderr)


def _counting(counts: list[int], number: int) -> Callable[[pulsar.Consumer, pulsar.Message], None]:
    def on_message(_: pulsar.Consumer, _message: pulsar.Message) -> None:
        counts[number] += 1

    return on_message


def _publish_chunks(stop: Stop, place: Place) -> float:
    client = place.client()
    producer = client.create_producer(
        place.topic, chunking_enabled=True, batching_enabled=False, block_if_queue_full=True
    )
    payload = bytes(CHUNKED_BYTES)
    begun()
    done = 0.0
    while not stop.look():
        producer.send(payload)
        done += CHUNKED_BYTES / MEGABYTE
    client.close()
    return done


def _publish_small(stop: Stop, place: Place) -> float:
    client = place.client()
    producer = client.create_producer(place.topic, batching_enabled=False, block_if_queue_full=True)
    payload = bytes(1024)
    begun()
    done = 0
    while not stop.look():
        for _ in range(100):
            producer.send_async(payload, _expect_ok)
        done += 100
    producer.flush()
    client.close()
    return done


def _load_topics(place: Place) -> None:
    """Partitions of one topic, each loaded by a producer."""
    path = place.topic.replace("://", "/")
    asked = urllib.request.Request(
        f"{place.web_url}/admin/v2/{path}/partitions",
        str(TOPICS).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    with urllib.request.urlopen(asked, timeout=FILL_SECONDS_MAX):
        pass
    client = pulsar.Client(
        place.url, operation_timeout_seconds=int(FILL_SECONDS_MAX), logger=_log()
    )
    client.create_producer(place.topic).close()
    client.close()


def _scrape(stop: Stop, place: Place) -> float:
    begun()
    done = 0
    while not stop.look():
        with urllib.request.urlopen(f"{place.web_url}/metrics", timeout=SCRAPE_SECONDS_MAX) as page:
            while page.read(1 << 20):
                pass
        done += 1
    return done


BACKLOGS: Final = {
    "cold": Backlog(1, 20, messages=40_000, size_bytes=10_000, queue_messages=1_000),
    "cold topics": Backlog(50, 1, messages=400, size_bytes=100_000, queue_messages=50),
}
FILLS: Final[dict[str, Callable[[Place], None]]] = {
    **{name: backlog.fill for name, backlog in BACKLOGS.items()},
    "metrics": _load_topics,
}
"""What has to be there before a load can run, again and again, on one topic."""
RUNS: Final[dict[str, Callable[[Stop, Place], float]]] = {
    **{name: backlog.read for name, backlog in BACKLOGS.items()},
    "chunks": _publish_chunks,
    "1KB": _publish_small,
    "metrics": _scrape,
}


def main() -> int:
    """Run one; the last line is JSON: how much was done, and in which time."""
    parser = argparse.ArgumentParser(prog="python -m bench.isolation_loads")
    parser.add_argument("kind", choices=list(RUNS))
    parser.add_argument("url")
    parser.add_argument("web_url")
    parser.add_argument("directory", type=Path)
    parser.add_argument("topic")
    parser.add_argument("--fill", action="store_true", help="store what is read, and end")
    options = parser.parse_args()
    place = Place(options.url, options.web_url, options.directory, options.topic)
    if options.fill:
        FILLS[options.kind](place)
        begun()
        return 0
    begun_at = time.monotonic()
    done = RUNS[options.kind](Stop(), place)
    print(json.dumps({"done": done, "seconds": time.monotonic() - begun_at}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
