"""Decisions of the benchmark: room on the disk, which rounds are put together, what is met."""

from __future__ import annotations

import json
import resource
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from bench import report, rest
from bench.__main__ import NAMES
from bench.disk_room import (
    GIBIBYTE,
    ROOM_AT_START_BYTES,
    SERVER_BYTES_MAX,
    Disk,
    refusal,
    shortage,
    stored_bytes,
)
from bench.machine_speed import MachineSpeed, machine_speed
from bench.results import Origin, Record, Results
from bench.rounds import turns, wanted_scenarios
from bench.scenarios import is_warm
from bench.session import bench_topics, in_use, server_problems
from runtime.testing.ports import free_ports

if TYPE_CHECKING:
    from pathlib import Path

ORIGIN = Origin("abc", "with compiled hot modules", 3)
LATENCY = "1,000 msg/s unbatched"


def figures(throughput: float, p99_ms: float = 1.0) -> dict[str, float]:
    return {"throughput msg/s": throughput, "publish p99 ms": p99_ms, "resident MB": 0.0}


def record(vela: list[float], pulsar: list[float], origin: Origin = ORIGIN) -> Record:
    rounds = {"vela": [figures(v) for v in vela], "pulsar": [figures(p, 4.0) for p in pulsar]}
    return Record(origin, "2026-01-02 03:04", rounds)


def page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


class TestMachineSpeed:
    def test_a_copy_goes_to_new_pages_while_the_allocator_keeps_free_ones(self):
        largest_page_bytes = 2 << 20
        copied_bytes = 3 * 64 << 20
        bytearray(30 << 20)  # from now on the allocator serves such blocks from its heap
        blocks = [bytearray(8 << 20) for _ in range(12)]
        end_of_heap = bytearray(1 << 20)
        del blocks
        before = page_faults()
        machine_speed()
        assert page_faults() - before >= copied_bytes // largest_page_bytes
        assert end_of_heap


class TestDiskRoom:
    def test_seventy_free_gigabytes_are_enough(self):
        assert refusal(Disk(250 * GIBIBYTE, 70 * GIBIBYTE), ROOM_AT_START_BYTES) is None

    def test_room_ends_before_a_server_turns_read_only(self):
        # 30 GiB are free, but of a disk so large that only 5 % of it are left to use.
        disk = Disk(1000 * GIBIBYTE, 90 * GIBIBYTE)
        told = refusal(disk, ROOM_AT_START_BYTES)
        assert told is not None
        assert "\n" not in told
        assert "needs 36.0 GiB" in told
        assert "90.0 GiB free" in told

    def test_a_server_that_fills_the_disk_is_stopped_by_name(self):
        told = shortage(Disk(100 * GIBIBYTE, 6 * GIBIBYTE), "vela", 20 * GIBIBYTE)
        assert told is not None
        assert told.startswith("vela is stopped: the disk is more than 93% full")

    def test_a_server_whose_data_grows_without_end_is_stopped(self):
        disk = Disk(1000 * GIBIBYTE, 900 * GIBIBYTE)
        assert shortage(disk, "pulsar", SERVER_BYTES_MAX) is None
        assert "its data takes" in (shortage(disk, "pulsar", SERVER_BYTES_MAX + 1) or "")

    def test_stored_bytes_are_those_of_all_files_below(self, tmp_path: Path):
        (tmp_path / "below").mkdir()
        before = stored_bytes(tmp_path)
        (tmp_path / "below" / "file").write_bytes(b"x" * 100_000)
        assert stored_bytes(tmp_path) - before >= 100_000


