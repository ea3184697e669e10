"""Placement, shedding and splitting. Pure."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from broker.cluster.bundles import Bundle
from broker.cluster.config import SheddingRules, SplitRules
from broker.cluster.decisions import (
    Assignments,
    PlacementLimits,
    bundles_to_shed,
    bundles_to_split,
    choose_broker,
    smoothed_usage,
)
from broker.cluster.load_history import Average, BundleHistory
from broker.cluster.records import BrokerReport, BundleLoad, Traffic, Usage
from broker.peers.broker_address import BrokerAddress

LIMITS = PlacementLimits()
MB = 1024 * 1024


def bundle(number, namespace="t/n"):
    return Bundle(namespace, number << 20, (number + 1) << 20)


def report(name, bundles=(), cpu=0.0, loads=None):
    return BrokerReport(
        address=BrokerAddress(f"pulsar://{name}:6650", f"http://{name}"),
        cpu=Usage(cpu * 100, 100),
        bundles=loads or {each.name: BundleLoad() for each in bundles},
    )


def busy(throughput, rate=0.0):
    traffic = Traffic(msg_rate_in=rate, throughput_in=throughput)
    return BundleHistory(Average(10, 1, traffic), Average(1000, 1, traffic), 1)


def place_all(count, brokers):
    reports = {name: report(name) for name in brokers}
    assignments = Assignments()
    return [assignments.assign(bundle(number), reports, {}, LIMITS, 0.0) for number in range(count)]


@given(st.integers(1, 6), st.integers(0, 60))
def test_bundles_of_a_namespace_are_spread_evenly(brokers, count):
    chosen = place_all(count, [f"b{number}" for number in range(brokers)])
    counts = [chosen.count(f"b{number}") for number in range(brokers)]
    assert max(counts) - min(counts) <= 1


def test_no_broker_no_choice():
    assert Assignments().assign(bundle(1), {}, {}, LIMITS, 0.0) is None


def test_the_same_bundle_goes_to_the_same_broker_until_it_is_reported_or_freed():
    reports = {name: report(name) for name in ("a", "b")}
    assignments = Assignments()
    first = assignments.assign(bundle(1), reports, {}, LIMITS, 0.0)
    assert assignments.assign(bundle(1), reports, {}, LIMITS, 59.0) == first
    other = ({"a", "b"} - {first}).pop()
    loaded = {**reports, first: report(first, [bundle(2)])}
    assert assignments.assign(bundle(1), loaded, {}, LIMITS, 61.0) == other
    assignments.free(bundle(1))
    gone = {first: loaded[first]}
    assert assignments.assign(bundle(1), gone, {}, LIMITS, 61.0) == first


def test_a_broker_that_is_gone_gets_nothing():
    reports = {name: report(name) for name in ("a", "b")}
    assignments = Assignments()
    first = assignments.assign(bundle(1), reports, {}, LIMITS, 0.0)
    left = {name: each for name, each in reports.items() if name != first}
    assert assignments.assign(bundle(1), left, {}, LIMITS, 1.0) == next(iter(left))


def test_the_lower_message_rate_decides_between_equal_counts():
    reports = {"a": report("a", [bundle(1)]), "b": report("b", [bundle(2)])}
    for quiet, loud in ((bundle(1), bundle(2)), (bundle(2), bundle(1))):
        histories = {quiet.name: busy(0, 1), loud.name: busy(0, 2)}
        chosen = choose_broker(bundle(3), reports, histories, LIMITS, {})
        assert quiet.name in reports[chosen].bundles


def test_an_overloaded_broker_is_the_last_choice():
    reports = {"a": report("a", cpu=0.9), "b": report("b", [bundle(1), bundle(2)], cpu=0.5)}
    assert choose_broker(bundle(3), reports, {}, LIMITS, {}) == "b"
    both = {name: replace(each, cpu=Usage(99, 100)) for name, each in reports.items()}
    assert choose_broker(bundle(3), both, {}, LIMITS, {}) == "a"


def shed(usages, histories, moved=frozenset(), **rules):
    reports = {
        name: report(name, loads={each.name: load for each, load in loads.items()})
        for name, (_usage, loads) in usages.items()
    }
    usage = {name: usage for name, (usage, _loads) in usages.items()}
    return bundles_to_shed(reports, histories, usage, moved, SheddingRules(**rules))


def moving(megabytes):
    return BundleLoad(Traffic(throughput_in=megabytes * MB), 1)


def test_the_busiest_bundles_leave_the_broker_above_the_average():
    loads = {bundle(number): moving(100 * number) for number in range(1, 5)}
    histories = {bundle(number).name: busy(100 * number * MB) for number in range(1, 5)}
    chosen = shed({"a": (0.9, loads), "b": (0.1, {})}, histories)
    assert chosen == {"a": [bundle(4).name]}
    chosen = shed({"a": (0.9, loads), "b": (0.1, {})}, histories, frozenset({bundle(4).name}))
    assert chosen == {"a": [bundle(3).name, bundle(2).name]}


def test_nothing_is_shed_within_the_threshold_or_for_little_traffic():
    loads = {bundle(1): moving(100), bundle(2): moving(100)}
    histories = {bundle(number).name: busy(100 * MB) for number in (1, 2)}
    assert shed({"a": (0.55, loads), "b": (0.45, loads)}, histories) == {}
    little = {bundle(1): moving(1), bundle(2): moving(1)}
    assert shed({"a": (0.9, little), "b": (0.1, {})}, histories) == {}


@given(st.lists(st.integers(0, 1000), max_size=8), st.floats(0, 1), st.floats(0, 1))
def test_a_broker_keeps_a_bundle_and_never_gives_one_twice(megabytes, usage, other):
    loads = {bundle(number): moving(each) for number, each in enumerate(megabytes)}
    histories = {bundle(number).name: busy(each * MB) for number, each in enumerate(megabytes)}
    chosen = shed({"a": (usage, loads), "b": (other, {})}, histories).get("a", [])
    assert len(set(chosen)) == len(chosen) < max(len(loads), 1)
    assert {each.name for each in loads} >= set(chosen)


def test_usage_follows_the_reports_slowly():
    rules = SheddingRules()
    usage = smoothed_usage({}, {"a": report("a", cpu=0.0)}, rules)
    for _round in range(3):
        usage = smoothed_usage(usage, {"a": report("a", cpu=1.0)}, rules)
    assert round(usage["a"], 3) == 0.271
    assert smoothed_usage(usage, {}, rules) == {}


def test_the_usage_of_a_broker_that_joins_begins_with_its_report():
    """From 0 it would lower the average, and equally busy brokers would shed load to it."""
    rules = SheddingRules()
    earlier = {"a": 0.9, "b": 0.9}
    reports = {name: report(name, cpu=0.9) for name in ("a", "b", "c")}
    usage = smoothed_usage(earlier, reports, rules)
    assert {name: round(each, 6) for name, each in usage.items()} == dict.fromkeys("abc", 0.9)


def test_bundles_beyond_a_limit_are_split():
    loads = {
        bundle(1).name: BundleLoad(topics=1001),
        bundle(2).name: BundleLoad(topics=1000, producers=500, consumers=500),
        bundle(3).name: BundleLoad(topics=2, producers=500, consumers=501),
        bundle(4).name: BundleLoad(topics=2),
        bundle(5).name: BundleLoad(topics=2),
        "no bundle": BundleLoad(topics=5000),
    }
    histories = {bundle(4).name: busy(0, 30_001), bundle(5).name: busy(101 * MB)}
    reports = {"a": report("a", loads=loads)}
    expected = [bundle(1), bundle(3), bundle(4), bundle(5)]
    assert bundles_to_split(reports, histories, {"t/n": 4}, SplitRules()) == expected
    assert bundles_to_split(reports, histories, {"t/n": 126}, SplitRules()) == expected[:2]
    assert bundles_to_split(reports, histories, {}, SplitRules()) == []


def test_a_bundle_with_one_busy_topic_is_not_split():
    """Again and again otherwise, until the namespace has the maximum of bundles."""
    loads = {bundle(1).name: BundleLoad(topics=1, producers=2_000, consumers=2_000)}
    histories = {bundle(1).name: busy(500 * MB, 100_000)}
    reports = {"a": report("a", loads=loads)}
    assert bundles_to_split(reports, histories, {"t/n": 4}, SplitRules()) == []


def test_no_limit_of_sessions_splits_nothing():
    loads = {bundle(1).name: BundleLoad(topics=2, producers=2_000, consumers=2_000)}
    reports = {"a": report("a", loads=loads)}
    rules = SplitRules(loadBalancerNamespaceBundleMaxSessions=0)
    assert bundles_to_split(reports, {}, {"t/n": 4}, rules) == []
    assert bundles_to_split(reports, {}, {"t/n": 4}, SplitRules()) == [bundle(1)]


def test_bundles_that_left_a_broker_do_not_count_until_its_next_report():
    """All bundles of a broker were unloaded, and are assigned again before it reports."""
    mine = [bundle(number) for number in range(8)]
    theirs = [bundle(number) for number in range(8, 16)]
    reports = {"a": report("a", mine), "b": report("b", theirs)}
    assignments = Assignments()
    for each in mine:
        assignments.free(each)
        assignments.changed(each, reports)
    chosen = [assignments.assign(each, reports, {}, LIMITS, 0.0) for each in mine]
    assert chosen == ["a"] * 8


def test_what_left_counts_again_when_a_later_report_has_it():
    mine = bundle(0)
    old = report("a", [mine])
    assignments = Assignments()
    assignments.changed(mine, {"a": old})
    assert assignments.assign(bundle(1), {"a": old, "b": report("b")}, {}, LIMITS, 0.0) in "ab"
    later = {"a": replace(old, updated_ms=1), "b": report("b")}
    assert [
        assignments.assign(bundle(number), later, {}, LIMITS, 100.0) for number in range(2, 3)
    ] == ["b"]


@given(st.integers(1, 5), st.integers(1, 40), st.data())
def test_an_unloaded_namespace_is_spread_evenly_whatever_the_old_reports_say(brokers, count, data):
    names = [f"b{number}" for number in range(brokers)]
    bundles = [bundle(number) for number in range(count)]
    before = {each: data.draw(st.sampled_from(names)) for each in bundles}
    reports = {
        name: report(name, [each for each, owner in before.items() if owner == name])
        for name in names
    }
    assignments = Assignments()
    for each in bundles:
        assignments.changed(each, reports)
    chosen = [assignments.assign(each, reports, {}, LIMITS, 0.0) for each in bundles]
    counts = [chosen.count(name) for name in names]
    assert max(counts) - min(counts) <= 1
