"""Storage is kicked once a turn, and what is added outside of turns needs no kick of a turn."""

from __future__ import annotations

from broker.net.tests.harness import T, running
from protocol import client as c
from protocol import pulsar_api_pb2 as pb

TOPICS = 10


class Kicks:
    """Between the turns and storage: notes what is waiting whenever storage is kicked."""

    def __init__(self, turns, bookie):
        self.entries = []
        self._kick = turns.kick_storage
        self._journals = bookie._adds._journals
        turns.kick_storage = self

    def __call__(self):
        waiting = sum(len(run.bodies) for journal in self._journals for run in journal.pending)
        if waiting:
            self.entries.append(waiting)
        self._kick()


async def test_messages_of_one_turn_for_ten_topics_are_handed_to_storage_by_one_kick():
    async with running() as broker:
        connection = await broker.connect()
        for number in range(TOPICS):
            await connection.producer(f"t-{number}", number)
            await connection.publish(0, producer_id=number)
            await connection.expect(T.SEND_RECEIPT)
        (bookie,) = broker.factory._client._bookies.values()
        kicks = Kicks(broker.service.turns, bookie)
        message = c.message(b"x", sequence_id=1)
        await connection.send(b"".join(c.send(number, 1, message) for number in range(TOPICS)))
        for _ in range(TOPICS):
            await connection.expect(T.SEND_RECEIPT)
        assert kicks.entries == [TOPICS]


async def test_what_is_stored_outside_of_turns_needs_no_kick_of_a_turn():
    """The acks of a cursor: no client sends anything while they are stored."""
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer("t")
        await connection.subscribe("t", permits=10, initialPosition=pb.CommandSubscribe.Earliest)
        await connection.publish(0)
        await connection.expect(T.SEND_RECEIPT)
        message, _ = await connection.expect(T.MESSAGE)
        await connection.send(c.ack(1, [message.message_id], request_id=9))
        await connection.expect(T.ACK_RESPONSE)
        broker.service.turns.kick_storage = lambda: None
        cursor = broker.topic("t").ledger.cursors["s"]
        await cursor.flush()
        assert cursor.cursor_ledger[1] == 0
