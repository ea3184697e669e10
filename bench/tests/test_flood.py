"""Conclusions of the flood benchmark from its figures."""

from __future__ import annotations

import json

import pytest

from bench.flood_loads import PENDING_LARGE_MAX, PENDING_MAX, PERMITS
from bench.flood_report import ALONE, FLOODS, OTHER, SAME, Report
from bench.flood_victim import figures
from bench.victim import Program
from compat_tests.oracle.steady_load import wait_until
from compat_tests.oracle.vela_server import VelaServer


def measured(p99):
    latencies = {"p50": 1.0, "p99": p99, "max": 2 * p99}
    return {
        "publish": latencies,
        "end to end": latencies,
        "flood per s": 1_000.0,
        "flooded broker CPU": 1.0,
        "flood CPU": 0.2,
    }


def report(same, other):
    made = Report()
    made.add("vela", "", ALONE, measured(1.0))
    for p99 in same:
        made.add("vela", "1KB", SAME, measured(p99))
    for p99 in other:
        made.add("vela", "1KB", OTHER, measured(p99))
    return made


def test_the_ratio_is_of_the_medians_and_has_a_bound():
    assert report([2.0, 30.0, 29.0], [10.0, 11.0, 1.0]).missed() == []
    assert report([31.0], [10.0]).missed() == ["1KB"]


def test_a_flood_without_figures_misses_the_bound():
    assert report([1.0], []).missed() == ["1KB"]
    assert report([], []).missed() == []


def test_the_page_has_all_floods_that_were_measured_and_what_failed():
    made = report([31.0], [10.0])
    made.failures.append("pulsar, idle, same: no end")
    about = {"date": "d", "commit": "c", "vela": "v", "pulsar": "p", "machine": "m"}
    text = made.document({**about, "rounds": 3, "seconds": 6.0})
    assert FLOODS["1KB"] in text
    assert FLOODS["idle"] not in text
    assert "**3.1**" in text
    assert "no end" in text
    assert json.loads(json.dumps(made.as_json(about)))["ratios"]["vela"]["1KB"] == 3.1


def test_figures_are_in_milliseconds():
    found = figures([number * 1_000_000 for number in range(1, 101)])
    assert (found["p50"], found["p99"], found["max"]) == (51.0, 100.0, 100.0)


@pytest.fixture(scope="module")
def vela(tmp_path_factory):
    server = VelaServer(tmp_path_factory.mktemp("flood"))
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("kind", "counter", "more_than"),
    [  # so many that the flood has read answers to some
        ("1KB", "msgInCounter", PENDING_MAX),
        ("1MB", "msgInCounter", PENDING_LARGE_MAX),
        ("acks", "msgOutCounter", PERMITS),
    ],
)
def test_a_flood_is_under_way_until_it_is_ended(vela, kind, counter, more_than):
    path = f"persistent/public/default/flood-{kind}"
    topic = path.replace("/", "://", 1)
    flood = Program("bench.flood_loads", kind, str(vela.broker_port), topic)
    try:
        assert flood.line(60) == "begun\n"
        wait_until(lambda: vela.http("GET", f"/admin/v2/{path}/stats")[1][counter] > more_than)
        assert json.loads(flood.finish())["done"] > 0
    finally:
        flood.close()
