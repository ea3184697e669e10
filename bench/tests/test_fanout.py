"""Conclusions of the fan-out benchmark from its figures."""

from __future__ import annotations

import json

from bench import fanout_report as report
from bench.fanout import SCALED, disturbed_rows, neighbour_rows, rows
from bench.fanout_report import Load, Measured, Row

LIMITED = Row("vela", "broadcast", 20_000, 16, 3, {"delivery p99 s": 0.15, "lost": 0})


def figures(p99: float | None, lost: int = 0) -> report.Figures:
    return {"subscribe all s": 2.0, "delivery p99 s": p99, "lost": lost}


def measured(row: Row, *p99: float | None) -> Measured:
    return Measured(row, [figures(value) for value in p99])


def test_a_limit_is_of_the_median_and_a_figure_that_is_not_there_misses_it():
    assert measured(LIMITED, 0.1, 0.14, 0.9).missed() == []
    assert measured(LIMITED, 0.1, 0.16, 0.9).missed() == ["delivery p99 s"]
    assert measured(LIMITED, 0.1, None, 0.1).missed() == ["delivery p99 s"]
    assert measured(LIMITED).missed() == ["delivery p99 s", "lost"]


def test_ratios_compare_both_modes_with_pulsar_at_the_same_number_of_consumers():
    pulsar = measured(Row("pulsar", "own", 20_000, 16, 1), 22.0)
    own = measured(Row("vela", "own", 20_000, 16, 1), 11.0)
    others = measured(Row("vela", "broadcast", 5_000, 16, 1), 1.0)
    many = measured(Row("vela", "broadcast", 20_000, 20_000, 1), 5.0)

    made = report.ratios([pulsar, own, others, many, measured(LIMITED, 0.22)])

    assert [(each["mode"], each["ratio"]["delivery p99 s"]) for each in made] == [
        ("broadcast", 0.01),
        ("own", 0.5),
    ]


def test_a_row_over_tls_or_of_another_load_says_so_and_is_not_compared_with_pulsar():
    pulsar = measured(Row("pulsar", "own", 20_000, 16, 1), 22.0)
    secured = measured(Row("vela", "broadcast", 20_000, 16, 1, is_over_tls=True), 0.5)
    load = Load(messages=6, size_bytes=1_000, rate=0.2)
    small = measured(Row("vela", "broadcast", 20_000, 16, 1, load=load), 0.1)
    million = measured(Row("vela", "broadcast", 1_000_000, 640, 1, load=load), 0.7)

    assert report.ratios([pulsar, secured, small, million]) == []
    text = report.table([secured, million])
    assert "20,000 on 16, over TLS |" in text
    assert "1,000,000 on 640, 6 messages of 1,000 bytes at 0.2 a second |" in text


def test_what_one_process_cannot_read_is_read_by_two_unless_neighbours_are_measured():
    plain = Row("vela", "broadcast", 100_000, 64, 1)
    few = Row("vela", "broadcast", 100_000, 64, 1, load=Load(rate=0.5))
    often = Row("vela", "broadcast", 50_000, 32, 1, load=Load(rate=2.0))
    half, *_ = (row for row in rows(1) if (row.mode, row.consumers) == ("broadcast", 50_000))

    assert [row.processes for row in (plain, often)] == [2, 2]
    assert [row.processes for row in (few, half, *neighbour_rows(100_000, 64, 1))] == [1] * 4


def test_more_than_double_is_shown_in_bold():
    series = [
        measured(Row("vela", "broadcast", consumers, 16, 1), p99)
        for consumers, p99 in zip(SCALED, (0.1, 0.2, 0.5), strict=True)
    ]

    text = report.scaling_table(series, SCALED)

    assert "| x 1.00 | ? | x 2.00 | ?" in text
    assert "**x 2.50**" in text


def test_the_rows_fit_each_other_and_the_document_holds_all_of_them(tmp_path):
    everything = [measured(row, *[0.1] * row.rounds) for row in rows(3)]
    everything[0].failed.append("no end")
    about = {"date": "d", "commit": "c", "vela": "v", "pulsar": "p", "machine": "m", "messages": 15}

    text = report.document(everything, SCALED, about, ["fanout.png"])
    report.plot(everything, tmp_path / "fanout.png")

    assert all(each.row.name in text for each in everything)
    assert len(report.ratios(everything)) == 4
    assert len(report.scaling(everything, SCALED)) == 2
    assert "no end" in text
    assert json.loads(json.dumps(report.as_json(everything, SCALED, about)))["rows"]


def test_variants_are_compared_with_the_plain_row_and_are_no_rows_of_their_own():
    stuck, silent = disturbed_rows(20_000, 16, 3)
    everything = [measured(stuck, 0.1), measured(silent, 0.2), measured(LIMITED, 0.1)]

    made = report.disturbed(everything)

    assert [(each["p99 ratio"], each["met"]) for each in made] == [(1.0, True), (2.0, False)]
    assert "1 % never acknowledge" not in report.table(everything)
    assert "**2**" in report.disturbed_table(everything)


def test_neighbours_are_held_to_twice_their_latency_on_the_same_broker_alone():
    here, elsewhere = neighbour_rows(100_000, 64, 1)
    found = {
        "before": {"p50": 0.001, "p99": 0.002},
        "beside": {"p50": 0.002, "p99": 0.005},
        "ratio": {"p50": 2.0, "p99": 2.5},
    }
    topic = report.neighbour_figures({"topic": found})
    second = report.neighbour_figures({"second subscription": found | {"ratio": found["before"]}})
    everything = [Measured(here, [topic | second]), Measured(elsewhere, [topic])]

    text = report.neighbour_table(everything)

    assert everything[0].missed() == ["topic p99 ratio"]
    assert everything[1].missed() == []
    assert text.count("**no**") == 1
    assert text.count("another topic") == 2
    assert text.count("a second subscription") == 1


def test_rounds_of_neighbours_that_differ_are_shown_beside_their_median():
    here, _ = neighbour_rows(100_000, 64, 2)
    latency = {"p50": 0.001, "p99": 0.002}
    rounds = [
        report.neighbour_figures(
            {"topic": {"before": latency, "beside": latency, "ratio": {"p50": 1.0, "p99": factor}}}
        )
        for factor in (0.8, 4.4)
    ]

    assert "2.6 (0.8 to 4.4)" in report.neighbour_table([Measured(here, rounds)])
