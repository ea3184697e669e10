"""Numbered messages of one producer while servers come and go, and what became of them."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pulsar

if TYPE_CHECKING:
    from collections.abc import Iterator

PERIOD_SECONDS = 0.01
WAIT_SECONDS_MAX = 90.0


def quiet_client(url: str, **fields: Any) -> pulsar.Client:
    """A stock client that reports errors only."""
    return pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), **fields)


class SteadyLoad:
    """Sends a number every PERIOD_SECONDS, whatever happens, and counts what is acknowledged."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0
        self.acknowledged: list[int] = []
        self.failed: dict[int, str] = {}
        self.longest_pause = 0.0
        """Seconds between two acknowledgements that follow each other."""
        self._acknowledged_at = time.monotonic()

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_SECONDS):
            number = self.sent
            self.sent += 1
            self._producer.send_async(b"%d" % number, self._on_answer(number))

    def _on_answer(self, number: int) -> Any:
        def answered(result: Any, _message_id: Any) -> None:
            with self._lock:
                if result != pulsar.Result.Ok:
                    self.failed[number] = str(result)
                    return
                now = time.monotonic()
                self.longest_pause = max(self.longest_pause, now - self._acknowledged_at)
                self._acknowledged_at = now
                self.acknowledged.append(number)

        return answered

    def wait_for_more(self, count: int = 20) -> None:
        """Return when so many more messages are acknowledged, sent after this call."""
        wanted = self.sent + count
        wait_until(lambda: self.acknowledged and self.acknowledged[-1] >= wanted)

    def start(self) -> None:
        """Begin to send."""
        self._acknowledged_at = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Send no more, and wait for the outcome of all."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
        wait_until(lambda: len(self.acknowledged) + len(self.failed) == self.sent)


@contextmanager
def steady_load(client: Any, topic: str, **fields: Any) -> Iterator[SteadyLoad]:
    """A load for the duration of the block."""
    settings = {"send_timeout_millis": 0, "max_pending_messages": 50_000} | fields
    load = SteadyLoad(client.create_producer(topic, batching_enabled=False, **settings))
    load.start()
    load.wait_for_more(1)
    try:
        yield load
    finally:
        load.stop()


def wait_until(is_true: Any, seconds_max: float = WAIT_SECONDS_MAX) -> None:
    """Raises: TimeoutError: it is not true in time."""
    end = time.monotonic() + seconds_max
    while not is_true():
        if time.monotonic() > end:
            raise TimeoutError(f"not true within {seconds_max} s")
        time.sleep(0.02)


def received(client: Any, topic: str, count_min: int) -> list[int]:
    """All numbers of a topic, from its beginning to where no more come."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    numbers: list[int] = []
    while True:
        try:
            message = reader.read_next(timeout_millis=20_000 if len(numbers) < count_min else 1_000)
        except pulsar.Timeout:
            break
        numbers.append(int(message.data()))
    reader.close()
    return numbers


def check_nothing_lost(load: SteadyLoad, numbers: list[int]) -> None:
    """Every acknowledged message is there. Each is in its order the first time; a client that did
    not learn of a message's fate may have sent it again."""
    assert load.failed == {}
    missing = set(load.acknowledged) - set(numbers)
    assert not missing, f"{len(missing)} acknowledged messages are lost: {sorted(missing)[:10]}"
    first = list(dict.fromkeys(numbers))
    assert first == sorted(first)
