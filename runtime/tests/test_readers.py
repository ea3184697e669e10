"""One task reads for all connections: in order, in turns, and each failure is its own."""

from __future__ import annotations

import socket
import threading
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from itertools import pairwise

import pytest
import trio
import trio.testing

from runtime import patience, transport
from runtime import readers as module
from runtime.readers import Readers
from runtime.testing.conditions import SECONDS_MAX, eventually
from runtime.testing.taken_wait import wait_of_loop_is_taken
from runtime.transport import SocketTransport, Taken


class Pair:
    """A transport and the other side of its connection."""

    def __init__(self, readers):
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.peer = socket.create_connection(listening.getsockname())
            ours, _ = listening.accept()
        self.transport = SocketTransport(ours, "peer", readers)
        self.got = []

    def take(self, data):
        self.got.append(data)
        return Taken.WHOLE if data else Taken.STOP


@asynccontextmanager
async def running():
    """Pairs are made by the function that is given; all are closed at the end."""
    readers, pairs = Readers(), []

    def pair():
        pairs.append(Pair(readers))
        return pairs[-1]

    try:
        with trio.fail_after(SECONDS_MAX):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(readers.run)
                yield readers, nursery, pair
                nursery.cancel_scope.cancel()
    finally:
        for each in pairs:
            each.transport.close()
            each.peer.close()


async def test_what_comes_is_handed_over_in_order_until_the_other_side_closes():
    async with running() as (readers, _, new_pair):
        pair = new_pair()
        pair.peer.sendall(b"one")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.transport.receive_into, pair.take)
            await eventually(lambda: pair.got)
            pair.peer.sendall(b"two")
            await eventually(lambda: b"".join(pair.got) == b"onetwo")
            pair.peer.close()
        assert pair.got[-1] == b""
        assert len(readers) == 0


async def test_what_comes_after_a_refusal_waits_for_the_next_call():
    async with running() as (_readers, _, new_pair):
        pair = new_pair()
        pair.peer.sendall(b"one")

        def take_one(data):
            pair.got.append(data)
            return Taken.STOP

        await pair.transport.receive_into(take_one)
        pair.peer.sendall(b"two")
        await trio.testing.wait_all_tasks_blocked()
        assert pair.got == [b"one"]
        await pair.transport.receive_into(take_one)
        assert pair.got == [b"one", b"two"]


async def test_a_failure_reaches_the_task_of_its_connection_and_no_other():
    async with running() as (_readers, nursery, new_pair):
        bad, good = new_pair(), new_pair()
        nursery.start_soon(good.transport.receive_into, good.take)

        def fail(data):
            raise ValueError(f"cannot take {data!r}")

        bad.peer.sendall(b"x")
        with pytest.raises(ValueError, match="cannot take b'x'"):
            await bad.transport.receive_into(fail)
        good.peer.sendall(b"y")
        await eventually(lambda: good.got == [b"y"])


async def test_closing_wakes_who_receives_also_from_within():
    async with running() as (readers, _, new_pair):
        for close_within in (True, False):
            pair = new_pair()

            def take(data, pair=pair):
                pair.transport.close()
                return Taken.WHOLE if data else Taken.STOP

            if close_within:
                pair.peer.sendall(b"x")
            async with trio.open_nursery() as nursery:

                async def receive(pair=pair, take=take):
                    with pytest.raises(trio.BrokenResourceError):
                        await pair.transport.receive_into(take)

                nursery.start_soon(receive)
                await trio.testing.wait_all_tasks_blocked()
                pair.transport.close()
            with pytest.raises(trio.BrokenResourceError):
                await pair.transport.receive_into(take)
        assert len(readers) == 0


async def test_a_closed_transport_is_closed_for_everybody_however_often_it_is_asked():
    async with running() as (_readers, _, new_pair):
        for _ in range(3):
            transport = new_pair().transport
            transport.close()
            for _ in range(2):
                with pytest.raises(trio.BrokenResourceError):
                    await transport.receive()
                with pytest.raises(trio.BrokenResourceError):
                    await transport.send([b"x"])


