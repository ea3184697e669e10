"""Decisions of `make bench-cluster`: its rounds, its table and targets, files of real servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench import cluster_report as report
from bench.cluster import BENCHMARK, LOADS
from bench.cluster_servers import CLUSTERS, MIXED, PULSAR, VELA
from bench.results import Origin, Record, Results
from bench.rounds import SPARE_ATTEMPTS, Rounds
from bench.session import RoundFailed, server_problems
from compat_tests.oracle.configuration import with_keys

if TYPE_CHECKING:
    from pathlib import Path

    from bench.results import Figures

ORIGIN = Origin("abc", "with compiled hot modules", 2, CLUSTERS)


def figures(cpu: float, resident: float = 100.0, p99: float = 10.0) -> Figures:
    return {
        report.CPU: cpu,
        report.ZOOKEEPER_CPU: 0.1,
        report.P99: p99,
        report.RESIDENT: resident,
    }


def record(real: list[float], mixed: list[float], ours: list[float]) -> Record:
    rounds = {
        PULSAR: [figures(each, 6000.0, 80.0) for each in real],
        MIXED: [figures(each, 4000.0, 20.0) for each in mixed],
        VELA: [figures(each, 600.0, 20.0) for each in ours],
    }
    return Record(ORIGIN, "2026-01-02 03:04", rounds)


def row_of(load: str, figure: str, shown: Record) -> report.Row:
    (row,) = (each for each in report.rows({load: shown}) if each.figure == figure)
    return row


class TestTable:
    def test_the_ratio_is_that_of_the_medians_of_all_vela_and_all_real(self):
        row = row_of(report.UNBATCHED, report.CPU, record([50, 40, 30], [1, 1, 1], [30, 20, 10]))
        assert row.ratio == 0.5
        assert (row.target, row.met) == ("<= 0.6", "met")
        assert str(row.spreads[PULSAR]) == "40 (30 to 50)"

    @pytest.mark.parametrize(
        ("load", "met"),
        [(report.UNBATCHED, "met"), (report.BATCHED, "met"), (report.STEADY, "missed")],
    )
    def test_at_a_thousand_messages_a_second_the_cpu_must_be_less(self, load: str, met: str):
        assert row_of(load, report.CPU, record([100], [1], [55])).met == met

    def test_latency_is_judged_at_the_steady_load_alone(self):
        shown = record([1], [1], [1])
        assert row_of(report.STEADY, report.P99, shown).met == "met"
        assert row_of(report.BATCHED, report.P99, shown).met == ""

    def test_resident_memory_is_judged_under_every_load_and_zookeepers_is_not(self):
        shown = record([1], [1], [1])
        assert row_of(report.BATCHED, report.RESIDENT, shown).met == "met"
        assert row_of(report.BATCHED, report.ZOOKEEPER_CPU, shown).met == ""

    def test_a_load_that_lacks_a_cluster_is_not_compared(self):
        assert report.rows({report.STEADY: record([1], [], [1])}) == []

    def test_the_page_tells_the_conditions_and_the_rounds(self):
        page = BENCHMARK.document({report.STEADY: record([1, 2], [1, 2], [1, 2])}, "a machine")
        assert "E/Qw/Qa 3/2/2" in page
        assert "journals are synced on all sides" in page
        assert "(b) Vela broker, real bookies" in page
        assert "2 pulsar, 2 vela broker, 2 vela" in page


class TestRounds:
    def rounds(self, path: Path, *, resume: bool = False) -> Rounds:
        results = Results(path / "cluster.json", list(LOADS))
        return Rounds(results, ORIGIN, list(CLUSTERS), results.save, resume)

    def test_clusters_take_turns_from_either_end(self, tmp_path: Path):
        asked: list[str] = []

        def measure(name: str, _attempt: int) -> Figures:
            asked.append(name)
            return figures(1.0)

        assert self.rounds(tmp_path).scenario(report.STEADY, measure)
        assert asked == [*CLUSTERS, *reversed(CLUSTERS)]

    def test_the_speed_of_the_machine_is_kept_with_the_rounds(self, tmp_path: Path):
        rounds = self.rounds(tmp_path)
        assert rounds.scenario(report.STEADY, lambda _name, _attempt: figures(1.0))
        speeds = rounds.results.finished[report.STEADY].speeds
        assert speeds
        assert all(speed.loop_ms > 0 < speed.copy_gb_s for speed in speeds)

    def test_a_failed_round_is_told_and_made_up_for(self, tmp_path: Path):
        def measure(name: str, attempt: int) -> Figures:
            if name == MIXED and attempt == 0:
                raise RoundFailed("it said no")
            return figures(1.0)

        rounds = self.rounds(tmp_path)
        assert rounds.scenario(report.STEADY, measure)
        done = rounds.results.finished[report.STEADY]
        assert [done.count(name) for name in CLUSTERS] == [2, 2, 2]
        assert done.failed == [f"{MIXED}: it said no"]

    def test_a_cluster_that_always_fails_is_given_up(self, tmp_path: Path):
        attempts: list[str] = []

        def measure(name: str, _attempt: int) -> Figures:
            if name == VELA:
                attempts.append(name)
                raise RoundFailed("no")
            return figures(1.0)

        assert not self.rounds(tmp_path).scenario(report.STEADY, measure)
        assert len(attempts) == ORIGIN.rounds_wanted + SPARE_ATTEMPTS

    def test_an_interrupted_run_goes_on_where_it_was(self, tmp_path: Path):
        def interrupted(name: str, attempt: int) -> Figures:
            if (name, attempt) == (VELA, 1):
                raise KeyboardInterrupt
            return figures(float(attempt))

        with pytest.raises(KeyboardInterrupt):
            self.rounds(tmp_path).scenario(report.STEADY, interrupted)
        asked: list[str] = []

        def measure(name: str, _attempt: int) -> Figures:
            asked.append(name)
            return figures(7.0)

        again = self.rounds(tmp_path, resume=True)
        assert again.left(list(LOADS)) == list(LOADS)
        assert again.scenario(report.STEADY, measure)
        assert sorted(asked) == sorted(CLUSTERS)
        assert report.STEADY not in self.rounds(tmp_path, resume=True).left(list(LOADS))


def test_records_of_one_server_kind_keep_their_servers(tmp_path: Path):
    results = Results(tmp_path / "cluster.json", list(LOADS))
    results.finished[report.STEADY] = record([1, 2], [1, 2], [1, 2])
    results.save()
    again = Results(tmp_path / "cluster.json", list(LOADS))
    assert again.finished == results.finished
    assert again.has(report.STEADY, ORIGIN)


def test_errors_in_the_logs_of_all_parts_are_found():
    java = "2026-01-01T00:00:00,000+0000 [io-1] ERROR org.X - no"
    vela = "2026-01-01T00:00:00Z [error    ] disk too full"
    for name in ("zookeeper", "apache-bookie", "pulsar-broker"):
        assert server_problems(name, f"{java}\n{vela}") == [java]
    for name in ("vela-bookie", "vela-broker"):
        assert server_problems(name, f"{java}\n{vela}") == [vela]


def test_keys_replace_those_of_the_stock_file_or_are_added(tmp_path: Path):
    stock = tmp_path / "bookkeeper.conf"
    stock.write_text("# a=1\na=1\nb = 2\n\nc=\n")
    assert with_keys(stock, {"a": 5, "b": 6, "d": 7}) == "# a=1\na=5\nb=6\n\nc=\nd=7\n"
