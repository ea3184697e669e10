"""Conclusions of the isolation benchmark from its figures, and its neighbours at work."""

from __future__ import annotations

import json

import pytest

from bench import scenarios
from bench.isolation_loads import RUNS, Backlog, Place
from bench.isolation_report import ALONE, COLD_TOPICS, NEIGHBOURS, STILL, Report
from bench.stalls import between, counts_of
from bench.victim import Program, Victim
from compat_tests.oracle.vela_server import VelaServer
from runtime.watchdog import LoopWatchdog
from web.prometheus import Page, add_stall_series


def measured(p50, p99, **more):
    return {"publish": {"p50": p50, "p99": p99, "max": p99}, "done per s": 300.0, **more}


def report(beside, alone=(1.0, 3.0)):
    made = Report()
    made.add("vela", NEIGHBOURS, ALONE, measured(*alone))
    made.add("vela", NEIGHBOURS, "cold", measured(*beside))
    return made


@pytest.mark.parametrize(
    ("beside", "is_met"),
    [
        ((2.0, 9.0), True),
        ((2.1, 9.0), False),
        ((2.0, 9.1), False),
    ],
)
def test_both_ratios_have_a_bound(beside, is_met):
    assert report(beside).is_met(NEIGHBOURS, "cold") is is_met
    assert report(beside).missed() == ([] if is_met else ["neighbours, cold"])


def test_the_p99_has_a_bound_of_its_own():
    assert report((1.0, 10.1), alone=(1.0, 5.0)).is_met(NEIGHBOURS, "cold") is False
    assert report((1.0, 9.9), alone=(1.0, 5.0)).is_met(NEIGHBOURS, "cold") is True


def test_cold_topics_have_a_bound_up_to_a_rate():
    made = Report()
    for rate, p99 in ((20, 4.9), (40, 5.1), (80, 50.0)):
        made.add("vela", COLD_TOPICS, str(rate), measured(1.0, p99))
    verdicts = [made.is_met(COLD_TOPICS, str(rate)) for rate in (10, 20, 40, 80)]
    assert verdicts == [None, True, False, None]


def page_of(watchdog):
    page = Page()
    add_stall_series(page, watchdog, {"cluster": "c"})
    return counts_of("".join(page.pieces()))


def test_the_longest_turn_between_two_looks_is_told_with_its_name():
    now = [0.0]
    watchdog = LoopWatchdog(lambda: now[0], lambda: now[0] / 4)

    def turn(call, seconds):
        watchdog.after_io_wait(0.0)
        now[0] += seconds
        watchdog.called(call, seconds)
        watchdog.after_task_step(Task)
        watchdog.after_io_wait(0.0)

    class Task:
        name = "a.b.c"

    turn(json.dumps, 0.9)
    before = page_of(watchdog)
    assert between({}, before)["longest ms"] == 1000.0
    turn(json.dumps, 0.006)
    turn(json.loads, 0.025)
    assert between(before, page_of(watchdog)) == {
        "turns": 2,
        "callbacks": 2,
        "longest ms": 30.0,
        "longest": "loads",
        "longest CPU ms": 7.0,
        "longest CPU": "loads",
    }


def test_the_page_has_what_was_measured_and_what_failed():
    stalls = {
        "turns": 3, "callbacks": 5, "longest ms": 30.0, "longest": "Pump._go_on",
        "longest CPU ms": float("inf"), "longest CPU": "session FLOW",
    }  # fmt: skip
    made = report((3.0, 9.0))
    made.add("vela", NEIGHBOURS, "cold", measured(3.0, 9.0, stalls=stalls))
    made.add("pulsar", COLD_TOPICS, "40", measured(1.0, 9.0))
    made.failures.append("pulsar, cold: no end")
    about = {"date": "d", "commit": "c", "vela": "v", "pulsar": "p", "machine": "m"}
    text = made.document({**about, "rounds": 3, "seconds": 6.0})
    assert "**missed**" in text
    assert "3 turns over 5 ms; up to 30 ms: Pump._go_on; up to more than 1,000 ms of CPU" in text
    assert "| pulsar | 40 | 1 | 9 | 300 |  |" in text, "a round whose disk was not watched"
    assert "no end" in text
    again = Report()
    again.restore(json.loads(json.dumps(made.as_json(about))))
    assert again.rounds == made.rounds


