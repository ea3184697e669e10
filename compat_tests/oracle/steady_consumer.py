"""A consumer of numbered messages that is there while servers come and go."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pulsar

from compat_tests.oracle.steady_load import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compat_tests.oracle.steady_load import SteadyLoad

TURN_MS = 200


class SteadyConsumer:
    """Receives and acknowledges whatever comes, and remembers it."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.numbers: list[int] = []
        self.failure: BaseException | None = None

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    message = self._consumer.receive(TURN_MS)
                except pulsar.Timeout:
                    continue
                self.numbers.append(int(message.data()))
                self._consumer.acknowledge(message)
        except BaseException as error:  # told by `check`
            self.failure = error

    def start(self) -> None:
        """Begin to receive."""
        self._thread.start()

    def stop(self) -> None:
        """Receive no more, and leave the subscription."""
        if self._thread.ident is not None and not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            if self.failure is None:
                self._consumer.close()

    def wait_for_all(self, load: SteadyLoad) -> None:
        """Return when every acknowledged message has come.

        Raises: TimeoutError: some did not.
        """
        wanted = set(load.acknowledged)
        wait_until(lambda: self.failure is not None or not wanted.difference(self.numbers))

    def check(self) -> None:
        """It never failed, and each message was in its order when it came first."""
        assert self.failure is None, self.failure
        first = list(dict.fromkeys(self.numbers))
        assert first == sorted(first)

    @property
    def repeated(self) -> int:
        """How many deliveries there were more than messages."""
        return sum(count - 1 for count in Counter(self.numbers).values())


@contextmanager
def steady_consumer(client: Any, topic: str, kind: pulsar.ConsumerType) -> Iterator[SteadyConsumer]:
    """A consumer of the subscription `steady` for the duration of the block."""
    consumer = SteadyConsumer(
        client.subscribe(topic, "steady", kind, initial_position=pulsar.InitialPosition.Earliest)
    )
    consumer.start()
    try:
        yield consumer
    finally:
        consumer.stop()
