"""One rule each, over a ledger in memory."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
import trio

from broker.topics.broadcast import broadcast_subscription as module
from broker.topics.broadcast.cursor_keeper import GRACE_SECONDS
from broker.topics.broadcast.statistics import CONSUMERS_PER_STEP
from broker.topics.broadcast.tests.world import opened, received, settle
from broker.topics.subscription.statistics import at_once
from broker.topics.subscription.sub_types import EXCLUSIVE, KEY_SHARED, SHARED
from broker.topics.subscription.tests.fakes import FakeSession, make_data
from ledgers.errors import EntryAbsent, EntryUnknown
from protocol.errors import BrokerError, ConsumerBusy, NotAllowed, ServerError


async def test_consumers_on_one_connection_share_one_write(autojump_clock):
    async with opened() as world:
        session = FakeSession()
        consumers = [await world.join(f"c{number}", session=session) for number in range(50)]
        [position] = world.publish()
        await settle()
        assert all(received(consumer) == [position] for consumer in consumers)
        assert session.writes == [50]


async def test_a_name_is_kept_as_long_over_a_restart_whatever_the_wall_clock_is_set_to(
    autojump_clock,
):
    for set_by_ms in (-900_000, 3_600_000):
        async with opened(broadcast_virtual_cursor_retention_minutes=10) as world:
            world.subscription.remove_consumer(await world.join("c"))
            await settle()
            world.subscription.keeper.changed()
            await world.subscription.close()
            world.clock.set_by_ms += set_by_ms
            await world.open()
            cursors = world.subscription.cursors
            left = cursors.deadline_of(cursors.slot_of("c")) - world.clock.now()
            assert GRACE_SECONDS <= left <= 600


async def test_a_consumer_without_permits_catches_up_and_costs_the_others_nothing(autojump_clock):
    async with opened() as world:
        session = FakeSession()
        quick = await world.join("quick", session=session)
        slow = await world.join("slow", session=session, flow=0)
        positions = world.publish(5)
        await settle()
        assert (received(quick), received(slow)) == (positions, [])
        assert "1 consumers without permits" in world.subscription.why_not_dispatching()
        world.subscription.flow(slow, 2)
        await settle()
        assert received(slow) == positions[:2]
        world.subscription.flow(slow, 100)
        await settle()
        assert received(slow) == positions
        world.publish()
        await settle()
        assert session.writes[-1] == 2  # both in one write again


async def test_what_is_not_in_memory_is_read_once_for_all_and_holds_up_nobody(autojump_clock):
    async with opened() as world:
        late = [await world.join(f"late{number}", earliest=True, flow=0) for number in range(20)]
        old = world.publish(8)
        world.ledger.cached_from = (1, 8)
        quick = await world.join("quick")
        for consumer in late:
            world.subscription.flow(consumer, 100)
        [new] = world.publish()
        await settle()
        assert received(quick) == [new]
        assert all(received(consumer) == [*old, new] for consumer in late)
        assert world.ledger.reads == 1


async def test_storage_that_fails_is_tried_again_and_named(autojump_clock):
    async with opened() as world:
        consumer = await world.join("a", flow=0)
        positions = world.publish(3)
        world.ledger.cached_from = (9, 0)
        world.ledger.read_error = "bookie is away"
        world.subscription.flow(consumer, 10)
        await trio.sleep(1)
        assert "bookie is away" in world.subscription.why_not_dispatching()
        world.ledger.read_error = None
        await trio.sleep(10)
        assert received(consumer) == positions


async def test_a_full_connection_waits_and_others_go_on(autojump_clock):
    async with opened() as world:
        full, free = FakeSession(writable=False), FakeSession()
        waiting = await world.join("waiting", session=full)
        served = await world.join("served", session=free)
        positions = world.publish(3)
        await settle()
        assert (received(waiting), received(served)) == ([], positions)
        full.writable = True
        world.subscription.on_writable(waiting)
        await settle()
        assert received(waiting) == positions


async def test_exclusive_is_redelivered_everything_in_order_and_shared_what_it_asked(
    autojump_clock,
):
    async with opened() as world:
        exclusive = await world.join("e", sub_type=EXCLUSIVE)
        shared = await world.join("s")
        positions = world.publish(4)
        await settle()
        world.ack(exclusive, positions[0], cumulative=True)
        world.ack(shared, positions[1])
        world.subscription.redeliver(exclusive, None, 5)
        world.subscription.redeliver(shared, positions[:3], -1)
        await settle()
        assert received(exclusive)[4:] == positions[1:]
        assert received(shared)[4:] == [positions[0], positions[2]]
        counts = [message.redelivery_count for message in shared.session.received]
        assert counts == [0, 0, 0, 0, 1, 1]
        assert [message.epoch for message in exclusive.session.received[4:]] == [5, 5, 5]
        world.subscription.redeliver(shared, None, -1)
        world.subscription.redeliver(shared, None, -1)  # nothing is out, so nothing counts
        await settle()
        last = shared.session.received[6:]
        assert [message.position for message in last] == [positions[0], positions[2], positions[3]]
        assert [message.redelivery_count for message in last] == [2, 2, 1]


async def test_part_of_a_batch_comes_again_with_what_is_left(autojump_clock):
    async with opened() as world:
        consumer = await world.join("a")
        [position] = world.publish(messages=3)
        await settle()
        world.ack(consumer, position, ack_set=(0b101,))
        world.subscription.remove_consumer(consumer)
        again = await world.join("a", flow=2)
        [following] = world.publish()
        await settle()
        first = again.session.received[0]
        assert (first.position, first.ack_set) == (position, (0b101,))
        assert received(again) == [position]  # its two messages used up the permits
        world.ack(again, position, ack_set=(0b010,))
        world.subscription.flow(again, 1)
        await settle()
        assert received(again) == [position, following]
        assert world.subscription.cursor.mark_delete == position


async def test_acks_that_make_no_sense_change_nothing(autojump_clock):
    async with opened() as world:
        consumer = await world.join("a")
        positions = world.publish(3)
        await settle()
        world.ack(consumer, positions[1], cumulative=True)
        for nonsense in ((1, 99), (77, 0), (1, -1), (0, 0), (2**63 - 1, 2**63 - 1)):
            world.ack(consumer, nonsense)
            world.ack(consumer, nonsense, cumulative=True)
        world.ack(consumer, positions[0], cumulative=True)
        assert world.subscription.cursor.mark_delete == positions[1]
        assert world.subscription.backlog_entries == 1


async def test_a_lost_consumer_resumes_until_its_time_is_over(autojump_clock):
    async with opened() as world:
        await world.join("stays")
        gone = await world.join("gone")
        positions = world.publish(2)
        await settle()
        world.ack(gone, positions[0])
        world.subscription.remove_consumer(gone)
        world.clock.ms += 59_000
        world.subscription.keeper.expire()
        again = await world.join("gone")
        await settle()
        assert received(again) == positions[1:]
        world.subscription.remove_consumer(again)
        stays = world.subscription.consumers[0]
        world.ack(stays, *positions)
        assert world.subscription.cursor.mark_delete == positions[0]
        world.clock.ms += 60_000
        await trio.sleep(2)  # the keeper looks every second
        assert world.subscription.cursor.mark_delete == positions[1]
        assert world.subscription.cursors.slot_of("gone") is None


async def test_unacked_messages_block_shared_until_half_is_acked(autojump_clock):
    async with opened(max_unacked_messages_per_consumer=4) as world:
        shared, exclusive = await world.join("s"), await world.join("e", sub_type=EXCLUSIVE)
        positions = world.publish(8)
        await settle()
        assert (len(received(shared)), len(received(exclusive))) == (4, 8)
        assert "1 consumers blocked on unacked" in world.subscription.why_not_dispatching()
        world.ack(shared, *positions[:2])
        await settle()
        assert len(received(shared)) == 6


async def test_refusals(autojump_clock):
    async with opened(max_consumers_per_subscription=2) as world:
        await world.join("a")
        with pytest.raises(ConsumerBusy, match="a name of its own"):
            await world.join("a")
        with pytest.raises(NotAllowed, match="2000 characters; a broadcast subscription keeps"):
            await world.join("n" * 2000)
        with pytest.raises(NotAllowed, match="Key_Shared has no meaning"):
            await world.join("k", sub_type=KEY_SHARED)
        await world.join("b")
        with pytest.raises(BrokerError, match="max consumers"):
            await world.join("c")


async def test_a_name_is_stored_before_its_consumer_is_answered(autojump_clock):
    async with opened() as world:
        world.ledger.client.failing = True
        await world.join("a")
        with pytest.raises(BrokerError, match="could not be stored"):
            await world.subscription.commit()
        world.ledger.client.failing = False
        await world.subscription.commit()
        await world.crash()
        assert world.subscription.cursors.slot_of("a") is not None


async def test_a_lost_snapshot_makes_unknown_names_start_at_the_main_cursor(autojump_clock):
    async with opened() as world:
        consumer = await world.join("a")
        await world.subscription.commit()
        positions = world.publish(3)
        await settle()
        world.ack(consumer, positions[0])
        for ledger_id in world.ledger.client.ledgers:
            world.ledger.client.ledgers[ledger_id] = None
        await world.crash()
        again = await world.join("a")
        await settle()
        assert received(again) == positions[1:]


async def test_a_snapshot_that_cannot_be_read_now_is_waited_for(autojump_clock):
    async with opened() as world:
        consumer = await world.join("a")
        await world.subscription.commit()
        positions = world.publish(3)
        await settle()
        world.ack(consumer, positions[1], cumulative=True)
        await trio.sleep(3)
        world.ledger.client.read_error = EntryUnknown("no bookie answers")
        with pytest.raises(BrokerError) as refused:
            await world.crash()
        assert refused.value.server_error == ServerError.ServiceNotReady
        world.ledger.client.read_error = None
        await world.open()
        again = await world.join("a")
        await settle()
        assert received(again) == positions[2:]


async def test_a_snapshot_that_is_proved_to_be_gone_is_lost(autojump_clock):
    async with opened() as world:
        consumer = await world.join("a")
        await world.subscription.commit()
        positions = world.publish(3)
        await settle()
        world.ack(consumer, positions[0])
        world.ledger.client.read_error = EntryAbsent("every bookie says so")
        await world.crash()
        again = await world.join("a")
        await settle()
        assert received(again) == positions[1:]


async def test_a_snapshot_that_stays_unreadable_is_given_up_by_force(autojump_clock):
    async with opened(force_recovery=True) as world:
        consumer = await world.join("a")
        await world.subscription.commit()
        positions = world.publish(3)
        await settle()
        world.ack(consumer, positions[0])
        world.ledger.client.read_error = EntryUnknown("its entry log is gone")
        await world.crash()
        again = await world.join("a")
        await settle()
        assert received(again) == positions[1:]
        world.ack(again, positions[1])
        await world.subscription.commit()
        world.ledger.client.read_error = None
        await world.crash()
        assert world.subscription.cursors.slot_of("a") is not None


async def test_a_broadcast_of_readers_ends_with_the_last_of_them(autojump_clock):
    async with opened(durable=False) as world:
        reader = await world.join("r", durable=False)
        world.subscription.remove_consumer(reader)
        assert world.abandoned == [world.subscription]


async def test_the_end_of_the_topic_is_told_when_everything_is_acked(autojump_clock):
    async with opened() as world:
        consumer = await world.join("a")
        [position] = world.publish()
        await settle()
        world.ledger.terminated = True
        world.subscription.topic_terminated()
        assert "ended" not in consumer.session.kinds()
        world.ack(consumer, position)
        assert "ended" in consumer.session.kinds()


async def test_statistics_name_the_slowest(autojump_clock):
    async with opened() as world:
        consumers = [await world.join(f"c{number:02}") for number in range(30)]
        positions = world.publish(3)
        await settle()
        for consumer in consumers[:-1]:
            world.ack(consumer, *positions)
        shown = world.subscription.statistics().as_json()
        assert (shown["type"], shown["consumersCount"]) == ("Broadcast", 30)
        assert shown["consumers"][0]["consumerName"] == "c29"
        assert len(shown["consumers"]) == 20
        assert shown["broadcast"]["slowestBacklog"] == 3
        assert shown["broadcast"]["fastestPosition"] == "1:2"
        assert shown["subscriptionProperties"] == {"vela.broadcast": "true"}
        assert world.handles[consumers[3]].statistics().messages_out == 3


async def test_closing_gives_others_a_turn_between_portions_of_the_consumers(
    autojump_clock, monkeypatch
):
    monkeypatch.setattr(module, "SENT_AWAY_PER_TURN", 10)
    async with opened() as world:
        consumers = [await world.join(f"c{number}") for number in range(95)]
        subscription = world.subscription
        left = []

        async def others():
            while subscription.attached:
                left.append(len(subscription.attached))
                world.publish()
                with pytest.raises(BrokerError, match="fenced"):
                    subscription.check_open()
                subscription.flow(consumers[-1], 1)
                subscription.remove_consumer(consumers[-2])  # its connection ends
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(subscription.close)
            while len(subscription.attached) == 95:
                await trio.lowlevel.checkpoint()
            nursery.start_soon(others)
        two_portions = 2 * 10 + 1  # as the loop's tasks take turns, and one that left by itself
        assert all(before - after <= two_portions for before, after in pairwise([*left, 0]))
        assert len(left) >= 2
        assert all(each.session.disconnected == [each] for each in consumers)


class CountedDict(dict):
    """Counts the consumers that are looked at."""

    looked_at = 0

    def get(self, key, default=None):
        self.looked_at += 1
        return super().get(key, default)

    def items(self):
        self.looked_at += len(self)
        return super().items()

    def values(self):
        self.looked_at += len(self)
        return super().values()


@pytest.mark.parametrize("ragged", [False, True])
async def test_statistics_of_many_consumers_are_made_in_steps(autojump_clock, ragged):
    async with opened() as world:
        sessions = [FakeSession() for _ in range(4)]
        consumers = [
            await world.join(f"c{number}", session=sessions[number % 4]) for number in range(1000)
        ]
        positions = world.publish(3)
        await settle()
        for number, consumer in enumerate(consumers):
            if ragged and number % 2:
                world.ack(consumer, positions[1])
            elif number != 567:
                world.ack(consumer, *positions[: number % 3])
        subscription = world.subscription
        attached = subscription.attached = CountedDict(subscription.attached)
        unacked = sum(map(subscription.groups.unacked, attached.values()))
        steps, most, before = subscription.statistics_in_steps(), 0, attached.looked_at
        shown = None
        while shown is None:
            try:
                next(steps)
            except StopIteration as end:
                shown = end.value
            most, before = max(most, attached.looked_at - before), attached.looked_at
        assert most <= CONSUMERS_PER_STEP
        assert shown.unacked_messages == unacked
        acked = subscription.cursors.acked
        slowest = sorted(attached, key=lambda each: acked[attached[each]])[:20]
        assert [row.consumer_name for row in shown.consumers] == [each.name for each in slowest]


async def test_consumers_that_leave_while_statistics_are_made_do_no_harm(autojump_clock):
    async with opened() as world:
        consumers = [await world.join(f"c{number}") for number in range(1000)]
        world.publish(3)
        await settle()
        steps = world.subscription.statistics_in_steps()
        for _ in range(5):
            next(steps)
        for consumer in consumers[10:]:
            world.subscription.remove_consumer(consumer)
        assert [row.consumer_name for row in at_once(steps).consumers] == [
            f"c{number}" for number in range(10)
        ]
        steps = world.subscription.statistics_in_steps()
        next(steps)
        await world.subscription.close()
        assert not at_once(steps).consumers


NO_METADATA = b"\x0e\x01\0\0\0\0" + (4).to_bytes(4, "big") + b"\xff\xff\xff\xff" + b"payload"


@pytest.mark.parametrize("sub_type", [EXCLUSIVE, SHARED])
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("withheld", [NO_METADATA, make_data(marker_type=22)])
async def test_an_entry_that_no_client_gets_is_acknowledged_for_everybody(
    autojump_clock, sub_type, alone, withheld
):
    async with opened() as world:
        session = FakeSession()
        consumers = [
            await world.join(f"c{number}", session=session, sub_type=sub_type, flow=0)
            for number in range(3)
        ]
        first = world.publish(3)
        if alone:  # one entry acknowledged out of order
            for consumer in consumers:
                world.ack(consumer, first[1])
        bad = world.ledger.append(withheld, withheld)
        last = world.publish(2)
        for consumer in consumers:
            world.subscription.flow(consumer, 1000)
        await settle()
        readable = [*first[:: 2 if alone else 1], *last]
        assert [received(consumer) for consumer in consumers] == [readable] * 3
        for consumer in consumers:
            world.ack(consumer, *readable)
        await settle()
        assert world.subscription.backlog_entries == 0
        assert world.subscription.mark_delete_position() == last[-1]
        assert bad[-1] < last[-1]


async def test_a_consumer_that_leaves_before_its_name_is_stored_is_not_answered_success(
    autojump_clock,
):
    async with opened() as world:
        stays, leaves = await world.join("stays"), await world.join("leaves")
        answers = {}
        for consumer in (stays, leaves):
            world.handles[consumer].when_kept(partial(answers.__setitem__, consumer))
        assert not answers
        world.handles[leaves].remove()
        await trio.sleep(1)
        assert answers[stays] is None
        assert "closed; try again" in str(answers[leaves])