class TestResults:
    def test_what_was_measured_is_there_after_an_interruption(self, tmp_path: Path):
        results = Results(tmp_path / "benchmark.json", NAMES)
        begun = results.begin(LATENCY, ORIGIN, "today", resume=False)
        begun.rounds["vela"] = [figures(1.0)]
        begun.failed.append("pulsar: it said no")
        begun.speeds.append(MachineSpeed(30.5, 1.25))
        results.save(machine="small")

        again = Results(tmp_path / "benchmark.json", NAMES)
        assert again.unfinished == {LATENCY: begun}
        assert again.begin(LATENCY, ORIGIN, "tomorrow", resume=True) == begun
        assert json.loads(again.path.read_text())["machine"] == "small"
        assert [path.name for path in tmp_path.iterdir()] == ["benchmark.json"]

    def test_a_file_from_before_speeds_were_recorded_is_read(self, tmp_path: Path):
        old = asdict(record([1], [1]))
        del old["speeds"]
        path = tmp_path / "benchmark.json"
        path.write_text(json.dumps({"scenarios": {LATENCY: old}}))
        assert Results(path, NAMES).finished == {LATENCY: record([1], [1])}

    def test_rounds_of_another_commit_or_mode_are_never_added_to(self, tmp_path: Path):
        results = Results(tmp_path / "benchmark.json", NAMES)
        results.unfinished[LATENCY] = record([1], [1])
        for other in (Origin("def", ORIGIN.vela, 3), Origin("abc", "from the sources", 3)):
            begun = results.begin(LATENCY, other, "today", resume=True)
            assert begun.rounds == {}

    def test_an_unfinished_record_does_not_replace_a_complete_one(self, tmp_path: Path):
        results = Results(tmp_path / "benchmark.json", NAMES)
        complete = record([1, 2, 3], [1, 2, 3], Origin("old", "from the sources", 3))
        results.finished[LATENCY] = complete
        begun = results.begin(LATENCY, ORIGIN, "today", resume=False)
        begun.rounds = record([1, 2], [1, 2, 3]).rounds
        assert not results.finish(LATENCY)
        assert results.shown() == {LATENCY: complete}

        begun.rounds["vela"].append(figures(9))
        assert results.finish(LATENCY)
        assert results.shown() == {LATENCY: begun}
        assert results.unfinished == {}

    def test_only_a_complete_record_of_this_commit_is_left_out_by_resume(self, tmp_path: Path):
        results = Results(tmp_path / "benchmark.json", NAMES)
        results.unfinished[LATENCY] = record([1, 2], [1, 2, 3])
        assert not results.has(LATENCY, ORIGIN)
        results.finished[LATENCY] = record([1, 2, 3], [1, 2, 3])
        assert results.has(LATENCY, ORIGIN)
        assert not results.has(LATENCY, Origin("new", ORIGIN.vela, 3))

    def test_merged_scenarios_keep_the_order_of_the_table(self, tmp_path: Path):
        results = Results(tmp_path / "benchmark.json", NAMES)
        for name in (NAMES[3], NAMES[1]):
            results.finished[name] = record([1], [1])
        results.unfinished[NAMES[2]] = record([1], [])
        assert list(results.shown()) == NAMES[1:4]


class TestReport:
    def test_a_row_has_least_median_and_most_and_judges_the_medians(self):
        rows = report.rows({LATENCY: record([30, 10, 20], [10, 20, 40])})
        throughput, p99, resident = rows
        assert throughput.vela == report.Spread(10, 20, 30)
        assert throughput.ratio == 1.0
        assert (throughput.target, throughput.met) == ("ratio >= 1", "met")
        assert (p99.ratio, p99.target, p99.met) == (0.25, "ratio <= 0.5", "met")
        assert (resident.ratio, resident.target, resident.met) == (None, "", "")

    def test_slower_is_missed(self):
        (row, *_) = report.rows({LATENCY: record([9], [10])})
        assert row.met == "missed"

    def test_a_ratio_that_misses_its_bound_never_looks_equal_to_it(self):
        (row, *_) = report.rows({LATENCY: record([9_998], [10_000])})
        assert (row.met, report.ratio_text(row)) == ("missed", "0.9998")
        (row, *_) = report.rows({LATENCY: record([9_000], [10_000])})
        assert report.ratio_text(row) == "0.9"

    def test_start_up_is_judged_by_velas_own_figure(self):
        target = report.target_of(report.START, "ready s")
        assert target is not None
        assert target.judge(ratio=5.0, vela=0.4) == "met"
        assert target.judge(ratio=0.1, vela=0.6) == "missed"

    def test_a_start_with_very_many_topics_has_a_target_of_its_own(self):
        target = report.target_of(rest.RESTART, "ready s")
        assert target is not None
        assert target.judge(ratio=5.0, vela=2.9) == "met"

    @pytest.mark.parametrize(
        ("scenario", "figure"),
        [*report.RATIOS_MAX, *report.EARLIER_OF_VELA, (report.COLD, "publish p99 ms")],
    )
    def test_a_target_is_that_of_a_scenario_of_the_benchmark(self, scenario: str, figure: str):
        assert scenario in NAMES
        assert report.target_of(scenario, figure) is not None

    def test_a_target_that_is_half_of_an_earlier_figure_says_so(self):
        target = report.target_of("catch-up, Key_Shared, 100 consumers", report.CPU)
        assert target is not None
        assert target.text == "Vela <= 8.75 (half of the earlier 17.5)"
        assert target.judge(ratio=0.1, vela=9.0) == "missed"
        assert target.judge(ratio=2.0, vela=8.0) == "met"

    def test_a_figure_that_pulsar_has_not_is_shown_without_a_ratio(self):
        both = record([1, 2, 3], [4, 5, 6])
        for figures in both.rounds["vela"]:
            figures["turns over 5 ms of CPU in three /metrics"] = 0.0
        row = report.rows({rest.LOADED: both})[-1]
        assert (row.pulsar, row.ratio, row.met) == (None, None, "met")
        assert "| none | ? | Vela <= 0 | met |" in report.table({rest.LOADED: both})

    def test_a_scenario_of_one_server_alone_is_not_compared(self):
        assert report.rows({LATENCY: record([1], [])}) == []

    def test_the_table_says_what_does_not_count(self):
        shown = record([1, 2], [1, 2, 3])
        shown.failed.append("vela: 2 lines tell of errors:\nWARN x")
        told = report.origins({LATENCY: shown})
        assert "2 vela, 3 pulsar of 3: unfinished" in told
        assert f"* {LATENCY}, vela: 2 lines tell of errors: WARN x" in told
        assert ORIGIN.vela in told
        assert ORIGIN.commit in told

    def test_the_speed_of_the_machine_is_beside_what_was_measured_then(self):
        shown, old = record([1], [1]), record([2], [2])
        shown.speeds = [MachineSpeed(30, 1), MachineSpeed(31.5, 1.25), MachineSpeed(90, 4)]
        told = report.origins({LATENCY: shown, report.START: old})
        assert "| 31.5 | 1.25 |" in told
        assert "| not recorded | not recorded |" in told

    def test_the_page_says_that_pulsar_does_not_sync(self):
        page = report.document({LATENCY: record([1, 2, 3], [1, 2, 3])}, "a machine")
        assert "journalSyncData=true" in page
        assert "does not sync its journal" in page
        assert "| 2 (1 to 3) | 2 (1 to 3) | 1 | ratio >= 1 | met |" in page

    @pytest.mark.parametrize("names", [[], [report.START], [LATENCY], NAMES])
    def test_a_part_of_the_scenarios_can_be_drawn(self, tmp_path: Path, names: list[str]):
        report.plot({name: record([1, 2, 3], [4, 5]) for name in names}, tmp_path / "ratios.png")
        assert (tmp_path / "ratios.png").read_bytes().startswith(b"\x89PNG")


