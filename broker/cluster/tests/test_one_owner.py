"""Whatever happens to sessions, no topic is served by two brokers that both believe to be live."""

import trio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from broker.cluster.records import BundleLoad
from broker.cluster.tests.cluster_of import cluster_of, topic
from broker.cluster.tests.late_store import LateStore
from broker.ground.refusal import Refusal
from metadata.store import SessionState
from protocol.errors import BrokerError

BROKERS = 3
NAMES = [topic(f"t{number}") for number in range(4)]
STEPS = (0, 1, 2, 3, 5, 8, 13, 40)
"""Turns of the event loop between two events: some operations are cut short, others end."""

broker_numbers = st.integers(0, BROKERS - 1)
name_numbers = st.integers(0, len(NAMES) - 1)
events = st.one_of(
    st.tuples(st.just("look up"), broker_numbers, name_numbers, st.booleans()),
    st.tuples(st.just("own"), broker_numbers, name_numbers),
    st.tuples(st.just("unload"), broker_numbers, name_numbers),
    st.tuples(st.just("split"), broker_numbers, name_numbers, st.booleans()),
    st.tuples(st.just("lose session"), broker_numbers),
    st.tuples(st.just("expire"), broker_numbers),
    st.tuples(st.just("session"), broker_numbers, st.sampled_from(SessionState)),
    st.tuples(st.just("hold"), broker_numbers, st.booleans()),
    st.tuples(st.just("sleep"), st.sampled_from([2, 6])),
)
schedules = st.lists(st.tuples(events, st.sampled_from(STEPS)), min_size=20, max_size=80)


async def attempt(call, *arguments):
    try:
        await call(*arguments)
    except (BrokerError, Refusal):
        return


async def look_up(broker, name, authoritative):
    await broker.owner_of(name, authoritative=authoritative)
    if broker.ownership.serves(name):
        broker.open_topics.setdefault(name, BundleLoad(topics=1))


async def bundle_change(broker, name, unload):
    boundaries = await broker.ownership._bundles.of(name.namespace_name)
    bundle = boundaries.bundle_of(name)
    if unload is None:
        await broker.ownership.unload_bundle(bundle.namespace_name, bundle.range_text)
    else:
        await broker.ownership.split_bundle(
            bundle.namespace_name, bundle.range_text, "range_equally_divide", unload=unload
        )


def check(brokers):
    for name in NAMES:
        serving = [broker.id for broker in brokers if broker.ownership.serves(name)]
        assert len(serving) <= 1, (name, serving)


class Watching(trio.abc.Instrument):
    """Checks after every step of every task."""

    def __init__(self):
        self.brokers = []
        self.failure = None

    def after_task_step(self, task):
        if self.failure is None:
            try:
                check(self.brokers)
            except AssertionError as error:
                self.failure = error


def begin(nursery, broker, kind, arguments):
    """Start one event. It goes on while the next ones begin."""
    if kind in ("look up", "own"):
        authoritative = kind == "own" or arguments[1]
        nursery.start_soon(attempt, look_up, broker, NAMES[arguments[0]], authoritative)
    elif kind == "unload":
        nursery.start_soon(attempt, bundle_change, broker, NAMES[arguments[0]], None)
    elif kind == "split":
        nursery.start_soon(attempt, bundle_change, broker, NAMES[arguments[0]], arguments[1])
    elif kind == "lose session":
        broker.store.become(SessionState.LOST)
        broker.store.become(SessionState.LIVE)
    elif kind == "expire":
        broker.store.expire()
    elif kind == "session":
        broker.store.become(arguments[0])
    elif arguments[0]:
        if broker.may_close.is_set():
            broker.may_close = trio.Event()
    else:
        broker.may_close.set()


async def scenario(schedule, watching):
    async with cluster_of(BROKERS, LateStore) as brokers, trio.open_nursery() as nursery:
        watching.brokers = brokers
        for (kind, *arguments), steps in schedule:
            if kind == "sleep":
                await trio.sleep(arguments[0])
            else:
                begin(nursery, brokers[arguments[0]], kind, arguments[1:])
            for _step in range(steps):
                await trio.lowlevel.checkpoint()
            assert watching.failure is None, watching.failure
        for broker in brokers:
            broker.may_close.set()
            broker.store.become(SessionState.LIVE)
        await trio.sleep(600)
        # In the end every topic finds an owner again.
        for name in NAMES:
            await brokers[0].owner_of(name, authoritative=True)
            assert sum(broker.ownership.serves(name) for broker in brokers) == 1
        assert watching.failure is None, watching.failure
        nursery.cancel_scope.cancel()


@settings(
    max_examples=settings.default.max_examples // 2,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(schedules)
def test_no_topic_is_served_twice(schedule):
    watching = Watching()
    trio.run(
        scenario,
        schedule,
        watching,
        clock=MockClock(autojump_threshold=0),
        instruments=[watching],
    )
