"""Brokers that share the budget of a resource group, over sessions of one tree."""

from __future__ import annotations

import pytest

from broker.cluster.group_usage import USAGE_PATH, GroupUsage, parsed
from broker.limits.budget_shares import Usage
from metadata.memory_store import MemoryStore


class Budgets:
    """Uses what it is told to use."""

    def __init__(self):
        self.own = {}
        self.parts = {}

    def usage(self):
        return self.own

    def use_shares(self, parts):
        self.parts = dict(parts)


class Broker:
    def __init__(self, store, name):
        self.store = store
        self.budgets = Budgets()
        self.reports = GroupUsage(store, name, self.budgets)
        self.stop = store.watch(USAGE_PATH, self.reports._tell)

    def uses(self, used, is_held=False):
        self.budgets.own = {"g": Usage(used, is_held)}

    @property
    def part(self):
        return self.budgets.parts.get("g", 1.0)


@pytest.fixture
def brokers():
    first = MemoryStore()
    return [Broker(first, "a:1"), Broker(first.another_session(), "b:1")]


async def rounds(*brokers, count=3):
    for _ in range(count):
        for each in brokers:
            await each.reports.step()


async def test_a_broker_alone_has_the_whole_budget_and_writes_nothing_at_rest(brokers):
    a, b = brokers
    await rounds(a, b)
    assert (a.part, b.part) == (1.0, 1.0)
    assert await a.store.children(USAGE_PATH) == []
    a.uses(1.0, is_held=True)
    await rounds(a)
    assert a.part == 1.0


async def test_two_that_are_held_have_halves_and_one_that_ends_gives_its_part_back(brokers):
    a, b = brokers
    a.uses(1.0, is_held=True)
    b.uses(0.1, is_held=True)
    await rounds(a, b)
    assert (a.part, b.part) == (0.5, 0.5)
    b.budgets.own = {}
    await rounds(b, a)
    assert await a.store.children(USAGE_PATH) == ["a:1"]
    assert a.part == 1.0


async def test_a_broker_whose_session_ends_leaves_its_part_to_the_others(brokers):
    a, b = brokers
    for each in brokers:
        each.uses(0.5, is_held=True)
    await rounds(a, b)
    await b.store.aclose()
    await rounds(a)
    assert a.part == 1.0


async def test_a_report_of_an_earlier_session_is_replaced(brokers):
    a, b = brokers
    await b.store.put_ephemeral(f"{USAGE_PATH}/a:1", b"{}")
    a.uses(0.5, is_held=True)
    b.uses(0.5, is_held=True)
    await rounds(a, b)
    assert (a.part, b.part) == (0.5, 0.5)


async def test_small_changes_are_not_written(brokers):
    a, _ = brokers
    a.uses(0.5)
    await rounds(a)
    _, before = await a.store.get(f"{USAGE_PATH}/a:1")
    a.uses(0.52)
    await rounds(a)
    assert (await a.store.get(f"{USAGE_PATH}/a:1"))[1] == before
    a.uses(0.7)
    await rounds(a)
    assert (await a.store.get(f"{USAGE_PATH}/a:1"))[1] == before + 1


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"g": 1}', b'{"g": ["x", true]}'])
def test_a_report_that_cannot_be_read_reports_nothing(data):
    assert parsed(data) == {}
