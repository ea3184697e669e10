"""Policies of isolation: the record, who may own what, what is unloaded. Pure."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cluster.anti_affinity import AntiAffinity
from broker.cluster.bundles import Bundle
from broker.cluster.decisions import Assignments, Constraints, PlacementLimits, choose_broker
from broker.cluster.isolation import (
    ALL_MATCHING,
    NONE,
    BadPolicy,
    Candidates,
    IsolationPolicies,
    IsolationPolicy,
    Standing,
    namespaces_to_unload,
)
from broker.cluster.records import BrokerReport, BundleLoad, Usage
from broker.peers.broker_address import BrokerAddress

LIMITS = PlacementLimits()


def policy(
    namespaces=("t/.*",), primary=("p.*",), secondary=("s.*",), limit=1, usage=100, scope=None
):
    return IsolationPolicy(
        namespaces=tuple(namespaces),
        primary=tuple(primary),
        secondary=tuple(secondary),
        min_limit=limit,
        usage_threshold=usage,
        unload_scope=scope,
    )


def policies(**named):
    return IsolationPolicies(named)


def reports(*names, usage=None):
    return {
        f"{name}:8080": BrokerReport(
            address=BrokerAddress(f"pulsar://{name}:6650", f"http://{name}:8080"),
            cpu=Usage((usage or {}).get(name, 0.0), 100),
        )
        for name in names
    }


def hosts(candidates):
    return sorted(each.partition(":")[0] for each in candidates.brokers)


def test_the_record_is_pulsars():
    record = {
        "namespaces": ["t/.*"],
        "primary": ["p1"],
        "secondary": [],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "2", "usage_threshold": "80"},
        },
        "unload_scope": "changed",
    }
    parsed = IsolationPolicy.parse(record)
    assert (parsed.min_limit, parsed.usage_threshold) == (2, 80)
    assert parsed.record == record
    stored = IsolationPolicies({"one": parsed}).encode()
    assert json.loads(stored) == {"one": record}
    assert IsolationPolicies.parse(stored).policies == {"one": parsed}


@pytest.mark.parametrize(
    "damage",
    [
        {"namespaces": []},
        {"namespaces": "t/n"},
        {"primary": []},
        {"primary": [1]},
        {"secondary": None},
        {"auto_failover_policy": None},
        {"auto_failover_policy": {"policy_type": "other", "parameters": {}}},
        {
            "auto_failover_policy": {
                "policy_type": "min_available",
                "parameters": {"min_limit": "1"},
            }
        },
    ],
)
def test_a_damaged_policy_is_no_policy(damage):
    record = policy().record | damage
    with pytest.raises(BadPolicy):
        IsolationPolicy.parse(record)
    with pytest.raises(BadPolicy, match="policy one"):
        IsolationPolicies.parse(json.dumps({"one": record}).encode())


def test_an_unload_scope_that_is_not_known_counts_as_none_given():
    record = policy().record
    assert IsolationPolicy.parse({**record, "unload_scope": "some", "more": 1}).record == record


def test_a_controlled_namespace_goes_to_primaries_and_others_keep_away_from_them():
    known = policies(one=policy())
    brokers = reports("p1", "p2", "s1", "x1")
    assert hosts(known.candidates("t/n", brokers)) == ["p1", "p2"]
    assert hosts(known.candidates("u/n", brokers)) == ["s1", "x1"]
    standings = [known.standing_of("t/n", each) for each in brokers]
    assert standings == [Standing.PRIMARY, Standing.PRIMARY, Standing.SECONDARY, None]
    assert known.standing_of("u/n", "p1:8080") is None
    assert known.standing_of("u/n", "s1:8080") is Standing.SHARED


def test_secondaries_come_in_when_too_few_primaries_are_members():
    known = policies(one=policy(limit=2))
    assert hosts(known.candidates("t/n", reports("p1", "p2", "s1"))) == ["p1", "p2"]
    assert hosts(known.candidates("t/n", reports("p1", "s1", "x1"))) == ["p1", "s1"]
    assert hosts(known.candidates("t/n", reports("x1"))) == []


def test_a_primary_above_the_threshold_is_not_available_and_is_avoided():
    known = policies(one=policy(limit=2, usage=80))
    candidates = known.candidates("t/n", reports("p1", "p2", "s1", usage={"p1": 80.0, "p2": 79.0}))
    assert hosts(candidates) == ["p1", "p2", "s1"]
    assert candidates.avoided == {"p1:8080"}
    never = policies(one=policy(limit=2, usage=100))
    busy = reports("p1", "p2", "s1", usage={"p1": 150.0, "p2": 99.0})
    assert hosts(never.candidates("t/n", busy)) == ["p1", "p2"]


def test_the_first_policy_that_matches_counts():
    known = policies(one=policy(["t/a"]), two=policy(["t/.*"], primary=["q.*"]))
    brokers = reports("p1", "q1", "x1")
    assert hosts(known.candidates("t/a", brokers)) == ["p1"]
    assert hosts(known.candidates("t/b", brokers)) == ["q1"]
    assert hosts(known.candidates("u/a", brokers)) == ["x1"]


def test_an_expression_that_is_not_understood_matches_nothing_and_is_named():
    odd = policy(["(?=t)t/n", "t/m"])
    known = policies(one=odd)
    assert hosts(known.candidates("t/n", reports("p1", "x1"))) == ["x1"]
    assert hosts(known.candidates("t/m", reports("p1", "x1"))) == ["p1"]
    (reason,) = odd.refused_patterns
    assert reason.startswith("namespaces: ")


NAMES = ["t/a", "t/b", "u/a"]


@pytest.mark.parametrize(
    ("old", "new", "unloaded"),
    [
        (None, policy(["t/.*"]), ["t/a", "t/b"]),
        (None, policy(["t/.*"], scope=NONE), []),
        (policy(["t/a"]), policy(["t/a", "t/b"]), ["t/b"]),
        (policy(["t/a", "u/a"]), policy(["t/a"]), ["u/a"]),
        (policy(["t/a"]), policy(["t/a"]), []),
        (policy(["t/a"]), policy(["t/a"], scope=ALL_MATCHING), ["t/a"]),
        (policy(["t/a"]), policy(["t/a"], secondary=["z"]), []),
        (policy(["t/a"], ["p", "q"]), policy(["t/a"], ["q", "p"]), []),
        (policy(["t/a", "u/a"], ["p"]), policy(["t/a"], ["q"]), ["t/a", "u/a"]),
    ],
)
def test_only_namespaces_whose_placement_may_change_are_unloaded(old, new, unloaded):
    assert namespaces_to_unload(old, new, NAMES) == unloaded


def bundle(number, namespace="t/n"):
    return Bundle(namespace, number << 20, (number + 1) << 20)


def test_an_avoided_broker_gets_a_bundle_only_if_there_is_no_other():
    brokers = reports("a", "b")
    one = Constraints(Candidates(frozenset(brokers), frozenset({"a:8080"})))
    assert all(
        choose_broker(bundle(number), brokers, {}, LIMITS, {}, {}, one) == "b:8080"
        for number in range(8)
    )
    alone = Constraints(Candidates(frozenset({"a:8080"}), frozenset({"a:8080"})))
    assert choose_broker(bundle(1), brokers, {}, LIMITS, {}, {}, alone) == "a:8080"
    nobody = Constraints(Candidates(frozenset({"gone:8080"})))
    assert choose_broker(bundle(1), brokers, {}, LIMITS, {}, {}, nobody) is None


def test_what_was_assigned_before_a_policy_was_set_is_assigned_anew():
    brokers = reports("a", "b")
    assignments = Assignments()
    first = assignments.assign(bundle(1), brokers, {}, LIMITS, 0.0)
    other = ({*brokers} - {first}).pop()
    only_other = Constraints(Candidates(frozenset({other})))
    assert assignments.assign(bundle(1), brokers, {}, LIMITS, 1.0, only_other) == other


@given(st.integers(1, 5), st.integers(1, 20))
def test_bundles_of_a_controlled_namespace_are_spread_over_its_brokers_only(count, bundles):
    known = policies(one=policy(["t/n"]))
    brokers = reports(*(f"p{number}" for number in range(count)), "x1", "s1")
    assignments = Assignments()
    constraints = Constraints(known.candidates("t/n", brokers))
    chosen = [
        assignments.assign(bundle(number), brokers, {}, LIMITS, 0.0, constraints)
        for number in range(bundles)
    ]
    counts = [chosen.count(f"p{number}:8080") for number in range(count)]
    assert sum(counts) == bundles
    assert max(counts) - min(counts) <= 1


# --- anti-affinity ------------------------------------------------------------------------------

BROKERS = frozenset({"a", "b", "c"})
GROUP = frozenset({"t/1", "t/2", "t/3"})


def test_namespaces_of_a_group_are_kept_apart():
    group = AntiAffinity(GROUP)
    assert group.best(BROKERS, {}) == BROKERS
    assert group.best(BROKERS, {"a": ["t/1"], "b": ["u/1"]}) == {"b", "c"}
    assert group.best(BROKERS, {"a": ["t/1"], "b": ["t/2"], "c": ["t/1", "t/3"]}) == {"a", "b"}


def test_domains_count_before_brokers():
    group = AntiAffinity(GROUP, {"a": "d1", "b": "d1"})  # c is in the default one
    assert group.best(BROKERS, {"a": ["t/1"]}) == {"c"}
    assert group.best(BROKERS, {"a": ["t/1"], "c": ["t/2", "t/3"]}) == {"b"}


def test_a_bundle_of_a_group_leaves_only_for_a_better_broker():
    group = AntiAffinity(GROUP)
    even = {"a": ["t/1"], "b": ["t/2"], "c": ["t/3"]}
    assert not group.may_leave("a", BROKERS, even)
    assert group.may_leave("a", BROKERS, {"a": ["t/1"], "b": ["t/2"]})
    assert group.may_leave("a", BROKERS, even | {"a": ["t/1", "t/2"]})
    assert group.may_leave("a", BROKERS, {})


def test_a_group_decides_before_the_number_of_bundles():
    brokers = reports("a", "b")
    brokers["b:8080"] = BrokerReport(
        address=brokers["b:8080"].address,
        bundles={bundle(number, "u/n").name: BundleLoad() for number in range(9)},
    )
    brokers["a:8080"] = BrokerReport(
        address=brokers["a:8080"].address, bundles={bundle(1, "t/1").name: BundleLoad()}
    )
    affinity = Constraints(None, AntiAffinity(GROUP))
    assert choose_broker(bundle(2, "t/2"), brokers, {}, LIMITS, {}, {}, affinity) == "b:8080"
    assert choose_broker(bundle(2, "t/2"), brokers, {}, LIMITS, {}) == "a:8080"
