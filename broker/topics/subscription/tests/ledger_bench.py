"""A subscription over a real managed ledger, on a bookie in memory."""

from __future__ import annotations

from dataclasses import replace

import trio.testing

from broker.ground.entry import Entry
from broker.topics.subscription.tests.fakes import Bench, TrioClock, make_data


class TopicListener:
    def __init__(self, bench):
        self.bench = bench

    def on_appended(self, entries, contexts):
        for entry in entries:
            self.bench.on_entry(entry)
        if self.bench.subscription is not None:
            self.bench.subscription.tail_moved()

    def on_append_failed(self, context, error):
        raise error

    def on_fenced(self):
        raise AssertionError("the ledger is fenced")


class LedgerBench(Bench):
    """A Bench whose ledger is a real one."""

    def __init__(self, nursery, ledger, **config):
        super().__init__(nursery, TrioClock(), **config)
        self.ledger = ledger
        ledger.listener = TopicListener(self)
        self.context = replace(self.context, ledger=ledger)

    async def publish(self, count, **fields):
        return await self.publish_data(*[make_data(sequence_id=n, **fields) for n in range(count)])

    async def publish_data(self, *datas):
        entries = [Entry(data) for data in datas]
        for entry in entries:
            entry.messages()
            self.ledger.append(entry, None)
            await settle()
        return [entry.position for entry in entries]


async def settle():
    for _ in range(3):
        await trio.testing.wait_all_tasks_blocked()
