"""`python -m bench.flood_victim URL TOPIC`: the client whose latency is measured.

A stock Python client. One producer publishes 1 KB 500 times a second, each message by itself, and
one consumer reads the tail and acknowledges. It stays connected over all measurements: each line of
its input is a number of seconds, with a rate behind it if that is another one, and is answered by
one line of JSON. `--topics N`: as many producers, in turns, on TOPIC-0 and so on, and no consumer.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Final

import pulsar

if TYPE_CHECKING:
    from collections.abc import Sequence

RATE: Final = 500
SIZE_BYTES: Final = 1024
TIME_BYTES: Final = 8
SETTLE_SECONDS: Final = 0.5
"""Published before what counts."""
ANSWER_SECONDS_MAX: Final = 60.0


def figures(times_ns: Sequence[int]) -> dict[str, float]:
    """In milliseconds."""
    ordered = sorted(times_ns)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e6

    return {"p50": at(0.5), "p99": at(0.99), "max": ordered[-1] / 1e6, "count": len(ordered)}


class Victim:
    """Connected."""

    def __init__(self, url: str, topic: str, topics: int, size_bytes: int) -> None:
        """`topics` 0: the topic itself, with a consumer."""
        self._client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        self._lock = Lock()
        self._published: list[int] = []
        self._received: list[int] = []
        self._failures: list[str] = []
        self._counts_from_ns = sys.maxsize
        self._has_tail = not topics
        self._filler = bytes(size_bytes - TIME_BYTES)
        if self._has_tail:
            self._client.subscribe(topic, "tail", message_listener=self._on_message)
        self._producers = [
            self._client.create_producer(
                name, batching_enabled=False, block_if_queue_full=True, max_pending_messages=50_000
            )
            for name in ([f"{topic}-{number}" for number in range(topics)] or [topic])
        ]

    def close(self) -> None:
        """Disconnect."""
        self._client.close()

    def measure(self, seconds: float, rate: int = RATE) -> dict[str, Any]:
        """Publish for so long; returns latencies of publishing and from end to end."""
        self._published, self._received, self._failures = [], [], []
        begin = time.monotonic_ns()
        self._counts_from_ns = begin + int(SETTLE_SECONDS * 1e9)
        total = int((SETTLE_SECONDS + seconds) * rate)
        counted = total - int(SETTLE_SECONDS * rate)
        late_ns = 0
        for number in range(total):
            due = begin + number * 1_000_000_000 // rate
            left = due - time.monotonic_ns()
            if left > 0:
                time.sleep(left / 1e9)
            late_ns = max(late_ns, time.monotonic_ns() - due)
            self._publish(self._producers[number % len(self._producers)], due)
        self._await_all(counted)
        measured: dict[str, Any] = {
            "publish": figures(self._published),
            "latest ms": late_ns / 1e6,
        }
        if self._has_tail:
            measured["end to end"] = figures(self._received)
        return measured

    def _publish(self, producer: pulsar.Producer, due_ns: int) -> None:
        """The latency counts from when it was due: a client that is late is a latency, too."""

        def on_answer(result: Any, _: Any) -> None:
            with self._lock:
                if result != pulsar.Result.Ok:
                    self._failures.append(str(result))
                elif due_ns >= self._counts_from_ns:
                    self._published.append(time.monotonic_ns() - due_ns)

        producer.send_async(due_ns.to_bytes(TIME_BYTES, "big") + self._filler, on_answer)

    def _on_message(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        due_ns = int.from_bytes(message.data()[:TIME_BYTES], "big")
        if due_ns >= self._counts_from_ns:
            with self._lock:
                self._received.append(time.monotonic_ns() - due_ns)
        consumer.acknowledge(message)

    def _await_all(self, counted: int) -> None:
        """Raises: RuntimeError."""
        pause = Event()
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while time.monotonic() < deadline:
            with self._lock:
                if self._failures:
                    raise RuntimeError(f"cannot publish: {self._failures[0]}")
                received = len(self._received) if self._has_tail else counted
                if min(len(self._published), received) >= counted - 1:
                    return
            pause.wait(0.01)
        raise RuntimeError(f"not everything was answered in {ANSWER_SECONDS_MAX:g} s")


def main() -> int:
    """Measure whenever told to, until the input ends."""
    parser = argparse.ArgumentParser(prog="python -m bench.flood_victim")
    parser.add_argument("url")
    parser.add_argument("topic")
    parser.add_argument("--topics", type=int, default=0)
    parser.add_argument("--size-bytes", type=int, default=SIZE_BYTES)
    options = parser.parse_args()
    victim = Victim(options.url, options.topic, options.topics, options.size_bytes)
    print(json.dumps({"connected": True}), flush=True)
    for line in sys.stdin:
        try:
            seconds, *rate = line.split()
            measured = victim.measure(float(seconds), *map(int, rate))
        except RuntimeError as error:
            measured = {"failed": str(error)}
        print(json.dumps(measured), flush=True)
    victim.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