def test_the_page_tells_how_long_the_disk_stood_still_in_the_rounds_that_watched_it():
    made = Report()
    for more in ({}, {STILL: 12.0}, {STILL: 30.0}):
        made.add("pulsar", COLD_TOPICS, "40", measured(1.0, 9.0, **more))
    assert "| 21 (12 to 30) |" in made.cold_table()


def test_rounds_of_several_sittings_name_their_commits():
    first = Report("old")
    first.add("vela", NEIGHBOURS, "cold", measured(1.0, 2.0))
    second = Report("new")
    second.restore(json.loads(json.dumps(first.as_json({"commit": "old"}))))
    for _ in range(2):
        second.add("vela", NEIGHBOURS, "cold", measured(1.0, 2.0))
    second.add("vela", COLD_TOPICS, "40", measured(1.0, 2.0))
    assert "reading a cold backlog of 10 KB entries | 1 of old, 2 of new |" in second.commits()
    assert "| vela | cold topics | 40 MB/s | 1 of new |" in second.commits()


def test_rounds_written_before_they_named_a_commit_are_those_of_their_page():
    written = {
        "about": {"commit": "old"},
        "rounds": [
            {"server": "vela", "part": NEIGHBOURS, "case": "cold", "measured": [measured(1, 2)]}
        ],
        "failures": [],
    }
    made = Report("new")
    made.restore(written)
    assert "1 of old" in made.commits()


@pytest.fixture(scope="module")
def vela(tmp_path_factory):
    server = VelaServer(tmp_path_factory.mktemp("isolation"))
    try:
        server.start()
        yield server
    finally:
        server.kill()


def test_latencies_from_end_to_end_are_measured_in_fractions_of_a_millisecond(vela, monkeypatch):
    monkeypatch.setattr(scenarios, "WINDOW_SECONDS", 0.3)
    looks = []
    bench = scenarios.Bench(
        windows=1, catch_up_messages=0, cold_messages_per_topic=0, look=looks.append
    )
    found = scenarios._victim_figures(bench, vela)["end to end"]
    assert 0 < found["p50"] <= found["p99"]
    assert found["p50"] != round(found["p50"])
    assert looks == [vela]


class After:
    """Told to stop when the condition holds."""

    def __init__(self, holds):
        self.look = holds


def test_a_backlog_is_read_again_and_again(vela, capsys):
    backlog = Backlog(2, 2, messages=40, size_bytes=1000, queue_messages=10)
    path = "persistent/public/default/backlog"
    place = Place(vela.service_url, vela.web_url, vela.directory, path.replace("/", "://", 1))
    backlog.fill(place)

    def delivered():
        stats = vela.http("GET", f"/admin/v2/{path}-1/stats")[1]
        return [each["msgOutCounter"] for each in stats["subscriptions"].values()]

    read = backlog.read(After(lambda: min(delivered()) > 3 * 40), place)
    assert read * 1_000_000 >= 2 * 2 * 2 * 40 * 1000
    assert capsys.readouterr().out == "begun\n"


@pytest.mark.parametrize("kind", sorted(set(RUNS) - {"cold", "cold topics"}))
def test_a_neighbour_works_until_it_is_ended(vela, kind):
    topic = f"persistent://public/default/neighbour-{kind}"
    arguments = (kind, vela.service_url, vela.web_url, str(vela.directory), topic)
    load = Program("bench.isolation_loads", *arguments)
    try:
        assert load.line(60) == "begun\n"
        assert json.loads(load.finish())["seconds"] > 0
    finally:
        load.close()


def test_a_victim_publishes_on_many_topics_at_the_rate_it_is_told(vela):
    topic = "persistent://public/default/victim"
    victim = Victim(vela.service_url, topic, "--topics", "3", "--size-bytes", "2000")
    try:
        assert victim.figures(1.0, 90)["publish"]["count"] in (89, 90)
    finally:
        victim.close()
    stats = vela.http("GET", "/admin/v2/persistent/public/default/victim-2/stats")[1]
    assert stats["bytesInCounter"] >= 2000 * stats["msgInCounter"] > 0
