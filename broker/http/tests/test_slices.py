"""Large answers come in slices: bounded rows, bounded bytes, and others are served in between."""

from __future__ import annotations

import json
import zlib

import pytest
import trio
import trio.testing

from broker.ground.slices import (
    NAMES_PER_SLICE,
    STEPS_PER_SLICE,
    in_slices,
    portions,
)
from broker.http.router import Router
from broker.http.routes import all_routes
from broker.http.server import AdminApplication
from broker.http.streaming import (
    SLICE_BYTES,
)
from broker.http.topics.topic_json import RANGES_IN_ROW_MAX
from broker.topics.subscription.consumer import Consumer, KeySharedOptions
from broker.topics.subscription.request import SubscriptionRequest
from broker.topics.subscription.statistics import at_once
from broker.topics.subscription.sub_types import FAILOVER, KEY_SHARED, SHARED
from broker.topics.subscription.tests.fakes import FakeSession
from broker.topics.topic_lists import TopicLists
from protocol import pulsar_api_pb2 as pb
from protocol.command_frames import command_frame
from protocol.commands import names_of_topics, topics_of_namespace
from protocol.topic_name import TopicName
from web.callers import CallerRules

MANY = 300
TOPIC = "/admin/v2/persistent/public/default/wide"


class Answer:
    """One answer as its client sees it, and how often others ran while it was made."""

    def __init__(self):
        self.status = 0
        self.headers = {}
        self.bodies = []
        self.turns = 0

    async def send(self, message):
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        elif message.get("body"):
            self.bodies.append(message["body"])

    @property
    def body(self):
        return b"".join(self.bodies)

    def json(self):
        return json.loads(self.body)


async def get(broker, path, query=b"", headers=()):
    """An answer of the application, without a server."""
    application = AdminApplication(Router(all_routes()), CallerRules((), ()))
    application.context = broker.admin
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode()}
    scope |= {"query_string": query, "headers": list(headers), "server": None}
    answer = Answer()

    async def count_turns():
        while True:
            await trio.lowlevel.checkpoint()
            answer.turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        await application(scope, trio.sleep_forever, answer.send)
        nursery.cancel_scope.cancel()
    assert answer.status == 200
    return answer


@pytest.fixture
async def wide(broker):
    """A topic with many subscriptions."""
    topic = await broker.service.get_or_load_topic(TopicName.parse("wide"), create=True)
    for number in range(MANY):
        await topic.open_subscription(SubscriptionRequest(name=f"s{number}"))
    return topic


def check_slices(answer, row):
    """Slices are as small as they must be, and others ran after each of them."""
    assert max(body.count(row) for body in answer.bodies) <= STEPS_PER_SLICE
    assert max(map(len, answer.bodies)) <= SLICE_BYTES
    assert answer.turns >= len(answer.bodies) >= MANY // STEPS_PER_SLICE


async def test_statistics_of_a_topic_come_in_slices(broker, wide):
    answer = await get(broker, f"{TOPIC}/stats")
    check_slices(answer, b'"msgBacklog"')
    assert list(answer.json()["subscriptions"]) == [f"s{number}" for number in range(MANY)]


async def test_internal_statistics_come_in_slices(broker, wide):
    answer = await get(broker, f"{TOPIC}/internalStats")
    check_slices(answer, b'"markDeletePosition"')
    assert len(answer.json()["cursors"]) == MANY
    answer = await get(broker, f"{TOPIC}/internal-info")
    check_slices(answer, b'"markDelete"')
    assert len(answer.json()["cursors"]) == MANY


@pytest.mark.parametrize("query", [b"", b"perPartition=false"])
async def test_statistics_of_partitions_come_in_slices(broker, query):
    name = TopicName.parse("wide")
    await broker.admin.namespaces.create_partitioned_topic(name, 2)
    for part in (name.partition(0), name.partition(1)):
        topic = await broker.service.get_or_load_topic(part, create=True)
        for number in range(MANY):
            await topic.open_subscription(SubscriptionRequest(name=f"s{number}"))
    answer = await get(broker, f"{TOPIC}/partitioned-stats", query)
    check_slices(answer, b'"msgBacklog"')
    assert answer.turns >= 2 * MANY // STEPS_PER_SLICE, "rows that are only added up take time, too"
    stats = answer.json()
    assert len(stats["subscriptions"]) == MANY
    assert len(stats["partitions"]) == (0 if query else 2)
    assert stats["averageMsgSize"] == 0.0
    assert "ownerBroker" not in stats


