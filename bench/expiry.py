"""What the time to live of very many topics costs a broker's event loop.

A broker of this process, with its data in files, gets topics with a subscription each and a few
messages, and then a time to live that makes the messages of all topics expire together, which is
the worst case. The longest pass of the event loop is measured while nothing is to be done, while
the policy reaches the topics, while everything expires, and while the topics are looked at again
and nothing has expired. Meanwhile another topic is published to, one message after the other.

    python -m bench.expiry --topics 10000 --messages 5
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog
import trio

from broker.assembly.app import running_broker
from broker.ground.config import DEFAULT_CONFIG
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from runtime.tuning import tune_process

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from broker.topics.service import BrokerService

TURN_MS_MAX: Final = 20.0
PHASES: Final = (
    "the policy is set",
    "everything expires",
    "positions are stored",
    "nothing has expired",
)
"""The longest turn of each is judged."""
TTL_SECONDS: Final = 3
TOPICS_AT_ONCE: Final = 50
"""Opened together, and published to in one turn."""
SETTLE_SECONDS: Final = 5.0
VICTIM: Final = "persistent://public/default/victim"
PAYLOAD: Final = b"x" * 1_000
T = pb.BaseCommand


class Turns(trio.abc.Instrument):
    """Lengths of the passes of the event loop: from one wait for the kernel to the next. By the
    clock and, because other programs may take the processor meanwhile, by the time of the thread.
    """

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._began_thread = time.thread_time()
        self.seconds: list[float] = []
        self.thread_seconds: list[float] = []

    def after_io_wait(self, timeout: float) -> None:
        self._began = time.perf_counter()
        self._began_thread = time.thread_time()

    def before_io_wait(self, timeout: float) -> None:
        self.seconds.append(time.perf_counter() - self._began)
        self.thread_seconds.append(time.thread_time() - self._began_thread)


@contextmanager
def turns_of(what: str, seen: dict[str, Any]) -> Iterator[None]:
    """Measure them, and the time that it takes."""
    turns = Turns()
    start = time.monotonic()
    trio.lowlevel.add_instrument(turns)
    try:
        yield
    finally:
        trio.lowlevel.remove_instrument(turns)
    ordered = sorted(turns.seconds)
    seen[what] = {
        "seconds": round(time.monotonic() - start, 3),
        "turns": len(ordered),
        "turn ms, longest": round(ordered[-1] * 1_000, 2),
        "turn ms, p99.9": round(ordered[int(len(ordered) * 0.999)] * 1_000, 2),
        "turn ms of its thread, longest": round(max(turns.thread_seconds) * 1_000, 2),
    }


class Connection:
    """A client of the broker in the same process."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._client = c.Client()
        self._received: list[Any] = []

    @classmethod
    async def to(cls, url: str) -> Connection:
        """Connect to `pulsar://host:port`."""
        host, _, port = url.removeprefix("pulsar://").rpartition(":")
        connection = cls(await trio.open_tcp_stream(host, int(port)))
        await connection.ask(c.connect(), T.CONNECTED)
        return connection

    async def ask(self, frame: bytes, answer: int, count: int = 1) -> None:
        """Send, and wait for so many answers of the kind."""
        await self._stream.send_all(frame)
        while count:
            while not self._received:
                data = await self._stream.receive_some(65536)
                assert data, "the broker has closed the connection"
                self._received += self._client.receive(bytes(data))
            command, _ = self._received.pop(0)
            if command.type == T.PING:
                await self._stream.send_all(c.pong())
            else:
                assert command.type == answer, command
                count -= 1

    async def answer_pings(self) -> None:
        """Until cancelled: a client at rest."""
        while True:
            data = await self._stream.receive_some(65536)
            assert data, "the broker has closed the connection"
            for command, _ in self._client.receive(bytes(data)):
                if command.type == T.PING:
                    await self._stream.send_all(c.pong())

    def close(self) -> None:
        """End it."""
        self._stream.socket.close()


def _messages(producer_id: int, count: int) -> bytes:
    """SEND commands, published now."""
    now_ms = int(time.time() * 1_000)
    return b"".join(
        c.send(producer_id, number, c.message(PAYLOAD, sequence_id=number, publish_time=now_ms))
        for number in range(count)
    )


