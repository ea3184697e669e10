"""Producers and consumers on the connections of `links`: they come back after every loss, and send
again what has no receipt.

What they sent, got and acknowledged is the evidence for `checks`.
"""

from __future__ import annotations

from collections import deque

import trio

from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from tests.simulation.links import T, Unavailable
from tests.simulation.world import trace

PERMITS = 60
UNANSWERED_MAX = 120
KEYS = 7
NO_POSITION = 2**64 - 1


class Producer:
    """Publishes numbered messages according to a plan."""

    def __init__(self, process, name, topic, plan):
        """`plan`: the times at which messages are made, ascending."""
        self.name = name
        self.topic = topic
        self.plan = plan
        self.sends = [0] * len(plan)
        """How often each message was sent."""
        self.receipts = [None] * len(plan)
        """The position in the first receipt with one, and () for one without."""
        self.receipt_times = [None] * len(plan)
        self._process = process
        self._unanswered = deque()
        self._link = None
        self._number = 0
        self._epoch = 0
        self._moved = trio.Event()

    @property
    def is_done(self):
        return all(receipt is not None for receipt in self.receipts)

    async def run(self):
        """Until every message has its receipt."""
        while not self.is_done:
            try:
                await self._attach()
                await self._publish()
            except Unavailable as error:
                trace(f"{self.name}: {error}")
            finally:
                self._leave()
            await self._process.wait_before_retry()

    async def _attach(self):
        link = await self._process.find(self.topic)
        self._number = number = link.attach(self)
        self._link = link
        request_id = link.rid()
        self._epoch += 1
        frame = c.producer(
            self.topic,
            number,
            request_id,
            producer_name=self.name,
            user_provided_producer_name=True,
            epoch=self._epoch,
        )
        await link.request(request_id, frame)

    def _leave(self):
        link, self._link = self._link, None
        if link is not None:
            link.detach(self._number)
            link.send(c.close_producer(self._number, link.rid()))

    async def _publish(self):
        """Until the place with the broker is lost. Raises: Unavailable."""
        self._unanswered.clear()
        todo = deque(seq for seq, receipt in enumerate(self.receipts) if receipt is None)
        while todo or self._unanswered:
            now = trio.current_time()
            if self._link is None or self._link.is_lost:
                raise Unavailable("lost")
            frames = []
            while todo and self.plan[todo[0]] <= now and len(self._unanswered) < UNANSWERED_MAX:
                frames.append(self._frame(todo.popleft(), now))
            if frames:
                self._link.send(*frames)
            if self._unanswered and now - self._unanswered[0][1] > self._process.patience + 1:
                self._link.close()
                raise Unavailable("no receipt")
            self._moved = trio.Event()
            due = now + 1.0
            if todo and len(self._unanswered) < UNANSWERED_MAX:
                due = min(due, max(self.plan[todo[0]], now))
            with trio.move_on_at(due):
                await self._moved.wait()

    def _frame(self, seq, now):
        self.sends[seq] += 1
        self._unanswered.append((seq, now))
        message = c.message(
            payload_of(self.name, seq),
            producer_name=self.name,
            sequence_id=seq,
            partition_key=f"key{seq % KEYS}",
        )
        return c.send(self._number, seq, message)

    def on_command(self, link, number, kind, content, payload):
        del payload
        if link is not self._link or number != self._number:
            return
        if kind == T.SEND_RECEIPT:
            self._on_receipt(content)
        else:
            trace(f"{self.name}: {T.Type.Name(kind)}")
            self._link = None
            link.detach(number)
            self._moved.set()

    def _on_receipt(self, content):
        seq = content.sequence_id
        if not self._unanswered or self._unanswered[0][0] != seq:
            raise AssertionError(f"{self.name}: the receipt of {seq} is not the next one")
        self._unanswered.popleft()
        where = content.message_id
        position = (where.ledgerId, where.entryId)
        self.receipts[seq] = () if position[0] == NO_POSITION else position
        self.receipt_times[seq] = trio.current_time()
        if not self._unanswered or len(self._unanswered) == UNANSWERED_MAX - 1 or self.is_over:
            self._moved.set()

    @property
    def is_over(self):
        return self.receipts[-1] is not None

    def on_lost(self, link, number):
        if link is self._link and number == self._number:
            self._moved.set()


def payload_of(name, seq):
    """The content of a message."""
    return f"{name}:{seq}".encode()


class Subscriber:
    """The consumers that share a position in a topic, and what they got."""

    def __init__(self, topic, name, sub_type, consumer_name=""):
        """`consumer_name`: a broadcast, in which each consumer has a position of its own."""
        self.topic = topic
        self.subscription = name
        self.name = f"{name}/{consumer_name}" if consumer_name else name
        self.metadata = {"vela.broadcast": "true"} if consumer_name else None
        self.sub_type = sub_type
        self.content = {}
        """Payload by position."""
        self.acked = {}
        """When each position was acknowledged for the first time."""
        self.unacked = {}
        """Positions that were delivered and never acknowledged."""
        self.last_acked = {}
        """(time, attachment) of the last acknowledgement of each position."""
        self.given_back = {}
        """Positions that a consumer asked for again."""
        self.again = []
        """(time, attachment, position, last acknowledgement) of repeated deliveries."""
        self.left = {}
        """When each attachment ended."""
        self.deliveries = []
        """(time, consumer, number of its attachment, position)."""
        self.attachments = 0


