"""A broker in memory behind real loopback sockets, and a client of bare commands."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from math import inf

import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from bookie.bookie import Bookie
from bookie.config import BookieConfig
from bookie.index_memory import MemoryIndex
from bookie.memory_disk import MemoryDisk
from broker.assembly.change_events import start_policy_log
from broker.doors.pulsar.authenticating import Authenticating
from broker.doors.pulsar.door import PulsarDoor
from broker.doors.pulsar.table import BrokerCommands
from broker.ground.config import BrokerConfig
from broker.ground.turn import Turns
from broker.limits.output_budget import OutputBudget
from broker.managed_ledger.config import ManagedLedgerConfig
from broker.managed_ledger.factory import ManagedLedgerFactory
from broker.net.listener import BrokerListener
from broker.peers.broker_address import BrokerAddress
from broker.peers.ownership import SoleBroker
from broker.tenancy.authorization.authorizer import Authorizer, rules_from
from broker.tenancy.authorization.tenant_admins import TenantAdmins
from broker.tenancy.namespaces.namespaces import Namespaces
from broker.tenancy.schemas.registry import SchemaRegistry
from broker.topics.broadcast.selection import BroadcastKind
from broker.topics.broadcast.window_memory import WindowMemory
from broker.topics.enforcement import Enforcement
from broker.topics.service import BrokerService
from broker.topics.subscription.factory import SubscriptionKinds
from broker.topics.subscription.stock import STOCK
from broker.topics.topic.stock_parts import stock_parts
from ledgers.client import LedgerClient, LedgerClientConfig
from metadata.memory_store import MemoryStore
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from runtime.clock import SystemClock
from runtime.readers import Readers
from runtime.testing.conditions import SECONDS_MAX
from security.caller import Caller

T = pb.BaseCommand


class Connection:
    """A client connection: sends frames, receives commands one by one."""

    def __init__(self, stream):
        self.stream = stream
        self.client = c.Client()
        self.received = []
        self.answers_pings = True
        self.producer_names = {}
        self.messages = []

    async def send(self, *frames):
        await self.stream.send_all(b"".join(frames))

    def rid(self):
        return self.client.next_request_id()

    async def next(self, timeout=SECONDS_MAX):
        """The next command, and what follows it; None when the broker has closed."""
        with trio.fail_after(timeout):
            while not self.received:
                try:
                    data = await self.stream.receive_some(65536)
                except trio.BrokenResourceError:
                    return None
                if not data:
                    return None
                for command, payload in self.client.receive(bytes(data)):
                    if command.type == T.PING and self.answers_pings:
                        await self.send(c.pong())
                        continue
                    self.received.append((command, payload))
        return self.received.pop(0)

    async def expect(self, *kinds, timeout=SECONDS_MAX):
        """The next command's content; it must be of one of these types."""
        answer = await self.next(timeout)
        assert answer is not None, f"closed instead of {kinds}"
        command, payload = answer
        assert command.type in kinds, command
        content = getattr(command, c_field(command.type))
        return (content, payload) if command.type == T.MESSAGE else content

    async def nothing_more(self, seconds=0.05):
        """Nothing comes in that time, or until the task is cancelled; PINGs are answered."""
        with trio.move_on_after(seconds):
            raise AssertionError(await self.next(inf))

    async def closed(self):
        """The broker ends the connection; returns the last ERROR's text."""
        text = ""
        while (answer := await self.next()) is not None:
            if answer[0].type == T.ERROR:
                text = answer[0].error.message
        return text

    async def handshake(self, **fields):
        await self.send(c.connect(**fields))
        return await self.expect(T.CONNECTED)

    async def producer(self, topic, producer_id=1, **fields):
        await self.send(c.producer(topic, producer_id, self.rid(), **fields))
        answer = await self.expect(T.PRODUCER_SUCCESS)
        self.producer_names[producer_id] = answer.producer_name
        return answer

    async def publish(self, sequence_id, payload=b"x", producer_id=1, **fields):
        name = self.producer_names.get(producer_id, "producer")
        message = c.message(payload, producer_name=name, sequence_id=sequence_id)
        await self.send(c.send(producer_id, sequence_id, message, **fields))

    async def subscribe(self, topic, subscription="s", consumer_id=1, permits=0, **fields):
        await self.send(c.subscribe(topic, subscription, consumer_id, self.rid(), **fields))
        answer = await self.expect(T.SUCCESS)
        if permits:
            await self.send(c.flow(consumer_id, permits))
        return answer

    async def error(self):
        return await self.expect(T.ERROR)


def c_field(kind):
    from protocol.connection import COMMANDS

    return COMMANDS[kind].field


