"""Figures, page and rounds of the benchmark beside NATS and Kafka. Neither of them runs here."""

from __future__ import annotations

import re

import pytest

from bench.fanout_report import figures_of
from bench.peers import Session
from bench.peers_report import (
    FANOUT,
    FANOUT_CONSUMERS,
    FULL_SPEED,
    LOADS,
    PACED,
    PEERS,
    delivered,
    document,
    of_vela_fanout,
    published,
    table,
)
from bench.peers_servers import GO, JAVA, KAFKA, versions
from bench.perf_client import PerfFailed
from bench.results import Origin, Record
from bench.session import RoundFailed
from compat_tests.oracle.distribution import PULSAR_VERSION

LINES = [
    {"messages": 5_000, "seconds": 5.0, "p50 ms": 9.0, "p99 ms": 90.0},
    {"messages": 10_000, "seconds": 10.0, "p50 ms": 0.2, "p99 ms": 2.0},
    {"messages": 15_000, "seconds": 15.0, "p50 ms": 0.4, "p99 ms": 4.0},
]
ABOUT = {"machine": "2 processors", "versions": {"Kafka": "4.4.0", "nats-server": "2.15.2"}}


def record(load, figures):
    peers = LOADS[load].peers
    made = Record(Origin("abc", "compiled", 1, peers), "2026-11-26 15:00")
    for peer in peers:
        made.rounds[peer] = [figures]
    return made


class TestFigures:
    def test_the_first_line_of_a_program_is_not_measured(self):
        figures = published(LINES, cpu_seconds=2.0, resident_mebibytes=100.0)
        assert figures["msg/s"] == 1_000
        assert figures["server CPU us/message"] == 200
        assert figures["publish p50 ms"] == pytest.approx(0.3)
        assert figures["publish p99 ms"] == pytest.approx(3.0)

    def test_at_full_speed_there_are_no_latencies(self):
        lines = [{"messages": each["messages"], "seconds": each["seconds"]} for each in LINES]
        assert "publish p99 ms" not in published(lines, 2.0, 100.0)

    def test_a_round_in_which_nothing_passed_does_not_count(self):
        with pytest.raises(PerfFailed):
            published([LINES[0], {**LINES[1], "messages": 5_000}], 2.0, 100.0)

    def test_a_delivery_has_its_share_of_the_cpu_of_a_message(self):
        line = {"messages": 15, "lost": 0, "p50 s": 0.1, "p99 s": 0.2, "max s": 0.3}
        figures = delivered(20_000, 1.5, line, cpu_seconds=3.0, resident_mebibytes=50.0)
        assert figures["server CPU s/message"] == pytest.approx(0.2)
        assert figures["server CPU us/delivery"] == pytest.approx(10.0)
        assert figures["delivery p99 s"] == 0.2

    def test_a_fan_out_of_vela_has_the_same_figures(self):
        told = {
            "subscribe_all_seconds": 1.0,
            "connect": {"p50": 0.1, "p99": 0.2},
            "delivery": {"p50": 0.1, "p99": 0.2, "p99.9": 0.3, "max": 0.3},
            "lost": 0,
            "duplicated": 0,
            "out_of_order": 0,
            "broker": {"cpu_seconds_per_message": 0.1, "memory_bytes": 2**27},
            "generator_cpu_seconds": 1.0,
        }
        line = {"messages": 15, "lost": 0, "p50 s": 0.1, "p99 s": 0.2, "max s": 0.3}
        figures = of_vela_fanout(20_000, figures_of(told))
        assert set(figures) == set(delivered(20_000, 1.0, line, 3.0, 50.0))
        assert figures["server CPU us/delivery"] == pytest.approx(5.0)


class StandstillSession(Session):
    """Measures nothing: the load program tells the same number of messages twice."""

    def _figures(self, peer, server, load):
        return published([LINES[0], {**LINES[1], "messages": 5_000}], 2.0, 100.0)


class TestSession:
    def test_a_round_in_which_nothing_passed_does_not_end_the_run(self, tmp_path):
        session = StandstillSession(tmp_path, quick=True)
        try:
            session.start(["vela"])
            for _ in range(2):  # The second one needs a server that answers again.
                with pytest.raises(RoundFailed, match="no message passed"):
                    session.measure(PEERS["vela"], FULL_SPEED)
        finally:
            session.close()


class TestPage:
    @pytest.mark.parametrize("load", LOADS)
    def test_each_peer_has_figures_or_the_reason_why_not(self, load):
        for peer in PEERS:
            assert (peer in LOADS[load].peers) != (peer in LOADS[load].not_run)
        assert set(FANOUT_CONSUMERS) == set(LOADS[FANOUT].peers)

    def test_each_row_says_what_is_synced(self):
        lines = table(FULL_SPEED, None, {}).splitlines()[2:]
        for line, peer in zip(lines, PEERS.values(), strict=True):
            assert line.startswith(f"| {peer.title} |")
            assert line.endswith(f"| {peer.durable} |")

    def test_a_server_that_cannot_be_had_is_said_plainly(self):
        absent = {"kafka": "no `mvn` on the path"}
        page = document({}, absent, ABOUT)
        assert "kafka could not be had: no `mvn` on the path." in page
        assert "| Kafka, default | no `mvn` on the path |" in table(PACED, None, absent)

    def test_the_page_names_versions_and_clients(self):
        figures = published(LINES, 2.0, 100.0)
        page = document({PACED: record(PACED, figures)}, {}, ABOUT)
        assert "Kafka 4.4.0, nats-server 2.15.2; 2 processors" in page
        assert "* Vela: `vela perf fanout`, else pulsar-client (Java)" in page
        assert "| Kafka, `flush.messages=1` | 0.3 | 3 | 1,000 | 200 | 100 |" in page

    def test_rounds_that_differ_show_their_spread(self):
        both = record(FULL_SPEED, published(LINES, 2.0, 100.0))
        both.rounds["vela"].append(published(LINES, 4.0, 100.0))
        assert "| Vela | 1,000 | 300 (200 to 400) | 100 |" in table(FULL_SPEED, both, {})


def test_versions_are_those_that_are_built():
    built = versions((GO / "go.mod").read_text(), (KAFKA / "pom.xml").read_text())
    assert built["Kafka"].startswith("4.")
    load = (JAVA / "pom.xml").read_text()
    assert f"<kafka.version>{built['Kafka']}<" in load
    assert f"<pulsar.version>{PULSAR_VERSION}<" in load
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", each) for each in built.values())
