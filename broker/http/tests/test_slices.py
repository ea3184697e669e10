"""Large answers come in slices: bounded rows, bounded bytes, and others are served in between."""

from __future__ import annotations

import json
import zlib

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from broker.ground.slices import (
    NAMES_PER_SLICE,
    STEPS_PER_SLICE,
    SharedReadings,
    for_each,
    in_slices,
    portions,
    sorted_in_slices,
)
from broker.http.router import Router
from broker.http.routes import all_routes
from broker.http.server import AdminApplication
from broker.http.streaming import (
    SLICE_BYTES,
    accepts_gzip,
    encoded,
    is_large,
    json_array,
    json_map,
    json_pieces,
    slices,
)
from broker.http.topics.topic_json import RANGES_IN_ROW_MAX, LedgerSizes
from broker.managed_ledger.ledger_table import LedgerRow
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


@pytest.mark.parametrize(
    ("value", "accepted"),
    [("gzip", True), ("GZIP, br", True), ("*", True), ("br", False), ("gzip;q=0", False)]
    + [("identity", False), ("gzip; q=0.0, *", False), ("*;q=0, gzip", True)],
)
def test_what_asks_for_gzip(value, accepted):
    assert accepts_gzip([(b"accept-encoding", value.encode())]) is accepted


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


@given(st.lists(st.text(max_size=200), max_size=200), st.integers(0, 2 * SLICE_BYTES))
def test_slices_are_bounded_and_lose_nothing(pieces, large):
    pieces.append("x" * large)
    made = list(slices(pieces))
    assert "".join(made) == "".join(pieces)
    assert all(0 < len(text) <= SLICE_BYTES for text in made)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
)


@given(_JSON, st.integers(0, 100))
def test_json_in_pieces_is_the_same_json(value, times):
    many = [value] * times
    assert json.loads("".join(json_array(many))) == many
    keyed = {str(number): value for number in range(times)}
    rows = ((key, iter((encoded(each),))) for key, each in keyed.items())
    assert json.loads("".join(json_map(rows))) == keyed
    nested = {"a": {"b": many, "c": keyed}}
    assert json.loads("".join(json_pieces(nested))) == nested
    assert is_large(nested) == (times > 64 or is_large(value))


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 20), st.integers(0, 999)), max_size=20),
    st.tuples(st.integers(0, 60), st.integers(-1, 30)),
)
def test_bytes_after_a_position(ledgers, position):
    rows = [
        LedgerRow(ledger_id, entries, size)
        for ledger_id, entries, size in sorted({each[0]: each for each in ledgers}.values())
    ]
    expected = 0
    for row in rows:
        if row.ledger_id > position[0]:
            expected += row.size_bytes
        elif row.ledger_id == position[0] and row.entries:
            left = max(0, row.entries - position[1] - 1)
            expected += row.size_bytes * left // row.entries
    assert LedgerSizes(rows).behind(position) == expected


# --- lists of names -------------------------------------------------------------------------


class Counted(str):
    """A name that counts its comparisons."""

    __slots__ = ()
    comparisons = 0

    def __lt__(self, other):
        Counted.comparisons += 1
        return str.__lt__(self, other)

    __hash__ = str.__hash__


class Turns(trio.abc.Instrument):
    """The most comparisons of names in one step of a task."""

    def __init__(self):
        self.most = 0
        self._before = 0

    def before_task_step(self, task):
        self._before = Counted.comparisons

    def after_task_step(self, task):
        self.most = max(self.most, Counted.comparisons - self._before)


@pytest.mark.parametrize("count", [0, 1, NAMES_PER_SLICE, NAMES_PER_SLICE + 1, 20_000])
def test_names_are_sorted_in_slices(count):
    names = [Counted(f"t{number * 7919 % 20_011}") for number in range(count)]
    turns = Turns()
    found = trio.run(sorted_in_slices, [*names, None, *names[:10]], instruments=[turns])
    assert found == sorted(set(map(str, names)))
    assert turns.most <= NAMES_PER_SLICE * 10, "a slice sorts that many names, or merges them"


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


async def test_lists_that_are_waited_for_together_are_made_twice_at_most():
    made = 0

    async def read(key):
        nonlocal made
        made += 1
        await trio.lowlevel.checkpoint()
        return made

    readings: SharedReadings[str, object] = SharedReadings()
    found = []

    async def ask():
        found.append(await readings.get("key", read))

    async with trio.open_nursery() as nursery:
        for _ in range(300):
            nursery.start_soon(ask)
    assert len(found) == 300
    assert made <= 2
    assert await readings.get("key", read) == made, (
        "a later caller is told the state after its request"
    )


async def test_a_list_is_made_for_those_who_wait_when_its_first_caller_leaves_or_it_fails():
    fails = True

    async def read(key):
        nonlocal fails
        await trio.testing.wait_all_tasks_blocked()
        if fails:
            fails = False
            raise ValueError(key)
        return key

    readings: SharedReadings[str, object] = SharedReadings()
    found = []

    async def ask():
        try:
            found.append(await readings.get("key", read))
        except ValueError as error:
            found.append(str(error) + " failed")

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
    assert sorted(found) == ["key", "key", "key failed"]

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
        with trio.CancelScope() as scope:
            scope.cancel()
            await readings.get("key", read)
    assert found[3:] == ["key"] * 3


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


async def test_steps_of_work_without_text_end_a_slice():
    """Rows that are only counted give others a turn as well."""
    assert list(slices([""] * (3 * STEPS_PER_SLICE))) == [""] * 3


async def test_work_for_many_values_is_begun_for_a_few_of_them_at_a_time():
    begun, released = [], trio.Event()

    async def work(value):
        begun.append(value)
        await released.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(for_each, range(MANY), work, 8)
        await trio.testing.wait_all_tasks_blocked()
        assert begun == list(range(8))
        released.set()
    assert begun == list(range(MANY))


async def test_work_that_needs_no_wait_lets_others_run():
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async def work(value):
        del value

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await for_each(range(MANY), work, 8)
        nursery.cancel_scope.cancel()
    assert turns >= MANY // 8


async def test_failed_work_is_told_and_ends_the_rest():
    done = []

    async def work(value):
        done.append(value)
        if value == 20:
            raise OSError("no room")

    with pytest.raises(ExceptionGroup) as told:
        await for_each(range(MANY), work, 8)
    assert told.group_contains(OSError, match="no room")
    assert len(done) < MANY
