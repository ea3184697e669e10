"""The entries that broadcasts keep in memory are bounded, for each and for all together."""

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from broker.topics.broadcast.entry_window import ENTRY_OVERHEAD_BYTES, EntryWindow
from broker.topics.broadcast.ordinals import Ordinals
from broker.topics.broadcast.tests.world import Ledger, World, received
from broker.topics.broadcast.window_memory import WindowMemory
from broker.topics.subscription.consumer import ENCODINGS_MAX
from broker.topics.subscription.tests.fakes import FakeSession, make_data

BYTES_MAX = 20_000
SIZES = (10, 1_000, 6_000, 30_000)


def window_over(memory, sizes):
    ledger = Ledger()
    ledger.append(*(make_data(payload=b"x" * size) for size in sizes))
    return EntryWindow(ledger, Ordinals(ledger), -1, 100, 1 << 20, memory)


async def read(window, ordinal):
    assert window.get(ordinal) is not None or ordinal in window.wanted
    while window.wanted:
        await window.read_next()
        if window._closed:
            return None
    return window.get(ordinal)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),  # window
            st.sampled_from(("get", "get", "get", "drop", "release")),
            st.integers(1, 30),  # ordinal
        ),
        max_size=60,
    ),
    st.lists(st.sampled_from(SIZES), min_size=30, max_size=30),
)
def test_windows_together_hold_no_more_than_their_memory_and_each_entry_can_be_had(steps, sizes):
    async def run():
        memory = WindowMemory(BYTES_MAX)
        windows = [window_over(memory, sizes) for _ in range(6)]
        for number, step, ordinal in steps:
            window = windows[number]
            before = memory.used_bytes
            held = dict(window._entries)
            if step == "get":
                ready = await read(window, ordinal)
                assert ready.position == window._ordinals.position(ordinal)
            elif step == "drop":
                window.drop_up_to(ordinal)
            else:
                window.release()
            assert memory.used_bytes == sum(each.size_bytes for each in windows)
            for each in windows:
                kept = each._entries.values()
                assert each.size_bytes == sum(one.size_bytes for one in kept)
                assert len(each.ordinal_of) == each.count
            if held.items() >= window._entries.items():
                assert memory.used_bytes <= before
                continue
            excess = max(SIZES) + 2 * ENTRY_OVERHEAD_BYTES
            spared = sum(
                max(one.size_bytes for one in each._entries.values())
                for each in windows
                if each.count and each is not window
            )
            assert memory.used_bytes <= max(BYTES_MAX, spared) + excess
        for each in windows:
            each.close()
        assert memory.used_bytes == 0

    trio.run(run)


async def test_a_window_that_is_not_used_gives_its_memory_to_those_in_use():
    memory = WindowMemory(40 * 1_600)
    sizes = [1_000] * 30
    idle, used = window_over(memory, sizes), window_over(memory, sizes)
    for ordinal in range(1, 31):
        await read(idle, ordinal)
    held = idle.count
    for ordinal in range(1, 31):
        await read(used, ordinal)
    assert idle.count < held
    assert used.count >= 18  # of the 40 that fit
    assert idle.count >= 1
    assert memory.used_bytes <= 40 * 1_600


async def test_a_read_under_way_when_a_broadcast_ends_keeps_nothing():
    memory = WindowMemory(BYTES_MAX)
    window = window_over(memory, [10] * 3)
    real = window._ledger.read

    async def slow(*arguments):
        entries = await real(*arguments)
        window.close()
        return entries

    window._ledger.read = slow
    window._ledger.read_nowait = lambda *_: None
    assert window.get(1) is None
    await window.read_next()
    assert (window.count, memory.used_bytes) == (0, 0)


async def test_entries_are_not_kept_when_the_last_consumer_has_left():
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        subscription = await world.open()
        one = await world.join("one")
        two = await world.join("two")
        positions = world.publish(20)
        await trio.testing.wait_all_tasks_blocked()
        assert received(one) == received(two) == positions
        subscription.remove_consumer(one)
        assert subscription.window.count > 0
        subscription.remove_consumer(two)
        assert subscription.window.count == 0
        again = await world.join("one", session=FakeSession())
        await trio.testing.wait_all_tasks_blocked()
        assert received(again) == positions
        nursery.cancel_scope.cancel()


async def test_epochs_that_clients_choose_take_bounded_memory():
    window = window_over(WindowMemory(BYTES_MAX), [10])
    ready = await read(window, 1)
    for epoch in range(10 * ENCODINGS_MAX):
        ready.keep(epoch, b"%d" % epoch)
        assert ready.encodings[epoch] == b"%d" % epoch
    assert len(ready.encodings) <= ENCODINGS_MAX
