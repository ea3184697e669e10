"""One run: a cluster, clients, faults, quiet, a restart, and the judgement."""

from __future__ import annotations

import traceback

import trio

from bookie.process.cluster import initialize_ledgers
from broker.peers.broker_address import BrokerAddress
from broker.tenancy.namespaces.namespaces import Namespaces
from protocol import pulsar_api_pb2 as pb
from protocol.topic_name import TopicName
from tests.simulation.checks import check_topic
from tests.simulation.clients import Consumer, Producer, Subscriber
from tests.simulation.coordination import Service
from tests.simulation.faults import END_SECONDS, Faults
from tests.simulation.links import ClientProcess
from tests.simulation.marks import Marks, marked
from tests.simulation.network import Network
from tests.simulation.nodes import BookieNode, BrokerNode, Settings
from tests.simulation.world import leaves, put_back, run, trace

TOPICS = 3
PRODUCERS = 2
MESSAGES_MIN = 1_000
BROKERS = 3
BOOKIES = 3
QUIET_SECONDS_MAX = 90.0
LOOK_SECONDS = 0.1
"""So often it is looked at who serves a topic."""
FLUSHED_SECONDS = 3.0
"""After so long without faults every acknowledgement is stored."""
FAULTS_SECONDS_MAX = 300
"""Of simulated time. All faults together take about a minute."""
Sub = pb.CommandSubscribe


class Failed(Exception):
    """Something does not hold. The text says what."""


class Report:
    """The outcome of a run."""

    def __init__(self, seed):
        self.seed = seed
        self.problems = []
        self.messages = 0
        self.faults = []
        """(time, text) of each."""
        self.kinds = {}
        """How often each kind of them happened."""
        self.marks = {}
        """How often each of `marks` happened."""
        self.virtual_seconds = 0.0
        self.digest = 0
        """Equal for equal runs."""