class Harness:
    """A running broker."""

    def __init__(self, service, listener, nursery, store, factory, bookie):
        self.service = service
        self.bookie = bookie
        self.listener = listener
        self.nursery = nursery
        self.store = store
        self.factory = factory
        self.streams = []
        self.tls_port = 0

    async def raw(self):
        """A connection that has said nothing yet."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.listener.port)
        self.streams.append(stream)
        return Connection(stream)

    async def in_memory(self):
        """A connection without a socket, for the clock of tests."""
        ours, theirs = memory_stream_pair()
        self.streams.append(ours)
        self.nursery.start_soon(self.listener.serve_stream, theirs, "memory:1")
        return Connection(ours)

    async def connect(self, **fields):
        connection = await self.raw()
        await connection.handshake(**fields)
        return connection

    async def connect_as(self, role, original_role=None, **fields):
        """A connection whose client has said who it is."""
        connection = await self.connect(**fields)
        host, port = connection.stream.socket.getsockname()
        session = next(
            each for each in self.service.connections.open if each.peer == f"{host}:{port}"
        )
        session.caller = Caller(role, original_role)
        return connection

    async def settled(self):
        """Wait until all tasks are blocked and the journal's thread has answered everything. That
        thread runs in real time, so a MockClock must not move before."""
        await wait_all_tasks_blocked()
        while self.bookie.statistics().journal_queue_entries:
            await wait_all_tasks_blocked(0.001)

    async def let_pass(self, clock, seconds, step_seconds=0.05):
        """That time goes by on a MockClock, in steps in which all work is done."""
        await self.settled()
        for _ in range(round(seconds / step_seconds)):
            clock.jump(step_seconds)
            await self.settled()

    async def passing(self, clock, call, step_seconds=0.05):
        """What a call answers that needs time to pass on a MockClock."""
        answers = []

        async def ask():
            answers.append(await call())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await self.settled()
            while not answers:
                await self.let_pass(clock, step_seconds, step_seconds)
        return answers[0]

    def session_of(self, attached):
        """The connection of a producer or a consumer."""
        return next(
            each
            for each in self.service.connections.open
            if attached.session in (each.producing, each.consuming)
        )

    def topic(self, name):
        from protocol.topic_name import TopicName

        return self.service.topics[TopicName.parse(name).full]


def use_limits(shared, limits):
    """Others than those of the configuration."""
    shared.limits = replace(shared.limits, **limits)
    shared.outputs = OutputBudget(shared.limits, shared.clock)
    shared.publish_budget.bytes_max = shared.limits.broker_publish_bytes_max
    shared.unfinished_frames.bytes_max = shared.limits.unfinished_frames_bytes_max


def _turns_of(bookie):
    """The turns of a broker that kick this bookie at their end."""
    turns = Turns()
    bookie.set_turn(turns)
    turns.kick_storage = bookie.kick
    return turns


@asynccontextmanager
async def running(
    limits=None, clock=None, tls=None, authentication=None, part_kinds=(), **settings
):
    """A broker with these settings; `limits` replaces fields of NetLimits, `tls` is a TlsPort, and
    `part_kinds` come beside the stock ones. With `authentication` clients must show credentials,
    and the roles of proxies are checked."""
    keep = {"defaultRetentionTimeInMinutes": -1, "defaultRetentionSizeInMB": -1}
    config = replace(BrokerConfig(), **{**keep, **settings})
    clock = clock or SystemClock()
    store = MemoryStore()
    bookie = await Bookie.open(
        BookieConfig.in_memory(), MemoryDisk(), open_index=lambda _path: MemoryIndex()
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(bookie.run)
        ledgers = LedgerClient(store, {bookie.config.bookieId: bookie}, LedgerClientConfig(), clock)
        ledger_config = ManagedLedgerConfig.from_broker_config(config)
        factory = ManagedLedgerFactory(store, ledgers, ledger_config, clock)
        await nursery.start(factory.run)
        namespaces = Namespaces(store, config)
        turns = _turns_of(bookie)
        service = BrokerService(
            config=config,
            store=store,
            factory=factory,
            namespaces=namespaces,
            schemas=SchemaRegistry(store, ledgers, clock, config),
            subscription_kinds=SubscriptionKinds(
                BroadcastKind(WindowMemory(config.managedLedgerCacheSizeMB << 20)), STOCK
            ),
            part_kinds=(*part_kinds, *stock_parts(config, clock)),
            turns=turns,
            clock=clock,
        )
        if limits:
            use_limits(service.connections, limits)
        authenticating = None
        if authentication is not None:
            authenticating = Authenticating(authentication, config, checks_proxies=True)
        authorizer = None
        if config.authorizationEnabled:
            authorizer = Authorizer(rules_from(config), namespaces, TenantAdmins(store))
        listener = BrokerListener(
            service.connections,
            PulsarDoor(BrokerCommands(service, authenticating, authorizer)),
            Readers(),
            config.maxHttpServerConnections,
        )
        await listener.bind("127.0.0.1", 0)
        tls_port = 0 if tls is None else await listener.bind("127.0.0.1", 0, tls.over)
        address = BrokerAddress(f"pulsar://127.0.0.1:{listener.port}", "http://127.0.0.1:1")
        service.ownership = SoleBroker(address)
        await namespaces.bootstrap(address)
        await nursery.start(service.run)
        await start_policy_log(nursery, service)
        await nursery.start(listener.run)
        if authorizer is not None:
            await nursery.start(Enforcement(store, authorizer, service.topics, {}).run)
        harness = Harness(service, listener, nursery, store, factory, bookie)
        harness.authorizer, harness.tls_port = authorizer, tls_port
        try:
            yield harness
        finally:
            with trio.CancelScope(shield=True):
                for stream in harness.streams:
                    await trio.aclose_forcefully(stream)
                namespaces.policy_log.stop()
                await service.close()
                nursery.cancel_scope.cancel()
    await bookie.aclose()
