"""A client that behaves well, and measures how long it has to wait beside those that do not."""

from __future__ import annotations

import time
from typing import Final

from protocol import client as wire
from protocol import pulsar_api_pb2 as pb
from tests.bad_input.raw_connection import RawConnection

Type = pb.BaseCommand
PUBLISH_EVERY_SECONDS: Final = 0.01


class SteadyClient:
    """One topic, one message at a time: published, received, acknowledged."""

    def __init__(self, service_url: str) -> None:
        topic = "persistent://public/default/bystander"
        self._connection = connection = RawConnection(service_url, timeout_seconds=60)
        connection.connect()
        connection.send(
            wire.lookup(topic, 1), wire.producer(topic, 1, 2), wire.subscribe(topic, "s", 1, 3)
        )
        for kind in (Type.LOOKUP_RESPONSE, Type.PRODUCER_SUCCESS, Type.SUCCESS):
            connection.expect(kind)
        self.count = 0
        self.longest_wait = 0.0

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def go_on(self, seconds: float) -> None:
        """Publish and consume for so long."""
        end = time.monotonic() + seconds
        while (started := time.monotonic()) < end:
            self.one()
            waited = time.monotonic() - started
            self.longest_wait = max(self.longest_wait, waited)
            time.sleep(max(0.0, PUBLISH_EVERY_SECONDS - waited))

    def one(self) -> None:
        """One message, there and back."""
        message = wire.message(b"bystander", sequence_id=self.count)
        self._connection.send(wire.flow(1, 1), wire.send(1, self.count, message))
        kinds: list[int] = []
        position = (0, 0)
        for _ in range(2):
            command = self._connection.next()
            assert command is not None, "the bystander is no longer served"
            kinds.append(command.type)
            if command.type == Type.MESSAGE:
                found = command.message.message_id
                position = (found.ledgerId, found.entryId)
        assert sorted(kinds) == [Type.SEND_RECEIPT, Type.MESSAGE], self._connection.seen[-2:]
        self._connection.send(wire.ack(1, [position]))
        self._connection.seen.clear()
        self.count += 1
