"""The node by which clients find a bookie: made, made again, moved, and waited for."""

import pytest
import trio
import trio.testing

from bookie.errors import BookieRefusesToStart
from bookie.process.registration import Endpoint, Registration
from metadata.memory_store import MemoryStore
from metadata.store import SessionState, VersionConflict
from protocol.bookkeeper import data_formats_pb2 as formats
from runtime.testing.conditions import eventually, eventually_answered

WRITABLE = "/ledgers/available/b1:3181"
READ_ONLY = "/ledgers/available/readonly/b1:3181"
ENDPOINTS = [Endpoint("bookie", "bookie-rpc", "b1", 3181)]


class Disk:
    writable = True

    def is_writable(self):
        return self.writable


@pytest.fixture
def disk():
    return Disk()


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def registration(store, disk):
    return Registration(store, "b1:3181", ENDPOINTS, disk.is_writable, trio.lowlevel.checkpoint)


async def nodes(store):
    return [path for path in (WRITABLE, READ_ONLY) if await store.get(path) is not None]


async def until_nodes(store, expected):
    async def is_reached():
        return await nodes(store) == expected

    await eventually_answered(is_reached)


async def test_a_bookie_is_known_with_its_endpoints(store, registration):
    await registration.register(60)
    stored, _version = await store.get(WRITABLE)
    info = formats.BookieServiceInfoFormat.FromString(stored)
    [endpoint] = info.endpoints
    assert (endpoint.id, endpoint.protocol) == ("bookie", "bookie-rpc")
    assert (endpoint.host, endpoint.port) == ("b1", 3181)
    await registration.unregister()
    assert await nodes(store) == []


async def test_it_is_ephemeral(store, registration):
    other = store.another_session()
    await registration.register(60)
    await store.aclose()
    assert await nodes(other) == []


async def test_a_full_disk_moves_it_to_the_read_only_ones_and_back(store, disk, registration):
    seen = []
    other = store.another_session()
    other.watch("/ledgers/available", lambda path: seen.append(path))
    await registration.register(60)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registration.run)
        disk.writable = False
        registration.changed()
        await until_nodes(store, [READ_ONLY])
        disk.writable = True
        registration.changed()
        await until_nodes(store, [WRITABLE])
        nursery.cancel_scope.cancel()
    # At every moment there was one of them.
    assert seen == [WRITABLE, READ_ONLY, WRITABLE, WRITABLE, READ_ONLY]


async def test_a_full_disk_at_start(store, disk, registration):
    disk.writable = False
    await registration.register(60)
    assert await nodes(store) == [READ_ONLY]


async def test_a_new_session_registers_again_with_other_content(store, registration):
    await registration.register(60)
    first, _version = await store.get(WRITABLE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registration.run)
        await trio.testing.wait_all_tasks_blocked()
        store.become(SessionState.LOST)
        assert registration.path == ""
        await trio.testing.wait_all_tasks_blocked()
        assert await nodes(store) == []
        store.become(SessionState.LIVE)
        await eventually(lambda: registration.path == WRITABLE)
        nursery.cancel_scope.cancel()
    again, _version = await store.get(WRITABLE)
    assert again != first


async def test_a_session_in_doubt_keeps_its_node(store, registration):
    await registration.register(60)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registration.run)
        store.become(SessionState.IN_DOUBT)
        await trio.testing.wait_all_tasks_blocked()
        assert registration.path == WRITABLE
        store.become(SessionState.LIVE)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert await nodes(store) == [WRITABLE]


async def test_the_node_of_a_former_session_is_waited_for(store, registration):
    former = store.another_session()
    await former.put_ephemeral(WRITABLE, b"")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registration.register, 20)
        await trio.testing.wait_all_tasks_blocked()
        assert registration.path == ""
        await former.aclose()
    assert registration.path == WRITABLE


async def test_a_store_out_of_reach_is_no_id_that_is_taken(store, registration, autojump_clock):
    store.become(SessionState.IN_DOUBT)
    with pytest.raises(BookieRefusesToStart, match="could not be reached for 30 s"):
        await registration.register(30)


async def test_an_id_that_is_taken_is_refused(store, registration):
    await store.another_session().put_ephemeral(WRITABLE, b"")
    with pytest.raises(BookieRefusesToStart, match="'b1:3181' is taken"):
        await registration.register(0.05)
    await registration.unregister()
    assert await nodes(store) == [WRITABLE]


async def test_a_node_that_somebody_deletes_is_made_again(store, registration):
    await registration.register(60)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registration.run)
        await trio.testing.wait_all_tasks_blocked()
        await store.another_session().delete(WRITABLE)
        await until_nodes(store, [WRITABLE])
        nursery.cancel_scope.cancel()


async def test_a_node_made_by_a_request_without_an_answer_is_our_own(store, registration):
    put_ephemeral = store.put_ephemeral

    async def unanswered(path, value):
        await put_ephemeral(path, value)
        raise VersionConflict("sent again by the library")

    store.put_ephemeral = unanswered
    await registration.register(60)
    assert registration.path == WRITABLE


async def test_an_end_stays_an_end(store, registration):
    await registration.register(60)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registration.run)
        await trio.testing.wait_all_tasks_blocked()
        await registration.unregister()
        with trio.move_on_after(0.1):
            await registration.run()
        nursery.cancel_scope.cancel()
    assert await nodes(store) == []


async def test_an_end_while_a_node_is_made_leaves_none(store, registration):
    """The request is under way when the bookie is told to end, and is answered afterwards."""
    put_ephemeral, asked, go_on = store.put_ephemeral, trio.Event(), trio.Event()

    async def slowly(path, value):
        asked.set()
        await go_on.wait()
        await put_ephemeral(path, value)

    store.put_ephemeral = slowly
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registration.run)
        await asked.wait()
        nursery.start_soon(registration.unregister)
        await trio.testing.wait_all_tasks_blocked()
        go_on.set()
    assert await nodes(store) == []


async def test_an_end_after_a_cancelled_request_deletes_what_it_made(store, registration):
    put_ephemeral, made = store.put_ephemeral, trio.Event()

    async def unanswered(path, value):
        await put_ephemeral(path, value)
        made.set()
        await trio.sleep_forever()

    store.put_ephemeral = unanswered
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registration.run)
        await made.wait()
        nursery.cancel_scope.cancel()
    await registration.unregister()
    assert await nodes(store) == []


async def test_an_end_between_two_states_deletes_both_nodes(store, disk, registration):
    await registration.register(60)
    put_ephemeral, made = store.put_ephemeral, trio.Event()

    async def unanswered(path, value):
        await put_ephemeral(path, value)
        made.set()
        await trio.sleep_forever()

    store.put_ephemeral = unanswered
    disk.writable = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registration.run)
        await made.wait()
        nursery.cancel_scope.cancel()
    assert await nodes(store) == [WRITABLE, READ_ONLY]
    await registration.unregister()
    assert await nodes(store) == []


async def test_an_end_spares_the_node_of_another_session(store, registration):
    await registration.register(60)
    await store.delete(WRITABLE)
    await store.another_session().put_ephemeral(WRITABLE, b"another bookie's")
    await registration.unregister()
    assert await nodes(store) == [WRITABLE]


async def test_an_end_does_not_wait_long_for_a_store_out_of_reach(
    store, registration, autojump_clock
):
    await registration.register(60)

    async def never(_path):
        await trio.sleep_forever()

    store.get = never
    with trio.fail_after(10):
        await registration.unregister()
