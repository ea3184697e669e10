"""The one publisher of a run: a blocking socket, one message at a time, receipts counted.

It knows when each message was published (the time is in the payload, too) and how long the receipt
took, that is how long the broker needed to make it durable.
"""

from __future__ import annotations

import random
import select
import socket
import time
from typing import TYPE_CHECKING, Final, final

from broker.perf.payload import SIZE_MIN, payload
from protocol import client
from protocol import pulsar_api_pb2 as pb
from protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from protocol.frames import Frame

ANSWER_SECONDS_MAX: Final = 30.0
_RECEIVE_BYTES: Final = 65_536
_PRODUCER_ID: Final = 1
_Type = pb.BaseCommand


class PublisherFailed(Exception):
    """The broker refused the publisher or did not answer; the text says what it said."""


@final
class Publisher:
    """A context manager; the topic is created by it where the broker creates topics."""

    def __init__(self, host: str, port: int, topic: str, run_id: bytes, size_bytes: int) -> None:
        """`size_bytes`: of each payload, at least SIZE_MIN."""
        self.published = 0
        self.receipts = 0
        self.receipt_times_ns: list[int] = []
        """From the publish call to the receipt, in order."""
        self._address = (host, port)
        self._topic = topic
        self._run_id = run_id
        self._filler = random.Random(run_id).randbytes(size_bytes - SIZE_MIN)
        self._codec = client.Client()
        self._published_ns: list[int] = []

    def __enter__(self) -> Publisher:
        """Raises: PublisherFailed, OSError."""
        self._socket = socket.create_connection(self._address, ANSWER_SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._open()
        except BaseException:
            self._socket.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _open(self) -> None:
        self._socket.sendall(client.connect("vela-perf"))
        self._wait_for(_Type.CONNECTED)
        request = self._codec.next_request_id()
        self._socket.sendall(client.partitioned_metadata(self._topic, request))
        answer = self._wait_for(_Type.PARTITIONED_METADATA_RESPONSE).partitionMetadataResponse
        if answer.partitions:
            raise PublisherFailed(f"{self._topic} is partitioned: name one of its partitions")
        self._socket.sendall(client.lookup(self._topic, self._codec.next_request_id()))
        self._wait_for(_Type.LOOKUP_RESPONSE)
        request = self._codec.next_request_id()
        self._socket.sendall(client.producer(self._topic, _PRODUCER_ID, request))
        self._wait_for(_Type.PRODUCER_SUCCESS)

    def _wait_for(self, kind: int) -> pb.BaseCommand:
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while time.monotonic() < deadline:
            for command, _ in self._receive(deadline - time.monotonic()):
                if command.type == kind:
                    found: pb.BaseCommand = command
                    return found
                if command.type == _Type.ERROR:
                    raise PublisherFailed(command.error.message)
        raise PublisherFailed(f"no {pb.BaseCommand.Type.Name(kind)} in {ANSWER_SECONDS_MAX} s")

    def _receive(self, timeout_seconds: float) -> list[Frame]:
        readable, _, _ = select.select([self._socket], [], [], max(0.0, timeout_seconds))
        if not readable:
            return []
        data = self._socket.recv(_RECEIVE_BYTES)
        if not data:
            raise PublisherFailed("the broker closed the publisher's connection")
        try:
            frames = self._codec.receive(data)
        except RemoteProtocolError as error:
            raise PublisherFailed(str(error)) from None
        for command, _ in frames:
            if command.type == _Type.PING:
                self._socket.sendall(client.pong())
            elif command.type == _Type.SEND_RECEIPT:
                sequence = command.send_receipt.sequence_id
                self.receipt_times_ns.append(time.monotonic_ns() - self._published_ns[sequence])
                self.receipts += 1
            elif command.type == _Type.SEND_ERROR:
                raise PublisherFailed(f"a message was refused: {command.send_error.message}")
            elif command.type == _Type.CLOSE_PRODUCER:
                raise PublisherFailed("the broker closed the producer")
        return frames

    def publish(self) -> None:
        """The next message.

        Raises: PublisherFailed, OSError.
        """
        sequence = self.published
        self.published += 1
        now_ns = time.monotonic_ns()
        self._published_ns.append(now_ns)
        content = payload(self._run_id, sequence, now_ns, self._filler)
        headers_and_payload = client.message(
            content,
            producer_name="vela-perf",
            sequence_id=sequence,
            publish_time=time.time_ns() // 1_000_000,
        )
        self._socket.sendall(client.send(_PRODUCER_ID, sequence, headers_and_payload))

    def listen(self, seconds: float) -> None:
        """Take receipts for that long.

        Raises: PublisherFailed, OSError.
        """
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            self._receive(left)
            if left <= 0:
                return