async def test_leaving_late_does_not_disturb_who_has_the_number_now():
    async with running() as (readers, _, new_pair):
        pair, calls = new_pair(), []
        reading = pair.transport._socket

        def old():
            calls.append("old")
            return 0

        def new():
            calls.append(reading.recv(10))
            return 1

        readers.add(reading.fileno(), old)
        readers.remove(reading.fileno(), old)
        readers.add(reading.fileno(), new)
        readers.remove(reading.fileno(), old)
        pair.peer.sendall(b"x")
        await eventually(lambda: calls)
        assert calls == [b"x"]
        readers.remove(reading.fileno(), new)


async def test_everything_else_runs_between_readers_that_take_long(monkeypatch):
    monkeypatch.setattr(module, "TURN_SECONDS", 0.0)
    async with running() as (_readers, nursery, new_pair):
        pairs = [new_pair() for _ in range(5)]
        order = []
        for pair in pairs:
            pair.peer.sendall(b"x")

            def take(data, pair=pair):
                order.append(pair)
                return Taken.WHOLE

            nursery.start_soon(pair.transport.receive_into, take)

        async def others():
            while len(order) - order.count("others") < 5:
                order.append("others")
                await trio.lowlevel.checkpoint()

        nursery.start_soon(others)
        await eventually(lambda: all(pair in order for pair in pairs))
        called = [at for at, each in enumerate(order) if each != "others"]
        assert sum(order.count(pair) for pair in pairs) == 5
        assert any("others" in order[a:b] for a, b in pairwise(called))


async def test_what_is_left_of_a_piece_waits_its_turn_among_the_readers(monkeypatch):
    monkeypatch.setattr(module, "TURN_SECONDS", 0.0)
    async with running() as (_readers, nursery, new_pair):
        order = []
        turns = 20

        def take(data, name):
            order.append(name)
            assert (data is None) is (order.count(name) > 1)
            return Taken.IN_PART if order.count(name) < turns else Taken.WHOLE

        for name in range(3):
            pair = new_pair()
            pair.peer.sendall(b"many requests")
            nursery.start_soon(pair.transport.receive_into, partial(take, name=name))
        await eventually(lambda: len(order) == 3 * turns)
        all_here = max(order.index(name) for name in range(3)) + 1
        first_done = min(len(order) - order[::-1].index(name) for name in range(3))
        together = order[all_here : first_done - 1]
        assert len(together) > turns
        assert all(
            len(set(three)) == 3 for three in zip(*(together[at:] for at in range(3)), strict=False)
        )


async def test_a_reader_begins_with_what_it_left_when_it_stopped():
    async with running() as (_readers, _, new_pair):
        pair = new_pair()
        pieces = []

        def take(data):
            pieces.append(data)
            return Taken.STOP

        await trio.testing.wait_all_tasks_blocked()  # nothing comes that would wake the readers
        await pair.transport.receive_into(take, is_left=True)
        pair.peer.sendall(b"next")
        await pair.transport.receive_into(take)
        assert pieces == [None, b"next"]


async def test_who_reads_little_does_not_wait_for_all_who_read_much(monkeypatch):
    """Each call of those who read much takes a whole turn."""
    now = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    readers, calls, sockets = Readers(), [], []
    sizes = {"little": 1, **{f"much {number}": module.LITTLE_BYTES + 1 for number in range(4)}}
    try:
        for name, size in sizes.items():
            ours, peer = socket.socketpair()
            sockets += [ours, peer]

            def call(name=name, ours=ours, size=size):
                ours.recv(1)
                calls.append(name)
                now[0] += module.TURN_SECONDS if size > 1 else 0.0
                return size

            readers.add(ours.fileno(), call)
        peers = dict(zip(sizes, sockets[1::2], strict=True))

        def turns(count):
            for _ in range(count):
                readers._find()
                readers._call_found()

        for peer in peers.values():
            peer.send(b"1")
        turns(5)  # now it is known who reads much
        calls.clear()
        for name, peer in peers.items():
            peer.send(b"2" if name == "little" else b"22")
        turns(2)
        peers["little"].send(b"3")
        turns(1)
        assert calls.count("little") == 2
        assert len(calls) == 5  # and one of the others in each turn
        turns(6)
        assert sorted(set(calls)) == sorted(sizes)
    finally:
        for each in sockets:
            each.close()


