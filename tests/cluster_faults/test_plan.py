"""Plans repeat, are fit for their kinds, and are done in an order that can be interrupted."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from tests.cluster_faults.faults import FAULTS
from tests.cluster_faults.plan import (
    CUTS,
    FOLLOWED,
    FOLLOWERS,
    KINDS,
    Plan,
    Times,
    brokers_of,
    plan_of,
    rounds_left,
)

TIMES = Times()


def plan(kind: str, seed: int) -> Plan:
    return plan_of(kind, seed, Random(f"{kind} {seed}"), TIMES)


def test_every_kind_can_be_made() -> None:
    assert FAULTS.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_one_plan_and_others_give_others(kind: str) -> None:
    plans = [plan(kind, seed) for seed in range(100)]
    assert plans == [plan(kind, seed) for seed in range(100)]
    assert len({each.instant_ms for each in plans}) > 50
    assert {each.topic for each in plans} == {0, 1, 2, 3}
    assert Counter(each.quorums for each in plans) == {"3/2/2": 50, "2/2/2": 50}


@pytest.mark.parametrize("kind", ["bookie-stopped", *CUTS])
def test_silence_lasts_longer_than_the_add_timeout(kind: str) -> None:
    lasting = [plan(kind, seed).lasting_ms / 1_000 for seed in range(100)]
    assert min(lasting) > TIMES.add_timeout_seconds
    if kind == "bookie-stopped":
        assert max(lasting) > TIMES.bookie_session_seconds


def test_zookeeper_is_away_for_less_and_for_more_than_a_session() -> None:
    lasting = [plan("zookeeper-killed", seed).lasting_ms / 1_000 for seed in range(100)]
    assert min(lasting) < TIMES.broker_session_seconds < max(lasting)


def test_followers_need_a_broker_each_and_any_share_may_leave_holes() -> None:
    assert KINDS.keys() > FOLLOWED
    for kind in FOLLOWED:
        plans = [plan(kind, seed) for seed in range(100)]
        assert {each.brokers for each in plans} == {1 + FOLLOWERS}
        assert {each.holes_at for each in plans} == {0, 1, 2, 3}
        assert {each.topic % FOLLOWERS for each in plans} == set(range(FOLLOWERS))


def test_rounds_with_and_without_followers_change_clusters_seldom() -> None:
    left = rounds_left(["bookie-killed", "follower-killed", "disk-full"], range(12), [])
    assert len(left) == len(set(left)) == 36
    shapes = [(brokers_of(kind), seed % 2) for kind, seed in left]
    assert sum(a != b for a, b in pairwise(shapes)) == 7


def test_what_is_left_to_do_goes_through_all_kinds_and_few_clusters() -> None:
    kinds = ["bookie-killed", "disk-full"]
    left = rounds_left(kinds, range(12), [("disk-full", 0)])
    assert len(left) == len(set(left)) == 23
    assert left[:3] == [("bookie-killed", 0), ("bookie-killed", 2), ("disk-full", 2)]
    parities = [seed % 2 for _, seed in left]
    assert sum(a != b for a, b in pairwise(parities)) == 3