class SimCluster:
    """Everything that takes part in one run."""

    def __init__(self, world):
        self.world = world
        self.report = Report(world.seed)
        self.marks = Marks()
        world.log.on_line = self.marks.logged
        self.settings = Settings(world.chance("settings"))
        self.network = Network(world.chance("network"), world.events, put_back)
        self.network.on_resume = self.look_who_serves
        self.service = Service(self.network)
        bookies = BOOKIES + self.settings.has_spare_bookie
        self.bookies = [BookieNode(self, f"k{number}") for number in range(bookies)]
        self.brokers = [BrokerNode(self, f"b{number}") for number in range(BROKERS)]
        self.broker_names = [broker.name for broker in self.brokers]
        self.topics = [
            TopicName.parse(f"persistent://public/default/t{number}") for number in range(TOPICS)
        ]
        self.producers = []
        self.subscribers = []
        self.consumers = []
        self.began_at = 0.0
        self.disturbed = []
        self.nursery = None
        self._failed = trio.Event()

    def fail(self, text, error=None):
        """Note a problem; the run ends."""
        trace(f"PROBLEM {text}")
        if error is not None:
            error.add_note(text)
        self.report.problems.append(text)
        self._failed.set()

    # --- parts --------------------------------------------------------------------------

    def make_clients(self):
        rng = self.world.chance("load")
        publishing = [ClientProcess(self, "patient", 13.0), ClientProcess(self, "impatient", 4.0)]
        consuming = ClientProcess(self, "consumers", 4.0)
        count = -(-MESSAGES_MIN // (TOPICS * PRODUCERS))
        for number, topic in enumerate(self.topics):
            for each in range(PRODUCERS):
                plan = _plan(rng, count)
                process = publishing[each % 2]
                self.producers.append(Producer(process, f"p{number}{each}", topic.full, plan))
            ordered = Subscriber(topic.full, "ordered", Sub.Exclusive)
            self.subscribers.append(ordered)
            self.consumers.append(Consumer(consuming, ordered, f"o{number}", self.fail))
            names = [f"s{number}{each}" for each in range(2)]
            for name, subscriber in zip(names, _others(rng, topic.full, names), strict=True):
                if subscriber not in self.subscribers:
                    self.subscribers.append(subscriber)
                self.consumers.append(Consumer(consuming, subscriber, name, self.fail))

    async def initialize(self):
        """What `initialize-cluster-metadata` does."""
        tree = self.service.tree.another_session()
        await initialize_ledgers(tree)
        await Namespaces(tree, self.settings.broker).bootstrap(
            BrokerAddress("pulsar://b0:6650", "http://b0:8080")
        )

    def watch_owners(self):
        """No topic is served by two brokers, from now on."""
        self.look_who_serves()
        self.world.events.at(trio.current_time() + LOOK_SECONDS, self.watch_owners)

    def look_who_serves(self):
        """Those that are paused do nothing, and one whose clock stood still does not know of it
        before it has spoken to the metadata store."""
        for topic in self.topics:
            serving = [
                broker.name
                for broker in self.brokers
                if not broker.host.is_paused and broker.serves(topic) and broker.store.is_on_time
            ]
            if len(serving) > 1:
                self.fail(f"{topic.full} is served by {' and '.join(serving)}")

    # --- the run ------------------------------------------------------------------------

    async def run(self):
        """Returns the report. A task that fails is a problem of this seed, and ends no others."""
        with marked(self.marks):
            try:
                await self._run()
            except Exception as error:
                trace("".join(traceback.format_exception(error)))
                self.report.problems += [f"a task failed: {each!r}" for each in leaves(error)]
        self.report.marks = dict(self.marks.counts)
        return self.report

    async def _run(self):
        async with trio.open_nursery() as nursery:
            self.nursery = nursery
            nursery.start_soon(self.service.run)
            await self.initialize()
            with trio.CancelScope() as scope:
                nursery.start_soon(self._end_when_failed, scope)
                await self._go_through()
            report = self.report
            report.virtual_seconds = trio.current_time()
            for node in (*self.brokers, *self.bookies):
                await node.stop()
            nursery.cancel_scope.cancel()
        for event, error in self.world.log.faults:
            report.problems.append(f"a programming error was logged: {event}: {error!r}")

    async def _end_when_failed(self, scope):
        await self._failed.wait()
        scope.cancel()

    async def _go_through(self):
        for node in (*self.bookies, *self.brokers):
            node.start()
        self.make_clients()
        self.watch_owners()
        async with trio.open_nursery() as consuming:
            for consumer in self.consumers:
                consuming.start_soon(consumer.run)
            with trio.move_on_after(QUIET_SECONDS_MAX):
                for consumer in self.consumers:
                    await consumer.is_attached.wait()
            self.began_at = trio.current_time()
            trace("BEGIN")
            await self._publish()
            await self._wait_until_consumed()
            await self._wait_until_settled()
            await self._restart_brokers()
            consuming.cancel_scope.cancel()
        self._judge()

    async def _publish(self):
        faults = Faults(self)
        for producer in self.producers:
            producer.plan = [self.began_at + when for when in producer.plan]
        async with trio.open_nursery() as nursery:
            for producer in self.producers:
                nursery.start_soon(producer.run)
            with trio.move_on_after(FAULTS_SECONDS_MAX) as bounded:
                await faults.run()
            if bounded.cancelled_caught:
                self.fail(f"stuck: a fault has not ended after {FAULTS_SECONDS_MAX} s")
            self.report.faults, self.disturbed = faults.done, faults.disturbed
            self.report.kinds = dict(faults.kinds)
            trace("HEALED")
            await trio.sleep_until(self.began_at + END_SECONDS)
            with trio.move_on_after(QUIET_SECONDS_MAX):
                while not all(producer.is_done for producer in self.producers):  # noqa: ASYNC110
                    await trio.sleep(0.25)
                return
            late = [
                f"{producer.name}: {producer.receipts.count(None)}"
                for producer in self.producers
                if not producer.is_done
            ]
            self.fail(f"stuck: messages without a receipt long after all faults: {late}")
            nursery.cancel_scope.cancel()

    async def _wait_until_consumed(self):
        with trio.move_on_after(QUIET_SECONDS_MAX):
            while self._not_consumed():  # noqa: ASYNC110
                await trio.sleep(0.25)
            return
        self._judge()  # a message that is lost is the cause
        self.fail(
            f"stuck: not delivered or acknowledged long after all faults: {self._not_consumed()}"
        )

    async def _wait_until_settled(self):
        """Until all consumers have been attached, and have got nothing, for a time. A broker that
        crashed last may have lost acknowledgements, which then are given again."""
        state, since = None, trio.current_time()
        with trio.move_on_after(QUIET_SECONDS_MAX):
            while trio.current_time() - since < FLUSHED_SECONDS:
                await trio.sleep(0.25)
                now = [len(subscriber.deliveries) for subscriber in self.subscribers]
                if now != state or not all(consumer.is_in for consumer in self.consumers):
                    state, since = now, trio.current_time()
            return
        self.fail("stuck: consumers are not attached, or get entries again and again")

    def _not_consumed(self):
        waiting = []
        for subscriber in self.subscribers:
            wanted = {
                receipt
                for producer in self.producers
                if producer.topic == subscriber.topic
                for receipt in producer.receipts
                if receipt
            }
            for other in self.subscribers:
                if other.topic == subscriber.topic:
                    wanted |= other.content.keys()
            missing = wanted - subscriber.acked.keys()
            if missing:
                where = f"{subscriber.topic[-2:]}/{subscriber.name}"
                waiting.append((where, len(missing), min(missing)))
        return waiting

    async def _restart_brokers(self):
        """Everything was acknowledged long ago, so nothing may be delivered again."""
        trace("RESTART")
        before = [len(subscriber.deliveries) for subscriber in self.subscribers]
        attachments = [subscriber.attachments for subscriber in self.subscribers]
        for broker in self.brokers:
            await broker.stop()
        for broker in self.brokers:
            broker.start()
        with trio.move_on_after(QUIET_SECONDS_MAX):
            while any(  # noqa: ASYNC110
                subscriber.attachments == attached
                for subscriber, attached in zip(self.subscribers, attachments, strict=True)
            ) or not all(consumer.is_in for consumer in self.consumers):
                await trio.sleep(0.25)
            await trio.sleep(2.0)
            for subscriber, count in zip(self.subscribers, before, strict=True):
                again = sorted({each[3] for each in subscriber.deliveries[count:]})
                if again:
                    self.fail(
                        f"{subscriber.topic}/{subscriber.name} got {len(again)} entries again, "
                        f"the first {again[0]}, acknowledged at {subscriber.acked[again[0]]:.3f}"
                    )
            return
        self.fail("stuck: consumers do not come back after a restart of the brokers")

    def _judge(self):
        for topic in self.topics:
            producers = [each for each in self.producers if each.topic == topic.full]
            subscribers = [each for each in self.subscribers if each.topic == topic.full]
            problems = check_topic(
                producers,
                subscribers,
                has_deduplication=self.settings.has_deduplication,
                disturbed=self.disturbed,
            )
            self.report.problems.extend(f"{topic.local_name}: {each}" for each in problems)
        self.report.messages = sum(len(producer.sends) for producer in self.producers)
        self.report.digest = hash(
            tuple(
                (*each, subscriber.content[each[3]])
                for subscriber in self.subscribers
                for each in subscriber.deliveries
            )
        )


def _plan(rng, count):
    """Times, in seconds after the start: bursts and single messages."""
    times = []
    while len(times) < count:
        when = rng.uniform(0, END_SECONDS)
        times += [when] * min(rng.choice((1, 1, 3, 10, 30)), count - len(times))
    return sorted(times)


def _others(rng, topic, names):
    """A subscriber for each of these consumers of a second subscription."""
    kind = rng.choice((Sub.Shared, Sub.Shared, Sub.Key_Shared, Sub.Failover, None))
    if kind is None:
        return [Subscriber(topic, "broadcast", Sub.Shared, name) for name in names]
    return [Subscriber(topic, "shared", kind)] * len(names)


def simulate(seed, *, trace_to=None):
    """The report of the run of a seed."""

    async def scenario(world):
        return await SimCluster(world).run()

    return run(scenario, seed, trace_to=trace_to)