async def test_the_metrics_come_in_slices(broker):
    for number in range(MANY):
        await broker.service.get_or_load_topic(TopicName.parse(f"t{number}"), create=True)
    answer = await get(broker, "/metrics")
    assert max(map(len, answer.bodies)) <= SLICE_BYTES
    assert answer.turns >= len(answer.bodies) + 2 * MANY // STEPS_PER_SLICE
    assert answer.body.count(b"\npulsar_rate_in{") == MANY


async def test_lists_come_in_slices(broker, wide):
    answer = await get(broker, f"{TOPIC}/subscriptions")
    check_slices(answer, b'"s')
    assert answer.json() == [f"s{number}" for number in range(MANY)]
    for number in range(MANY):
        await broker.service.get_or_load_topic(TopicName.parse(f"t{number}"), create=True)
    answer = await get(broker, "/admin/v2/persistent/public/default")
    check_slices(answer, b'"persistent:')
    assert len(answer.json()) == MANY + 1


async def test_rates_and_minutes_of_many_topics_are_closed_in_slices(broker, wide):
    turns = 0
    stop = trio.Event()

    async def count_turns():
        nonlocal turns
        while not stop.is_set():
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        await in_slices(wide.update_rates(60.0, 60.0))
        stop.set()
    assert turns >= MANY // STEPS_PER_SLICE - 1


async def test_an_answer_is_compressed_when_asked_for(broker, wide):
    plain = await get(broker, f"{TOPIC}/subscriptions")
    asking = [(b"accept-encoding", b"deflate, gzip;q=0.5")]
    packed = await get(broker, f"{TOPIC}/subscriptions", headers=asking)
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert zlib.decompress(packed.body, 16 + zlib.MAX_WBITS) == plain.body


async def test_metrics_readers_that_wait_together_share_a_page(broker):
    pages = []

    async def read():
        pages.append(await broker.admin.metrics.page())

    for number in range(MANY):
        await broker.service.get_or_load_topic(TopicName.parse(f"t{number}"), create=True)
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(read)
    assert len(set(map(id, pages))) <= 2
    later = await broker.admin.metrics.page()
    assert later not in pages, "who asks later is told what is later"


async def test_pages_that_are_read_slowly_are_few(broker):
    reading = [await broker.admin.metrics.page() for _ in range(20)]
    assert len(set(map(id, reading))) == 4
    reading.clear()
    assert "".join((await broker.admin.metrics.page()).pieces())


async def test_names_are_filtered_in_slices(broker):
    """Topics of other namespaces are work, too, though the list has none of them."""
    topic = await broker.service.get_or_load_topic(TopicName.parse("t0"), create=True)
    seen = 0
    most = 0

    class Name:
        domain = "persistent"

        @property
        def namespace_name(self):
            nonlocal seen
            seen += 1
            return "public/other"

    class Seen(trio.abc.Instrument):
        def before_task_step(self, task):
            self.before = seen

        def after_task_step(self, task):
            nonlocal most
            most = max(most, seen - self.before)

    class Other:
        name = Name()
        closing = ""

    others = {f"o{number}": Other() for number in range(5 * NAMES_PER_SLICE)}
    lists = TopicLists(broker.admin.namespaces, {**others, topic.name.full: topic})
    instrument = Seen()
    instrument.before = 0
    trio.lowlevel.add_instrument(instrument)
    try:
        assert await lists.existing("public/default", "persistent") == [topic.name.full]
    finally:
        trio.lowlevel.remove_instrument(instrument)
    assert seen == len(others)
    assert most <= NAMES_PER_SLICE


async def test_names_are_encoded_in_slices(broker):
    for number in range(MANY):
        await broker.service.get_or_load_topic(TopicName.parse(f"t{number:03}"), create=True)
    names = [f"persistent://public/default/t{number:03}" for number in range(MANY)]
    parts = await broker.service.topic_lists.encoded(
        "public/default", ("persistent",), names_of_topics
    )
    frame = b"".join(topics_of_namespace(7, parts))
    whole = command_frame(
        pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        request_id=7,
        topics=names,
        filtered=False,
        changed=True,
    )
    assert frame == whole
    many = [f"persistent://public/default/t{number}" for number in range(5 * NAMES_PER_SLICE)]
    assert max(map(len, portions(many))) == NAMES_PER_SLICE
    assert sum(map(len, portions(many))) == len(many)


