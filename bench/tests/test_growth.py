"""Loads, curves and page of the growth benchmark, and a server that is made to grow."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bench.growth_loads import CONFIGURATION, Growing, make_all
from bench.growth_report import (
    AXES,
    BACKLOG,
    CONSUMERS,
    CPU,
    P99,
    RESIDENT,
    SIZE,
    SUBSCRIPTIONS,
    TOPICS,
    connections_of,
    curves,
    document,
    messages_of_fanout,
    name_of,
    names,
    of_fanout,
    plot,
    rate_of_fanout,
    rate_of_size,
    servers_of,
    table,
)
from bench.perf_client import PerfFailed
from bench.results import Origin, Record
from compat_tests.oracle.vela_server import VelaServer

ABOUT = {"pulsar": "4.0.8", "machine": "2 processors", "seconds_max": 420.0}


def figures(cpu):
    return {CPU: cpu, P99: 2.0, RESIDENT: 100.0}


def record(servers, **rounds):
    made = Record(Origin("abc", "compiled", 1, servers), "2026-11-26 15:00")
    made.rounds = {name: [figures(cpu) for cpu in each] for name, each in rounds.items()}
    return made


@pytest.fixture
def records():
    both = ("vela", "pulsar")
    return {
        name_of(TOPICS, 1): record(both, vela=[100.0, 300.0, 200.0], pulsar=[400.0]),
        name_of(TOPICS, 1_000): record(both, vela=[250.0]),
        name_of(CONSUMERS, 1): record(("vela",), vela=[50.0]),
    }


@pytest.fixture(scope="module")
def vela(tmp_path_factory):
    server = VelaServer(tmp_path_factory.mktemp("vela"))
    server.start()
    yield server
    server.kill()


class TestLoads:
    def test_large_messages_come_at_a_rate_that_bounds_their_bytes(self):
        rates = {size: rate_of_size(size) for size in AXES[SIZE].values}
        assert rates == {
            100: 1_000,
            1_000: 1_000,
            10_000: 1_000,
            100_000: 100,
            1_000_000: 10,
            5_000_000: 2,
        }

    @pytest.mark.parametrize(
        ("consumers", "rate", "messages", "connections"),
        [
            (1, 100.0, 1_000, 1),
            (1_000, 5.0, 50, 16),
            (100_000, 0.2, 10, 64),
            (1_000_000, 0.2, 10, 640),
        ],
    )
    def test_a_fan_out_has_bounded_deliveries(self, consumers, rate, messages, connections):
        assert rate_of_fanout(consumers) == pytest.approx(rate)
        assert messages_of_fanout(rate, 10) == messages
        assert connections_of(consumers) == connections

    def test_growth_spans_what_is_promised(self):
        spans = {axis: (min(each.values), max(each.values)) for axis, each in AXES.items()}
        assert spans == {
            TOPICS: (1, 100_000),
            SIZE: (100, 5_000_000),
            BACKLOG: (1_000, 20_000),
            CONSUMERS: (1, 1_000_000),
            SUBSCRIPTIONS: (1, 10_000),
        }

    def test_real_pulsar_is_measured_up_to_what_it_reaches(self):
        assert servers_of(TOPICS, 10_000) == ("vela", "pulsar")
        assert servers_of(TOPICS, 100_000) == ("vela",)
        assert servers_of(CONSUMERS, 1) == ("vela",)

    def test_no_quota_ends_the_growth_of_a_backlog(self):
        limit_bytes = float(CONFIGURATION["backlogQuotaDefaultLimitGB"]) * 2**30
        largest_bytes = max(AXES[BACKLOG].values) * 1_000_000
        assert limit_bytes < 0 or limit_bytes > largest_bytes

    def test_a_fan_out_that_lost_something_does_not_count(self):
        told = {
            "broker CPU s/message": 0.1,
            "delivery p99 s": 0.2,
            "broker memory MB": 64.0,
            "lost": 0,
        }
        assert of_fanout(told) == {CPU: 1e5, P99: 200.0, RESIDENT: 64.0}
        assert of_fanout({**told, "lost": 1}) is None
        assert of_fanout({**told, "broker memory MB": None}) is None


class TestPage:
    def test_a_curve_has_the_medians_in_the_order_of_growth(self, records):
        assert curves(TOPICS, dict(reversed(records.items())), CPU) == {
            "vela": [(1, 200.0), (1_000, 250.0)],
            "pulsar": [(1, 400.0)],
        }

    def test_what_a_server_did_not_reach_is_said(self, records):
        assert "| 1 | 200 (100 to 300) |" in table(TOPICS, records)
        assert "| 1,000 | 250 | 2 | 100 | not reached | not reached |" in table(TOPICS, records)

    def test_a_server_that_is_not_measured_on_an_axis_has_no_columns(self, records):
        assert "pulsar" not in table(CONSUMERS, records)

    def test_the_page_has_each_axis_and_the_plot(self, records, tmp_path):
        page = document(records, ABOUT)
        for axis in AXES:
            assert f"## {axis}\n" in page
        plot(records, tmp_path / "growth.png")
        assert (tmp_path / "growth.png").stat().st_size > 0

    def test_records_are_in_the_order_of_the_page(self):
        assert names({TOPICS: (1, 10), SIZE: (100,)}) == [
            "topics: 1",
            "topics: 10",
            "message size: 100",
        ]


class TestGrowing:
    def test_it_makes_as_many_topics_as_are_missing(self, vela):
        growing = Growing(seconds_max=60.0)
        for count in (3, 20):
            growing.topics(vela, count)
            _, topics = vela.http("GET", "/admin/v2/persistent/public/growth")
            assert len(topics) == count

    def test_it_ends_when_the_time_is_over(self, vela):
        growing = Growing(seconds_max=0.0)
        with pytest.raises(PerfFailed, match="100 are left"):
            growing.topics(vela, 100)
        assert growing.ended is not None

    def test_a_refusal_is_told(self, vela):
        with pytest.raises(PerfFailed, match="404"):
            make_all(vela, ["/admin/v2/persistent/public/absent/t"], seconds_max=60.0)

    def test_a_backlog_for_which_there_is_no_room_ends_it(self, vela):
        growing = Growing(seconds_max=60.0)
        with pytest.raises(PerfFailed, match="needs"):
            growing.backlog(SimpleNamespace(), vela, megabytes=1_000_000_000)
        assert growing.ended is not None
