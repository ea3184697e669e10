"""A small client of a running broker: many consumers on one connection."""

from __future__ import annotations

from collections import defaultdict
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import trio

from broker.assembly.app import running_broker
from broker.ground.config import BrokerConfig
from protocol import client
from protocol import pulsar_api_pb2 as pb
from runtime.testing.conditions import SECONDS_MAX

TOPIC = "persistent://public/default/areas"
SHARED = pb.CommandSubscribe.Shared
EXCLUSIVE = pb.CommandSubscribe.Exclusive
BROADCAST = {"vela.broadcast": "true"}


def config(**changes):
    return BrokerConfig(brokerServicePort=0, webServicePort=0, **changes)


@asynccontextmanager
async def broker(directory=None, **changes):
    async with running_broker(config(**changes), directory) as running:
        yield running


class Peer:
    """One connection. Messages are kept by consumer id as (position, payload, redeliveries, ...)
    and acknowledged on arrival when `acks`."""

    def __init__(self, stream):
        self.stream = stream
        self.codec = client.Client()
        self.answers = {}
        self.received = defaultdict(list)
        self.closed = []
        self.receipts = []
        self.acks = False
        self.is_connected = False
        self.news = trio.Event()

    async def run(self):
        while True:
            try:
                data = await self.stream.receive_some(1 << 20)
            except trio.ClosedResourceError:
                return  # the test closed it
            if not data:
                return
            acks = []
            for command, payload in self.codec.receive(data):
                self.on_command(command, payload, acks)
            if acks:
                await self.send(b"".join(acks))
            news, self.news = self.news, trio.Event()
            news.set()

    def on_command(self, command, payload, acks):
        kind = command.type
        if kind == pb.BaseCommand.MESSAGE:
            body = command.message
            for message in client.received_messages(command, payload):
                self.received[body.consumer_id].append(message)
            if self.acks:
                acks.append(client.ack(body.consumer_id, [body.message_id]))
        elif kind == pb.BaseCommand.CLOSE_CONSUMER:
            self.closed.append(command.close_consumer.consumer_id)
        elif kind == pb.BaseCommand.SEND_RECEIPT:
            self.receipts.append(command.send_receipt)
        elif kind == pb.BaseCommand.CONNECTED:
            self.is_connected = True
        elif kind == pb.BaseCommand.PING:
            acks.append(client.pong())
        else:
            content = getattr(command, _field(command))
            if hasattr(content, "request_id"):
                self.answers[content.request_id] = command

    async def send(self, *frames):
        await self.stream.send_all(b"".join(frames))

    async def until(self, condition, seconds=SECONDS_MAX):
        with trio.fail_after(seconds):
            while not condition():
                await self.news.wait()

    async def ask(self, make):
        """Send a request made for a request id; its answer."""
        request_id = self.codec.next_request_id()
        await self.send(make(request_id))
        return await self.answer(request_id)

    async def answer(self, request_id):
        await self.until(lambda: request_id in self.answers)
        return self.answers.pop(request_id)

    async def subscribe(
        self,
        *consumers,
        sub_type=SHARED,
        subscription="all",
        flow=1000,
        topic=TOPIC,
        **fields,
    ):
        """Subscribe (id, name) pairs, pipelined; their answers."""
        fields.setdefault("metadata", BROADCAST)
        requests, frames = [], []
        for consumer_id, name in consumers:
            request_id = self.codec.next_request_id()
            requests.append(request_id)
            frames.append(
                client.subscribe(
                    topic,
                    subscription,
                    consumer_id,
                    request_id,
                    sub_type,
                    consumer_name=name,
                    **fields,
                )
            )
            if flow:
                frames.append(client.flow(consumer_id, flow))
        await self.send(*frames)
        return [await self.answer(request_id) for request_id in requests]

    async def publish(self, *payloads, first=0):
        """Publish, each in an entry of its own, and wait for the receipts."""
        wanted = len(self.receipts) + len(payloads)
        frames = [
            client.send(1, first + number, client.message(payload, sequence_id=first + number))
            for number, payload in enumerate(payloads)
        ]
        await self.send(*frames)
        await self.until(lambda: len(self.receipts) >= wanted)

    def payloads(self, consumer_id):
        return [message.payload for message in self.received[consumer_id]]


def _field(command):
    return next(field.name for field, _ in command.ListFields() if field.name != "type")


@asynccontextmanager
async def peer(running, *, producer=False, topic=TOPIC):
    url = urlsplit(running.broker_service_url)
    stream = await trio.open_tcp_stream(url.hostname, url.port)
    async with trio.open_nursery() as nursery:
        connection = Peer(stream)
        nursery.start_soon(connection.run)
        await connection.send(client.connect())
        await connection.until(lambda: connection.is_connected)
        if producer:
            answer = await connection.ask(lambda request: client.producer(topic, 1, request))
            assert answer.type == pb.BaseCommand.PRODUCER_SUCCESS, answer
        try:
            yield connection
        finally:
            nursery.cancel_scope.cancel()
            # Cancelled here would take the place of what failed in the block.
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)


def subscription_of(running, name="all"):
    return running.service.topics[TOPIC].subscriptions[name]