async def test_calls_of_threads_keep_their_order_while_reading_begins_and_ends():
    readers, calls = Readers(), []
    wanted = list(range(3_000))

    def ask():
        for number in wanted:
            readers.run_sync_soon(calls.append, number)

    with trio.fail_after(SECONDS_MAX):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, ask)
            while len(calls) < len(wanted):
                with trio.move_on_after(0.001):
                    await readers.run()
                await trio.lowlevel.checkpoint()
    assert calls == wanted


async def test_a_call_of_a_thread_wakes_a_task_that_waits_for_sockets():
    readers, called = Readers(), trio.Event()
    with trio.fail_after(SECONDS_MAX):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(readers.run)
            await trio.testing.wait_all_tasks_blocked()
            await trio.to_thread.run_sync(readers.run_sync_soon, called.set)
            await called.wait()
            nursery.cancel_scope.cancel()


async def test_what_a_thread_wants_is_called_before_more_of_those_who_read_much(monkeypatch):
    monkeypatch.setattr(module, "TURN_SECONDS", 60.0)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    async with running() as (readers, nursery, new_pair):
        order = []

        def take(data):
            order.append("flood")
            if order.count("flood") in (20, 40):
                thread = threading.Thread(
                    target=readers.run_sync_soon, args=(order.append, "finished")
                )
                thread.start()
                thread.join()
            return Taken.IN_PART if len(order) < 100 else Taken.STOP

        for _ in range(3):
            flood = new_pair()
            flood.peer.sendall(b"x")
            nursery.start_soon(flood.transport.receive_into, take)
        await eventually(lambda: len(order) >= 100)
    assert [at for at, each in enumerate(order) if each == "finished"] == [20, 41]


async def test_strangers_hold_up_others_for_a_bounded_number_of_calls(monkeypatch):
    monkeypatch.setattr(module, "TURN_SECONDS", 60.0)  # only their number counts
    strangers_count, begun_after = 200, 5
    calls = []
    async with running() as (_readers, nursery, new_pair):
        known, strangers = new_pair(), [new_pair() for _ in range(strangers_count)]

        def take_known(data):
            calls.append("known")
            return Taken.STOP

        def take_of_stranger(data):
            calls.append("stranger")
            if len(calls) == begun_after:
                known.peer.sendall(b"x")
            return Taken.STOP

        for each in strangers:
            each.peer.sendall(b"x")
            each.transport.use_share(module.STRANGERS)
            nursery.start_soon(each.transport.receive_into, take_of_stranger)
        nursery.start_soon(known.transport.receive_into, take_known)
        await eventually(lambda: len(calls) == strangers_count + 1)
    waited = calls.index("known") - begun_after
    assert waited <= 2 * module.STRANGERS_PER_TURN_MAX


async def test_each_stranger_is_read_in_its_turn_and_is_one_no_more_afterwards():
    async with running() as (readers, nursery, new_pair):
        pairs = [new_pair() for _ in range(3 * module.STRANGERS_PER_TURN_MAX)]

        async def receive(pair):
            pair.transport.use_share(module.STRANGERS)
            await pair.transport.receive_into(lambda data: pair.got.append(data) or Taken.STOP)
            pair.transport.use_share("known")
            await pair.transport.receive_into(pair.take)

        for pair in pairs:
            nursery.start_soon(receive, pair)
        await eventually(lambda: len(readers) == len(pairs))
        for pair in pairs:
            pair.peer.sendall(b"first")
        await eventually(lambda: all(pair.got for pair in pairs))
        await eventually(lambda: len(readers) == len(pairs))
        for pair in pairs:
            pair.peer.sendall(b"second")
        await eventually(lambda: all(b"".join(pair.got) == b"firstsecond" for pair in pairs))


