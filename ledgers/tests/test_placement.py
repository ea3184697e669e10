"""Placement: what every choice must be, and that a choice with enough racks is found."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgers.errors import NotEnoughBookies
from ledgers.placement import (
    PlacementRules,
    RackMap,
    choose_ensemble,
    choose_replacements,
    parse_rack_map,
)
from protocol.bookkeeper.ledger_layout import write_set

IDS = [f"b{number}:3181" for number in range(6)]


@st.composite
def clusters(draw):
    available = draw(st.permutations(IDS))[: draw(st.integers(1, len(IDS)))]
    racks = {each: f"/region{draw(st.integers(0, 1))}/r{draw(st.integers(0, 2))}" for each in IDS}
    groups = {name: frozenset(draw(st.sets(st.sampled_from(IDS)))) for name in ("a", "b")}
    ensemble = draw(st.integers(1, 4))
    return available, RackMap(racks, groups), ensemble, draw(st.integers(1, ensemble))


RULES = st.builds(
    PlacementRules,
    is_rack_aware=st.booleans(),
    is_region_aware=st.booleans(),
    racks_min=st.integers(1, 3),
    are_racks_enforced=st.booleans(),
    isolation_groups=st.sampled_from([frozenset(), frozenset({"a"}), frozenset({"gone"})]),
    secondary_isolation_groups=st.sampled_from([frozenset(), frozenset({"b"})]),
)


def racks_per_write_set(chosen, write, racks):
    return min(
        len({racks.rack_of(chosen[index]) for index in write_set(first, len(chosen), write)})
        for first in range(len(chosen))
    )


def allowed(available, racks, rules, exclude):
    found = [each for each in available if each not in exclude]
    if rules.isolation_groups:
        groups = rules.isolation_groups | rules.secondary_isolation_groups
        found = [each for each in found if each in racks.members(groups)]
    return found


@given(clusters(), RULES, st.sets(st.sampled_from(IDS)), st.sets(st.sampled_from(IDS)))
def test_an_ensemble_is_what_the_rules_allow(cluster, rules, exclude, avoid):
    available, racks, ensemble, write = cluster
    usable = allowed(available, racks, rules, exclude)
    wanted = min(rules.racks_min, write)
    can_spread = any(
        racks_per_write_set(each, write, racks) >= wanted
        for each in itertools.permutations(usable, ensemble)
    )
    must_spread = rules.is_rack_aware and rules.are_racks_enforced
    try:
        chosen = choose_ensemble(
            ensemble, write, available, racks, rules, exclude=exclude, avoid=avoid
        )
    except NotEnoughBookies:
        assert len(usable) < ensemble or (must_spread and not can_spread)
        return
    assert len(set(chosen)) == len(chosen) == ensemble
    assert set(chosen) <= set(usable)
    if must_spread or (rules.is_rack_aware and can_spread and not rules.isolation_groups | avoid):
        assert racks_per_write_set(chosen, write, racks) >= wanted
    if not (rules.is_rack_aware or rules.is_region_aware):
        healthy = [each for each in usable if each not in avoid]
        if len(healthy) >= ensemble and not rules.isolation_groups:
            assert chosen == tuple(healthy[:ensemble])
    if len(set(usable) - avoid) >= ensemble and not rules.isolation_groups and not must_spread:
        assert not avoid & set(chosen)


@given(clusters(), RULES, st.data())
def test_a_replacement_changes_the_failed_places_only(cluster, rules, data):
    available, racks, ensemble, write = cluster
    if len(available) < ensemble:
        return
    before = tuple(available[:ensemble])
    failed = data.draw(st.sets(st.integers(0, ensemble - 1), min_size=1))
    usable = allowed(available, racks, rules, set(before))
    try:
        after = choose_replacements(before, failed, write, available, racks, rules)
    except NotEnoughBookies:
        assert len(usable) < len(failed) or (rules.is_rack_aware and rules.are_racks_enforced)
        return
    for index in range(ensemble):
        assert (after[index] == before[index]) == (index not in failed)
    assert len(set(after)) == ensemble
    assert {after[index] for index in failed} <= set(usable)


def test_primary_groups_come_first_and_avoided_bookies_last():
    racks = RackMap({}, {"a": frozenset(IDS[:2]), "b": frozenset(IDS[2:4])})
    rules = PlacementRules(
        isolation_groups=frozenset({"a"}), secondary_isolation_groups=frozenset({"b"})
    )
    order = IDS[::-1]
    assert choose_ensemble(2, 2, order, racks, rules) == (IDS[1], IDS[0])
    assert choose_ensemble(3, 2, order, racks, rules) == (IDS[1], IDS[0], IDS[3])
    avoided = choose_ensemble(2, 2, order, racks, PlacementRules(), avoid={IDS[5], IDS[4]})
    assert avoided == (IDS[3], IDS[2])
    with pytest.raises(NotEnoughBookies, match="5 bookies are needed, 4 can be used"):
        choose_ensemble(5, 2, order, racks, rules)


def test_a_new_ledger_does_with_the_bookies_that_there_are_where_that_is_wanted():
    rules = PlacementRules(is_opportunistic=True)
    racks = RackMap()
    assert choose_ensemble(3, 2, IDS[:3], racks, rules) == tuple(IDS[:3])
    assert choose_ensemble(3, 2, IDS[:2], racks, rules) == tuple(IDS[:2])
    assert choose_ensemble(3, 2, IDS[:3], racks, rules, avoid={IDS[0]}) == (IDS[1], IDS[2])
    assert choose_ensemble(3, 2, IDS[:3], racks, rules, avoid=set(IDS[:2])) == (
        IDS[2],
        IDS[0],
        IDS[1],
    )
    with pytest.raises(NotEnoughBookies, match="3 bookies are needed, 1 can be used"):
        choose_ensemble(3, 2, IDS[:1], racks, rules)
    with pytest.raises(NotEnoughBookies, match="3 bookies are needed, 2 can be used"):
        choose_ensemble(3, 2, IDS[:2], racks, PlacementRules())


P, S = IDS[:3], IDS[3:]
"""Members of a primary and of a secondary group."""


@pytest.mark.parametrize(
    ("size", "avoid", "chosen"),
    [
        (2, {P[0]}, (P[1], P[2])),  # 1: healthy primary ones suffice
        (3, {P[0]}, (P[1], P[2], P[0])),  # 2: one to avoid comes before a secondary one
        (4, {P[0]}, (P[1], P[2], S[0], S[1])),  # 3: once secondary ones are needed, healthy ones
        (5, {P[0], S[0]}, (P[1], P[2], S[1], S[2], P[0])),  # 4: no more to avoid than needed
        (6, {P[0], S[0]}, (P[1], P[2], S[1], S[2], P[0], S[0])),
    ],
)
def test_isolation_comes_before_health(size, avoid, chosen):
    racks = RackMap({}, {"a": frozenset(P), "b": frozenset(S)})
    rules = PlacementRules(
        isolation_groups=frozenset({"a"}), secondary_isolation_groups=frozenset({"b"})
    )
    assert choose_ensemble(size, 2, IDS, racks, rules, avoid=avoid) == chosen


def test_no_more_bookies_to_avoid_are_taken_than_are_needed():
    rules = PlacementRules(is_rack_aware=False)
    found = choose_ensemble(3, 2, IDS[:4], RackMap(), rules, avoid=set(IDS[:2]))
    assert found == (IDS[2], IDS[3], IDS[0])
    places = choose_replacements((IDS[4], IDS[5]), {0, 1}, 2, IDS, RackMap(), rules, avoid=set(P))
    assert places == (S[0], P[0])


@pytest.mark.parametrize(("are_enforced", "chosen"), [(False, (P[0], P[1])), (True, (P[0], S[0]))])
def test_racks_lead_to_the_next_pool_only_if_they_are_enforced(are_enforced, chosen):
    racks = RackMap(
        {**dict.fromkeys(P, "/r/one"), **dict.fromkeys(S, "/r/two")},
        {"a": frozenset(P), "b": frozenset(S)},
    )
    rules = PlacementRules(
        are_racks_enforced=are_enforced,
        isolation_groups=frozenset({"a"}),
        secondary_isolation_groups=frozenset({"b"}),
    )
    assert choose_ensemble(2, 2, IDS, racks, rules) == chosen


def test_a_rack_map_of_pulsar_is_read():
    record = {
        "group1": {"b0:3181": {"rack": "/rack1", "hostname": "h"}, "b1:3181": {"rack": "eu/r2"}},
        "group2": {"b2:3181": {"rack": ""}, "b3:3181": {"rack": "/"}},
    }
    racks = parse_rack_map(json.dumps(record).encode())
    assert racks.rack_of("b0:3181") == "/rack1"
    assert (racks.rack_of("b1:3181"), racks.region_of("b1:3181")) == ("/eu/r2", "eu")
    assert racks.region_of("b2:3181") == "default-region"
    assert racks.rack_of("b3:3181") == racks.rack_of("b2:3181")
    assert racks.members({"group2", "gone"}) == {"b2:3181", "b3:3181"}


@pytest.mark.parametrize("data", [b"", b"[]", b"[1]", b'{"g": 1}', b'{"g": {"b": 1}}', b"\xff"])
def test_anything_else_is_no_rack_map(data):
    with pytest.raises(ValueError, match="is no rack map"):
        parse_rack_map(data) if data != b"[]" else parse_rack_map(b"[[]]")
