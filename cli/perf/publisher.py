"""The one publisher of a run: a blocking socket, one message at a time, receipts counted.

It records when each message was published (the time is also in the payload) and how long the
receipt took, which is the time the broker needed to make the message durable.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final, final

from cli.perf.blocking_connection import BlockingConnection, ConnectionFailed
from cli.perf.payload import SIZE_MIN, payload
from protocol import client
from protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from cli.perf.target import Target

_PRODUCER_ID: Final = 1
_Type = pb.BaseCommand


@final
class Publisher:
    """A context manager. It creates the topic if the broker allows that."""

    def __init__(self, target: Target, topic: str, run_id: bytes, size_bytes: int) -> None:
        """`size_bytes`: of each payload, at least SIZE_MIN."""
        self.published = 0
        self.receipts = 0
        self.receipt_times_ns: list[int] = []
        """From the publish call to the receipt, in order."""
        self._target = target
        self._topic = topic
        self._run_id = run_id
        self._filler = random.Random(run_id).randbytes(size_bytes - SIZE_MIN)
        self._published_ns: list[int] = []
        self._producer_name = ""

    def __enter__(self) -> Publisher:
        """Raises: ConnectionFailed, OSError."""
        self._connection = connection = BlockingConnection(self._target)
        try:
            connection.find_topic(self._topic)
            request = connection.next_request_id()
            connection.send(client.producer(self._topic, _PRODUCER_ID, request))
            answer = connection.wait_for(_Type.PRODUCER_SUCCESS)
            self._producer_name = answer.producer_success.producer_name
        except BaseException:
            connection.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def fileno(self) -> int:
        """For the wait."""
        return self._connection.fileno()

    def publish(self) -> None:
        """The next message.

        Raises: OSError.
        """
        sequence = self.published
        self.published += 1
        now_ns = time.monotonic_ns()
        self._published_ns.append(now_ns)
        content = payload(self._run_id, sequence, now_ns, self._filler)
        headers_and_payload = client.message(
            content,
            producer_name=self._producer_name,
            sequence_id=sequence,
            publish_time=time.time_ns() // 1_000_000,
        )
        self._connection.send(client.send(_PRODUCER_ID, sequence, headers_and_payload))

    def take(self, seconds_max: float) -> None:
        """Handle the content of one receive, after a bounded wait.

        Raises: ConnectionFailed, OSError.
        """
        for command, _ in self._connection.receive(seconds_max):
            if command.type == _Type.SEND_RECEIPT:
                sequence = command.send_receipt.sequence_id
                self.receipt_times_ns.append(time.monotonic_ns() - self._published_ns[sequence])
                self.receipts += 1
            elif command.type == _Type.SEND_ERROR:
                raise ConnectionFailed(f"a message was refused: {command.send_error.message}")
            elif command.type == _Type.CLOSE_PRODUCER:
                raise ConnectionFailed("the broker closed the producer")

    def listen(self, seconds: float) -> None:
        """Take receipts for that long.

        Raises: ConnectionFailed, OSError.
        """
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            self.take(left)
            if left <= 0:
                return