def unhurried(pair):
    """What comes after each piece is in no hurry."""

    def take(data):
        pair.got.append(data)
        return Taken.UNHURRIED if data else Taken.STOP

    return take


def all_is_reported(readers):
    """Nobody waits, and the next input of each is reported."""
    return not readers._patience and not readers._patience._unreported


async def test_what_is_in_no_hurry_is_read_together(monkeypatch):
    """Acknowledgements that trickle cost a call for six of them."""
    monkeypatch.setattr(transport, "PATIENCE_SECONDS", 0.2)
    async with running() as (readers, nursery, new_pair):
        pair = new_pair()
        nursery.start_soon(pair.transport.receive_into, unhurried(pair))
        pair.peer.sendall(b"one")
        await eventually(lambda: pair.got)
        pair.peer.sendall(b"two")
        await eventually(lambda: readers._patience)
        pair.peer.sendall(b"three")
        await eventually(lambda: len(pair.got) > 1)
        assert pair.got == [b"one", b"twothree"]


async def test_patience_is_that_of_one_connection_for_one_call(monkeypatch):
    monkeypatch.setattr(transport, "PATIENCE_SECONDS", 0.05)
    async with running() as (readers, nursery, new_pair):
        patient, other = new_pair(), new_pair()

        def take_patiently_once(data):
            patient.got.append(data)
            return Taken.UNHURRIED if len(patient.got) == 1 else Taken.WHOLE

        nursery.start_soon(patient.transport.receive_into, take_patiently_once)
        nursery.start_soon(other.transport.receive_into, other.take)
        patient.peer.sendall(b"one")
        await eventually(lambda: patient.got)
        monkeypatch.setattr(transport, "PATIENCE_SECONDS", 100.0)
        patient.peer.sendall(b"two")
        other.peer.sendall(b"other")
        await eventually(lambda: other.got)
        await eventually(lambda: len(patient.got) == 2)
        assert all_is_reported(readers)
        patient.peer.sendall(b"three")
        await eventually(lambda: len(patient.got) == 3)


async def test_what_is_in_no_hurry_does_not_wake_the_loop(monkeypatch):
    monkeypatch.setattr(transport, "PATIENCE_SECONDS", 0.2)
    async with running() as (readers, nursery, new_pair):
        pair = new_pair()
        nursery.start_soon(pair.transport.receive_into, unhurried(pair))
        pair.peer.sendall(b"one")
        await eventually(lambda: readers._patience)
        for _ in range(20):
            pair.peer.sendall(b"more")
            assert readers._epoll.poll(0) == []
        await eventually(lambda: len(pair.got) == 2)
        assert pair.got[1] == b"more" * 20
        await eventually(lambda: all_is_reported(readers))  # nothing more came
        pair.peer.sendall(b"again")
        await eventually(lambda: len(pair.got) == 3)


async def test_who_has_just_become_patient_does_not_end_the_wait_of_others(monkeypatch):
    async with running() as (readers, nursery, new_pair):
        long, short = new_pair(), new_pair()
        for pair, seconds in ((long, 100.0), (short, 0.02)):
            monkeypatch.setattr(transport, "PATIENCE_SECONDS", seconds)
            nursery.start_soon(pair.transport.receive_into, unhurried(pair))
            pair.peer.sendall(b"one")
            await eventually(lambda pair=pair: pair.got)
            pair.peer.sendall(b"two")
        await eventually(lambda: len(short.got) == 2)
        assert long.got == [b"one"]
        assert len(readers._patience) == 2