# --- many consumers of one subscription -----------------------------------------------------


class CountedSession(FakeSession):
    """A session that counts how often it is shown; every row of a consumer shows it once."""

    shown = 0

    @property
    def remote_address(self):
        CountedSession.shown += 1
        return "127.0.0.1:50000"

    @remote_address.setter
    def remote_address(self, _value):
        pass


class Rows(trio.abc.Instrument):
    """The most rows of consumers made in one step of a task."""

    def __init__(self):
        self.most = 0
        self._before = CountedSession.shown

    def before_task_step(self, task):
        self._before = CountedSession.shown

    def after_task_step(self, task):
        self.most = max(self.most, CountedSession.shown - self._before)


@pytest.fixture
async def rows():
    instrument = Rows()
    trio.lowlevel.add_instrument(instrument)
    yield instrument
    trio.lowlevel.remove_instrument(instrument)


async def crowded(broker, sub_type, count=MANY):
    """A topic with a subscription that has many consumers."""
    topic = await broker.service.get_or_load_topic(TopicName.parse("wide"), create=True)
    request = SubscriptionRequest(name="s")
    subscription = await topic.open_subscription(request)
    consumers = [Consumer(at, f"c{at}", CountedSession(), sub_type) for at in range(count)]
    for consumer in consumers:
        subscription.attach_consumer(consumer, request)
    return subscription, consumers


@pytest.mark.parametrize("sub_type", [SHARED, FAILOVER, KEY_SHARED])
async def test_consumers_of_a_subscription_come_in_slices(broker, rows, sub_type):
    subscription, consumers = await crowded(broker, sub_type)
    answer = await get(broker, f"{TOPIC}/stats")
    assert rows.most <= STEPS_PER_SLICE, "rows are made in slices, too"
    check_slices(answer, b'"consumerName"')
    [shown] = answer.json()["subscriptions"].values()
    assert [row["consumerName"] for row in shown["consumers"]] == [
        consumer.name for consumer in subscription.consumers
    ]
    assert shown["consumersCount"] == len(consumers)
    rows.most = 0
    await get(broker, "/metrics")
    assert rows.most <= STEPS_PER_SLICE


@pytest.mark.parametrize("partitioned", [False, True])
async def test_the_key_ranges_of_a_consumer_come_in_slices(broker, partitioned):
    """65,000 ranges were written in one turn of 0.8 s."""
    name, path = TopicName.parse("wide"), f"{TOPIC}/stats"
    if partitioned:
        await broker.admin.namespaces.create_partitioned_topic(name, 1)
        name, path = name.partition(0), f"{TOPIC}/partitioned-stats"
    topic = await broker.service.get_or_load_topic(name, create=True)
    request = SubscriptionRequest(name="s")
    subscription = await topic.open_subscription(request)
    many = [(number, number) for number in range(0, 8_000, 2)]
    for at, ranges in enumerate((many, [(1, 1)])):
        options = KeySharedOptions(sticky=True, ranges=tuple(ranges))
        consumer = Consumer(at, f"c{at}", CountedSession(), KEY_SHARED, key_shared=options)
        subscription.attach_consumer(consumer, request)
    answer = await get(broker, path)
    assert max(body.count(b'"[') for body in answer.bodies) <= STEPS_PER_SLICE * RANGES_IN_ROW_MAX
    [shown] = answer.json()["subscriptions"].values()
    first, second = shown["consumers"]
    assert first["keyHashRangeArrays"] == [list(each) for each in many]
    assert first["keyHashRanges"] == [f"[{start}, {end}]" for start, end in many]
    assert first["consumerName"] == "c0"
    assert second["keyHashRangeArrays"] == [[1, 1]]
    assert second["keyHashRanges"] == ["[1, 1]"]


async def test_consumers_that_come_and_go_while_statistics_are_made_do_no_harm(broker):
    subscription, consumers = await crowded(broker, KEY_SHARED)
    steps = subscription.statistics_in_steps()
    for _ in range(MANY // 2):
        next(steps)
    for consumer in consumers[1:]:
        subscription.remove_consumer(consumer)
    shown = at_once(steps)
    names = [row.consumer_name for row in shown.consumers]
    assert len(set(names)) == len(names) == shown.sums.consumers < MANY
