"""Faults, drawn from the seed: what is disturbed, when, and for how long. All of them heal."""

from __future__ import annotations

from collections import Counter
from functools import partial

import trio

from broker.cluster.splitter import RANGE_EQUALLY
from metadata.store import SessionState
from tests.simulation.coordination import HOST as METADATA
from tests.simulation.coordination import SESSION_SECONDS
from tests.simulation.nodes import JOURNAL, LEDGERS
from tests.simulation.world import trace

FAULTS_MIN = 5
FAULTS_MAX = 9
BEGIN_SECONDS = 2.0
END_SECONDS = 26.0


class NotNow(Exception):
    """The fault has no effect at the moment."""


class Faults:
    """Run it with `await run()`: it returns when everything is healed."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.marks = cluster.marks
        self.network = cluster.network
        self.rng = cluster.world.chance("faults")
        self.done = []
        """(time, text) of every fault."""
        self.kinds = Counter()
        """How often each kind happened, by its name."""
        self.disturbed = []
        """When each began and had healed."""

    async def run(self):
        rng = self.rng
        count = rng.randint(FAULTS_MIN, FAULTS_MAX)
        times = sorted(rng.uniform(BEGIN_SECONDS, END_SECONDS) for _ in range(count))
        async with trio.open_nursery() as nursery:
            for when in times:
                await trio.sleep_until(self.cluster.began_at + when)
                nursery.start_soon(self._one)

    async def _one(self):
        while True:
            kind = self.rng.choices(tuple(KINDS), tuple(KINDS.values()))[0]
            began = trio.current_time()
            try:
                await kind(self)
                self.kinds[kind.__name__] += 1
                self.disturbed.append((began, trio.current_time()))
                return
            except NotNow:
                await trio.sleep(0.05)

    def note(self, text):
        """A fault begins."""
        trace(f"FAULT {text}")
        self.done.append((trio.current_time(), text))

    def bookie(self):
        return self.rng.choice(self.cluster.bookies)

    def broker(self):
        return self.rng.choice(self.cluster.brokers)

    def owner(self):
        """The broker that serves a drawn topic, or any."""
        topic = self.rng.choice(self.cluster.topics)
        owners = [each for each in self.cluster.brokers if each.serves(topic)]
        return (owners[0] if owners else self.broker()), topic

    async def down(self, node, seconds, *, is_silent):
        """Crash, and start after some time."""
        if not node.is_wanted:
            raise NotNow
        await node.stop(is_silent=is_silent)
        await trio.sleep(seconds)
        node.start()

    async def pause(self, node, seconds):
        """SIGSTOP and SIGCONT."""
        node.host.pause()
        await trio.sleep(seconds)
        node.host.resume()
        trace(f"{node.name} resumes")

    async def cut(self, pairs, seconds):
        """Hold back what goes from the first to the second of each pair."""
        heals = [self.network.cut(*pair) for pair in pairs]
        await trio.sleep(seconds)
        for heal in heals:
            heal()
        trace(f"healed {pairs}")

    def seconds(self):
        """How long something lasts: short, about as long as time-outs, or longer than all."""
        return self.rng.choice((0.2, 1.0, 2.5, SESSION_SECONDS + 1, 8.0)) * self.rng.uniform(
            0.7, 1.3
        )

    # --- kinds --------------------------------------------------------------------------

    async def bookie_crash(self):
        node, is_silent, seconds = self.bookie(), self.rng.random() < 0.6, self.seconds()
        if not node.is_wanted:
            raise NotNow
        if self.rng.random() < 0.5 and not node.power.is_off:
            node.power.crash_after = node.power.operations + self.rng.randint(1, 40)
            self.note(f"{node.name} loses its power in the middle of something")
            starts = node.starts
            with trio.move_on_after(5):
                while node.starts == starts and node.is_wanted:  # noqa: ASYNC110
                    await trio.sleep(0.1)
            return
        self.note(f"{node.name} crashes for {seconds:.1f} s")
        await self.down(node, seconds, is_silent=is_silent)

    async def broker_crash(self):
        node = self.owner()[0]
        is_silent, seconds = self.rng.random() < 0.4, self.seconds()
        if not node.is_wanted:
            raise NotNow
        self.note(f"{node.name} crashes for {seconds:.1f} s")
        await self.down(node, seconds, is_silent=is_silent)

    async def broker_leaves(self):
        node = self.owner()[0]
        if not node.is_wanted:
            raise NotNow
        self.note(f"{node.name} is stopped in order")
        await node.leave()
        await trio.sleep(self.rng.uniform(0.5, 3))
        node.start()

    async def bookie_pause(self):
        node, seconds = self.bookie(), self.seconds()
        self.note(f"{node.name} is paused for {seconds:.1f} s")
        await self.pause(node, seconds)

    async def broker_pause(self):
        node, seconds = self.owner()[0], self.seconds()
        self.note(f"{node.name} is paused for {seconds:.1f} s")
        await self.pause(node, seconds)

    async def partition(self):
        rng = self.rng
        names = [node.name for node in (*self.cluster.brokers, *self.cluster.bookies)]
        names += [METADATA, "patient", "impatient", "consumers"]
        one = rng.choice(names[:6])
        others = rng.sample([name for name in names if name != one], rng.choice((1, 1, 2, 3, 8)))
        pairs = [(one, other) for other in others]
        if rng.random() < 0.6:
            pairs += [(other, one) for other in others]
        elif rng.random() < 0.5:
            pairs = [(other, one) for other in others]
        seconds = self.seconds()
        self.note(f"cut {pairs} for {seconds:.1f} s")
        await self.cut(pairs, seconds)

    async def lost_session(self):
        """The servers end a session while its owner cannot reach them."""
        node = self.owner()[0] if self.rng.random() < 0.7 else self.bookie()
        store = node.store
        if store is None or store.session_state is not SessionState.LIVE or node.host.is_paused:
            raise NotNow
        self.note(f"{node.name} loses its session")
        number = store.session_number
        store.lose_connection()
        self.cluster.service.end(number)

    async def metadata_stops(self):
        seconds = self.seconds()
        self.note(f"the metadata store stops for {seconds:.1f} s")
        self.cluster.service.host.pause()
        await trio.sleep(seconds)
        self.cluster.service.host.resume()

    async def disk_full(self):
        node, seconds = self.bookie(), self.seconds()
        self.note(f"the disk of {node.name} is full for {seconds:.1f} s")
        disk = node.disk
        disk.free_bytes = self.rng.choice((0, 20_000, 100_000))
        disk.total_bytes = 10_000_000
        await trio.sleep(seconds)
        is_read_only = node.is_up and not node.bookie.is_writable()
        self.marks.note("a full bookie was read-only", is_read_only)
        for each in (disk, node.disk):
            each.free_bytes, each.total_bytes = None, 1 << 40

    async def lost_disk(self):
        """A machine comes back with empty disks in place of some of its own. A bookie that started
        on them would deny entries that it has confirmed. Then the disks are found again."""
        rng, node = self.rng, self.bookie()
        lost = rng.choice(((JOURNAL,), (LEDGERS,), (JOURNAL, LEDGERS)))
        if not node.is_wanted or not node.is_up:
            raise NotNow
        self.note(f"{node.name} crashes and comes back without {' and '.join(lost)}")
        await node.stop(is_silent=True)
        bring_back = node.lose_directories(lost)
        await trio.sleep(rng.uniform(0.1, 1.0))
        starts = node.starts
        node.start()
        until = trio.current_time() + rng.uniform(1.0, 4.0)
        while trio.current_time() < until:
            await trio.sleep(0.1)
            if node.is_up:
                self.cluster.fail(f"{node.name} has started without {' and '.join(lost)}")
                return
        self.marks.note("a start on lost disks was refused", node.starts - starts)
        await node.stop(is_silent=True)
        bring_back()
        await trio.sleep(rng.uniform(0.0, 0.5))
        node.start()

    async def blackout(self):
        """All bookies lose their power at once, and perhaps the owner of a topic, too."""
        rng, nodes = self.rng, list(self.cluster.bookies)
        if rng.random() < 0.5:
            nodes.append(self.owner()[0])
        if not all(node.is_wanted for node in nodes):
            raise NotNow
        self.note(f"{' '.join(node.name for node in nodes)} lose their power")
        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(partial(node.stop, is_silent=True))
        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(self._start_after, node, rng.uniform(0.1, 3.0))

    async def _start_after(self, node, seconds):
        await trio.sleep(seconds)
        node.start()

    async def clock_jumps(self):
        """The date of a machine is wrong for a time."""
        node = self.rng.choice((*self.cluster.bookies, *self.cluster.brokers))
        by_ms = int(self.rng.choice((-1, 1)) * self.rng.choice((700, 10_000, 3.6e6, 8.64e7, 3e9)))
        seconds = self.seconds()
        self.note(f"the clock of {node.name} jumps by {by_ms} ms for {seconds:.1f} s")
        node.clock.wrong_by_ms += by_ms
        await trio.sleep(seconds)
        node.clock.wrong_by_ms -= by_ms

    async def disk_fails(self):
        node, seconds = self.bookie(), self.seconds()
        self.note(f"the disk of {node.name} fails")
        node.disk.sync_fails = True
        await trio.sleep(seconds)
        node.disk.sync_fails = False

    async def unload(self):
        node, topic = self.owner()
        ownership = node.ownership
        if ownership is None or node.host.is_paused:
            raise NotNow
        self.note(f"{node.name} unloads the bundle of {topic.full}")
        for bundle in list(ownership._owners.of_namespace("public/default")):
            if bundle.contains(topic):
                await node.do(ownership._owners.release, bundle)

    async def split(self):
        node, topic = self.owner()
        ownership = node.ownership
        if ownership is None or node.host.is_paused:
            raise NotNow
        for bundle in list(ownership._owners.of_namespace("public/default")):
            if bundle.contains(topic):
                self.note(f"{node.name} splits {bundle.name}")
                split = partial(ownership.split_bundle, unload=self.rng.random() < 0.5)
                await node.do(split, "public/default", bundle.range_text, RANGE_EQUALLY)
                return
        raise NotNow

    async def stale_owner(self):
        """The owner of a topic stands still while another broker takes the topic over; then bookies
        restart, and the first owner goes on where it was. What clients sent to it arrives a little
        later. Mostly its clock stood still, too, as that of a suspended machine does: only fences
        keep it from writing then."""
        rng = self.rng
        node, topic = self.owner()
        if not node.is_wanted or node.host.is_paused:
            raise NotNow
        self.note(f"{node.name} is paused until {topic.full} is served by another, bookies restart")
        heals = [self.network.cut(client, node.name) for client in ("patient", "impatient")]
        await trio.sleep(rng.choice((0.0, 0.1)))  # then nothing is under way to the bookies
        node.host.pause()
        store, paused_at = node.store, node.host.paused_at
        with trio.move_on_after(SESSION_SECONDS + 6):
            while not self._is_open_elsewhere(node, topic):  # noqa: ASYNC110
                await trio.sleep(0.1)
        await trio.sleep(rng.choice((0.0, 0.3)))
        restarted = rng.sample(self.cluster.bookies, rng.choice((1, 2, 3, 3)))
        async with trio.open_nursery() as nursery:
            for bookie in restarted:
                nursery.start_soon(self._restart, bookie, rng.uniform(0, 0.5))
        await trio.sleep(rng.choice((0.0, 0.2, 0.5)))
        if rng.random() < 0.7 and store is node.store:
            store.stand_still_since(paused_at)
        node.host.resume()
        trace(f"{node.name} resumes")
        await trio.sleep(rng.choice((0.0, 0.12, 0.15, 0.2, 0.3)))
        for heal in heals:
            heal()
        trace("what was sent to it arrives")

    async def slow_bookie_and_crash(self):
        """A bookie answers late, and the owner of a topic crashes meanwhile. The bookie may crash,
        too, and lose what it was sent: entries that it alone lacks, and others that follow them."""
        node, bookie = self.owner()[0], self.bookie()
        if not (node.is_wanted and bookie.is_wanted) or bookie.host.is_paused:
            raise NotNow
        crashes = self.rng.random() < 0.7
        self.note(f"{bookie.name} stands still, then {node.name} crashes, {crashes=}")
        bookie.host.pause()
        await trio.sleep(self.rng.uniform(0.05, 1.2))
        if node.is_wanted:
            await node.stop(is_silent=self.rng.random() < 0.3)
        if crashes and bookie.is_wanted:
            await bookie.stop(is_silent=self.rng.random() < 0.3)
        bookie.host.resume()
        if not bookie.is_wanted:
            await trio.sleep(self.rng.uniform(0.0, 0.3))
            bookie.start()
        await trio.sleep(self.seconds())
        node.start()

    async def two_recoveries(self):
        """The owner of a topic crashes. The broker that recovers the ledgers is paused meanwhile,
        until its session is over and another broker recovers the same ledger. Then both do. A
        bookie may fail, too."""
        rng, node = self.rng, self.owner()[0]
        if not node.is_wanted or node.host.is_paused:
            raise NotNow
        self.note(f"{node.name} crashes, and who recovers its ledgers is paused")
        await node.stop(is_silent=rng.random() < 0.5)
        await self._while_recovering(self._second_recovery)
        node.start()

    async def _second_recovery(self, ledger_id, host):
        rng = self.rng
        host.pause()
        began = trio.current_time()
        with trio.move_on_after(2 * SESSION_SECONDS + 6):
            while len(self.marks.recovering.get(ledger_id, ())) < 2:
                await self.marks.recovery_began.wait()
        await trio.sleep(rng.choice((0.0, 0.0, 0.004, 0.02, 0.1)))
        trace(f"{host.name} goes on, {trio.current_time() - began:.1f} s after it was paused")
        if rng.random() < 0.4:
            bookie = self.bookie()
            if bookie.is_wanted:
                await bookie.stop(is_silent=rng.random() < 0.5)
                self.cluster.nursery.start_soon(self._start_after, bookie, rng.uniform(0.2, 3.0))
        host.resume()

    async def recovery_without_bookie(self):
        """The owner of a topic crashes, and a bookie stands still or crashes while the ledgers are
        recovered."""
        rng, node, bookie = self.rng, self.owner()[0], self.bookie()
        if not (node.is_wanted and bookie.is_wanted) or bookie.host.is_paused:
            raise NotNow
        self.note(f"{node.name} crashes, and {bookie.name} while its ledgers are recovered")

        async def disturb(_ledger_id, _host):
            if rng.random() < 0.5:
                await self.pause(bookie, self.seconds())
            elif bookie.is_wanted:
                await self.down(bookie, self.seconds(), is_silent=rng.random() < 0.6)

        await node.stop(is_silent=rng.random() < 0.3)
        await self._while_recovering(disturb)
        node.start()

    async def _while_recovering(self, disturb):
        """`await disturb(ledger id, host)` a little after a broker has begun to recover a ledger,
        unless that has ended, or nothing is recovered for long."""
        with trio.move_on_after(SESSION_SECONDS + 4):
            await self.marks.recovery_began.wait()
            if self.rng.random() < 0.7:
                await trio.sleep(self.rng.choice((0.002, 0.004, 0.008, 0.02)))
        for ledger_id, hosts in self.marks.recovering.items():
            if not hosts[0].is_paused:
                await disturb(ledger_id, hosts[0])
                return

    async def _restart(self, bookie, delay):
        await trio.sleep(delay)
        if not bookie.is_wanted:
            return
        await self.down(bookie, self.rng.uniform(0.1, 0.6), is_silent=self.rng.random() < 0.7)

    def _is_open_elsewhere(self, node, topic):
        return any(
            other is not node and other.service is not None and topic.full in other.service.topics
            for other in self.cluster.brokers
        )

    async def cut_off_owner(self):
        """The owner of a topic is cut off from the metadata store, and not from anything else."""
        node = self.owner()[0]
        seconds = SESSION_SECONDS * self.rng.uniform(0.5, 2.5)
        pairs = [(node.name, METADATA), (METADATA, node.name)]
        self.note(f"{node.name} does not reach the metadata store for {seconds:.1f} s")
        await self.cut(pairs, seconds)


KINDS = {
    Faults.bookie_crash: 4,
    Faults.broker_crash: 3,
    Faults.broker_leaves: 1,
    Faults.bookie_pause: 2,
    Faults.broker_pause: 3,
    Faults.partition: 4,
    Faults.lost_session: 2,
    Faults.metadata_stops: 1,
    Faults.disk_full: 1,
    Faults.disk_fails: 1,
    Faults.lost_disk: 1,
    Faults.blackout: 1,
    Faults.clock_jumps: 1,
    Faults.two_recoveries: 2,
    Faults.recovery_without_bookie: 2,
    Faults.unload: 1,
    Faults.split: 1,
    Faults.stale_owner: 4,
    Faults.slow_bookie_and_crash: 3,
    Faults.cut_off_owner: 2,
}
"""Every kind, and its weight."""