async def test_those_whose_times_are_near_are_read_together(monkeypatch):
    monkeypatch.setattr(patience, "TOGETHER_SECONDS", 200.0)
    async with running() as (_readers, nursery, new_pair):
        long, short = new_pair(), new_pair()
        for pair, seconds in ((long, 100.0), (short, 0.02)):
            monkeypatch.setattr(transport, "PATIENCE_SECONDS", seconds)
            nursery.start_soon(pair.transport.receive_into, unhurried(pair))
            pair.peer.sendall(b"one")
            await eventually(lambda pair=pair: pair.got)
            pair.peer.sendall(b"two")
        await eventually(lambda: len(short.got) == len(long.got) == 2)


async def test_a_peer_that_closes_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(transport, "PATIENCE_SECONDS", 100.0)
    async with running() as (readers, _, new_pair):
        pair = new_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.transport.receive_into, unhurried(pair))
            pair.peer.sendall(b"one")
            await eventually(lambda: pair.got)
            pair.peer.sendall(b"two")
            await eventually(lambda: readers._patience)
            pair.peer.close()
        assert b"".join(pair.got) == b"onetwo"
        assert all_is_reported(readers)


async def test_who_leaves_while_its_call_is_put_off_is_forgotten(monkeypatch):
    monkeypatch.setattr(transport, "PATIENCE_SECONDS", 100.0)
    async with running() as (readers, nursery, new_pair):
        pair = new_pair()

        async def receive():
            with pytest.raises(trio.BrokenResourceError):
                await pair.transport.receive_into(unhurried(pair))

        nursery.start_soon(receive)
        pair.peer.sendall(b"one")
        await eventually(lambda: readers._patience)
        pair.peer.sendall(b"two")
        await eventually(lambda: readers._patience)
        pair.transport.close()
        assert all_is_reported(readers)


async def test_what_was_put_off_is_read_when_reading_begins_again(monkeypatch):
    monkeypatch.setattr(transport, "PATIENCE_SECONDS", 100.0)
    with trio.fail_after(SECONDS_MAX):
        async with trio.open_nursery() as nursery:
            readers = Readers()
            pair = Pair(readers)
            nursery.start_soon(pair.transport.receive_into, unhurried(pair))
            async with trio.open_nursery() as reading:
                reading.start_soon(readers.run)
                pair.peer.sendall(b"one")
                await eventually(lambda: pair.got)
                pair.peer.sendall(b"two")
                await eventually(lambda: readers._patience)
                reading.cancel_scope.cancel()
            nursery.start_soon(readers.run)
            await eventually(lambda: len(pair.got) == 2)
            nursery.cancel_scope.cancel()
        pair.peer.close()
        pair.transport.close()


async def test_long_work_has_one_step_in_a_turn_of_short_calls(monkeypatch):
    """Both with the readers in the wait of the loop and with a task for them."""
    monkeypatch.setattr(module, "monotonic", lambda: 0.0)
    for way in (nullcontext(), wait_of_loop_is_taken()):
        async with way, running() as (readers, nursery, new_pair):
            pair, steps = new_pair(), []
            nursery.start_soon(pair.transport.receive_into, pair.take)
            await trio.testing.wait_all_tasks_blocked()

            def step(name, pair=pair, steps=steps):
                steps.append(name)
                if len(steps) == 3:
                    pair.peer.sendall(b"x")
                if len(steps) > 3:  # what comes meanwhile is read before the next step
                    assert pair.got == [b"x"]
                return steps.count(name) < 4

            readers.call_in_turns(partial(step, "a"))
            readers.call_in_turns(partial(step, "b"))
            assert steps == []
            await eventually(lambda steps=steps: len(steps) == 8)
            assert steps == ["a", "b"] * 4
            await trio.testing.wait_all_tasks_blocked()
            assert not readers._is_busy()