def test_a_server_is_warm_when_it_gets_no_faster():
    assert not is_warm([])
    assert not is_warm([10.0])
    assert not is_warm([10.0, 20.0])
    assert not is_warm([10.0, 20.0, 22.0])
    assert is_warm([10.0, 20.0, 20.5])
    assert is_warm([20.0, 12.0])


def test_only_topics_of_the_benchmark_are_deleted():
    named = ["persistent://public/default/bench-cold-3-7", "persistent://public/default/orders"]
    assert bench_topics(named) == ["public/default/bench-cold-3-7"]


def test_errors_in_a_servers_log_are_found():
    vela = "2026-01-01T00:00:00Z [info     ] fine\n2026-01-01T00:00:00Z [error    ] disk too full"
    assert server_problems("vela", vela) == ["2026-01-01T00:00:00Z [error    ] disk too full"]
    pulsar = (
        "2026-01-01T00:00:00,000+0000 [io-1] WARN  org.X - Connection reset by peer\n"
        "2026-01-01T00:00:00,000+0000 [io-1] ERROR org.X - no\n"
    )
    assert len(server_problems("pulsar", pulsar)) == 1


def test_every_other_round_begins_with_the_other_server():
    assert [turns(attempt, ["vela", "pulsar"])[0] for attempt in range(3)] == [
        "vela",
        "pulsar",
        "vela",
    ]


def test_scenarios_are_chosen_by_a_part_of_their_name():
    assert wanted_scenarios(NAMES, None) == NAMES
    assert wanted_scenarios(NAMES, ["1,000"]) == [LATENCY]
    with pytest.raises(ValueError, match="no scenario has 'nothing'"):
        wanted_scenarios(NAMES, ["1,000", "nothing"])


def test_a_topic_is_in_use_while_the_server_sees_a_client_on_it():
    def stats(publishers: list[Any], *consumers: list[Any]) -> dict[str, Any]:
        subscriptions = {str(number): {"consumers": each} for number, each in enumerate(consumers)}
        return {"publishers": publishers, "subscriptions": subscriptions}

    assert not in_use(stats([]))
    assert not in_use(stats([], [], []))
    assert in_use(stats([{}], []))
    assert in_use(stats([], [], [{}]))


def test_turns_over_their_budget_are_counted_from_the_metrics_page():
    name = "vela_event_loop_stall_cpu_seconds_bucket"
    page = "\n".join(
        f'{name}{{cluster="standalone",kind="{kind}",name="f",le="{bound}"}} {count}'
        for kind, bound, count in [
            ("turn", "0.003", 4.0),
            ("turn", "0.005", 7.0),
            ("turn", "+Inf", 9.0),
            ("callback", "0.005", 1.0),
            ("callback", "+Inf", 5.0),
        ]
    )
    assert rest.turns_over(page) == 2.0


def test_nobody_listening_is_not_ready():
    (port,) = free_ports(1)
    assert not rest.can_produce(port)