class Consumer:
    """Gets messages and acknowledges them, sometimes late, sometimes not the first time."""

    def __init__(self, process, subscriber, name, fail):
        self.subscriber = subscriber
        self.name = name
        self.is_attached = trio.Event()
        """It was once."""
        self.is_in = False
        """It is now."""
        self._process = process
        self._rng = process.rng
        self._fail = fail
        self._link = None
        self._number = 0
        self._attachment = 0
        self._to_ack = []
        self._taken = 0
        self._moved = trio.Event()

    async def run(self):
        """Until cancelled."""
        while True:
            try:
                await self._attach()
                await self._consume()
            except Unavailable as error:
                trace(f"{self.name}: {error}")
            finally:
                self.is_in = False
                self.subscriber.left[self._attachment] = trio.current_time()
                link, self._link = self._link, None
                if link is not None:
                    link.detach(self._number)
                    link.send(c.close_consumer(self._number, link.rid()))
            await self._process.wait_before_retry()

    async def _attach(self):
        subscriber = self.subscriber
        link = await self._process.find(subscriber.topic)
        self._number = link.attach(self)
        self._link = link
        self._to_ack, self._taken = [], 0
        subscriber.attachments += 1
        self._attachment = subscriber.attachments
        request_id = link.rid()
        frame = c.subscribe(
            subscriber.topic,
            subscriber.subscription,
            self._number,
            request_id,
            subscriber.sub_type,
            metadata=subscriber.metadata,
            durable=True,
            initialPosition=pb.CommandSubscribe.Earliest,
            consumer_name=self.name,
        )
        await link.request(request_id, frame)
        link.send(c.flow(self._number, PERMITS))
        self.is_attached.set()
        self.is_in = True

    async def _consume(self):
        while True:
            link = self._link
            if link is None or link.is_lost:
                raise Unavailable("lost")
            self._moved = trio.Event()
            await self._moved.wait()
            await trio.sleep(self._rng.choice((0.0, 0.0, 0.02, 0.1)))
            if self._link is link and not link.is_lost:
                self._acknowledge(link)

    def _acknowledge(self, link):
        positions, self._to_ack = self._to_ack, []
        if not positions:
            return
        frames = []
        kept = [position for position in positions if self._rng.random() > 0.02]
        subscriber, now = self.subscriber, trio.current_time()
        is_cumulative = subscriber.sub_type == pb.CommandSubscribe.Exclusive and (
            len(kept) == len(positions) and self._rng.random() < 0.5
        )
        last = max(kept, default=None)
        done = (
            sorted(each for each in subscriber.unacked if each <= last) if is_cumulative else kept
        )
        for position in done:
            subscriber.unacked.pop(position, None)
            subscriber.acked.setdefault(position, now)
            subscriber.last_acked[position] = (now, self._attachment)
        if is_cumulative:
            frames.append(c.ack(self._number, [last], cumulative=True))
        elif kept:
            self._rng.shuffle(kept)
            frames.append(c.ack(self._number, kept))
        again = [position for position in positions if position not in kept]
        if again:
            subscriber.given_back.update(dict.fromkeys(again))
            frames.append(c.redeliver_unacknowledged(self._number, again))
        link.send(*frames)

    def on_command(self, link, number, kind, content, payload):
        if link is not self._link or number != self._number:
            return
        if kind == T.MESSAGE:
            for message in c.received_messages(pb.BaseCommand(type=kind, message=content), payload):
                self._on_message(link, message)
        elif kind == T.CLOSE_CONSUMER:
            self._link = None
            link.detach(number)
            self._moved.set()

    def _on_message(self, link, message):
        subscriber = self.subscriber
        position = (message.message_id.ledger_id, message.message_id.entry_id)
        before = subscriber.content.setdefault(position, message.payload)
        if before != message.payload:
            self._fail(f"{position} of {subscriber.topic} was {before}, is {message.payload}")
        if position not in subscriber.acked:
            subscriber.unacked[position] = None
        now = trio.current_time()
        acked = subscriber.last_acked.get(position)
        if acked is not None:
            subscriber.again.append((now, self._attachment, position, acked))
        subscriber.deliveries.append((now, self.name, self._attachment, position))
        self._to_ack.append(position)
        self._taken += 1
        if self._taken >= PERMITS // 2:
            link.send(c.flow(self._number, self._taken))
            self._taken = 0
        self._moved.set()

    def on_lost(self, link, number):
        if link is self._link and number == self._number:
            self._moved.set()