async def fill(connection: Connection, topics: range, messages: int) -> None:
    """Topics with a subscription each, without a consumer, and with messages."""
    for start in range(0, len(topics), TOPICS_AT_ONCE):
        numbers = topics[start : start + TOPICS_AT_ONCE]
        names = [f"persistent://public/default/t{number}" for number in numbers]
        count = len(names)
        pairs = list(zip(numbers, names, strict=True))
        opened = b"".join(c.subscribe(name, "s", number, number) for number, name in pairs)
        await connection.ask(opened, T.SUCCESS, count)
        closed = b"".join(c.close_consumer(number, number) for number in numbers)
        await connection.ask(closed, T.SUCCESS, count)
        opened = b"".join(c.producer(name, number, number) for number, name in pairs)
        await connection.ask(opened, T.PRODUCER_SUCCESS, count)
        sent = b"".join(_messages(number, messages) for number in numbers)
        await connection.ask(sent, T.SEND_RECEIPT, count * messages)
        closed = b"".join(c.close_producer(number, number) for number in numbers)
        await connection.ask(closed, T.SUCCESS, count)


async def victim(url: str, times_ms: list[float]) -> None:
    """Publish one message after the other, until cancelled."""
    connection = await Connection.to(url)
    await connection.ask(c.producer(VICTIM, 1, 1), T.PRODUCER_SUCCESS)
    sequence_id = 0
    while True:
        start = time.perf_counter()
        message = c.message(PAYLOAD, sequence_id=sequence_id)
        await connection.ask(c.send(1, sequence_id, message), T.SEND_RECEIPT)
        times_ms.append((time.perf_counter() - start) * 1_000)
        sequence_id += 1
        await trio.sleep(0.01)


def backlog(service: BrokerService) -> int:
    """Entries that wait in all topics."""
    return sum(
        each.backlog_entries
        for topic in service.topics.values()
        for each in topic.subscriptions.values()
    )


async def measure(directory: Path, topics: int, messages: int) -> dict[str, Any]:
    """The whole run."""
    seen: dict[str, Any] = {"topics": topics, "messages of each": messages}
    config = replace(DEFAULT_CONFIG, brokerServicePort=0, webServicePort=0)
    async with running_broker(config, directory) as broker, trio.open_nursery() as nursery:
        service = broker.service
        url = broker.broker_service_url
        await fill(await Connection.to(url), range(topics), messages)
        await trio.sleep(max(SETTLE_SECONDS, TTL_SECONDS + 1))  # the last ones are old enough, too
        gc.collect()
        times_ms: list[float] = []
        nursery.start_soon(victim, url, times_ms)
        await trio.sleep(1)

        async def phase(what: str, work: Callable[[], Awaitable[Any]]) -> None:
            times_ms.clear()
            with turns_of(what, seen):
                await work()
            ordered = sorted(times_ms) or [0.0]
            seen[what]["publish ms, p50"] = round(ordered[len(ordered) // 2], 2)
            seen[what]["publish ms, p99"] = round(ordered[int(len(ordered) * 0.99)], 2)

        seen["entries before"] = backlog(service)
        await phase("nothing to do", partial(trio.sleep, SETTLE_SECONDS))
        await phase(
            "the policy is set",
            lambda: service.namespaces.change_policies(
                "public/default",
                lambda policies: policies.with_fields(message_ttl_in_seconds=TTL_SECONDS),
            ),
        )
        expiry = service.services.message_expiry
        await phase("everything expires", expiry.check)
        await phase("positions are stored", partial(trio.sleep, SETTLE_SECONDS))
        seen["entries after"] = backlog(service)
        await trio.sleep(TTL_SECONDS + 1)
        await phase("nothing has expired", expiry.check)
        nursery.cancel_scope.cancel()
    return seen


def main(arguments: list[str]) -> int:
    """0: no pass of the loop took longer than TURN_MS_MAX because of the expiry."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures there")
    chosen = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    tune_process()
    with tempfile.TemporaryDirectory() as directory:
        seen = trio.run(measure, Path(directory), chosen.topics, chosen.messages)
    text = json.dumps(seen, indent=2)
    print(text)
    if chosen.json is not None:
        chosen.json.write_text(text + "\n")
    longest = max(seen[what]["turn ms of its thread, longest"] for what in PHASES)
    return 0 if longest <= TURN_MS_MAX and seen["entries after"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
