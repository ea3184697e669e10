"""Failures: trimmed data, misspelt options, servers that go away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial

import pulsar

from compat_tests.clients.admin_requests import topic_path
from compat_tests.spark.stage import Stage, offsets, scenario, wait_until

ENTRIES_PER_LEDGER = 25


NAMESPACE = "public/trimmed"
JOB_START_TIMEOUT_SECONDS = 150.0


def _topic_that_is_trimmed(stage: Stage, name: str) -> tuple[str, list[pulsar.MessageId]]:
    """A topic of 60 messages in a namespace that retains nothing; the ids."""
    stage.admin("PUT", f"/admin/v2/namespaces/{NAMESPACE}")
    policy = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    stage.admin("POST", f"/admin/v2/namespaces/{NAMESPACE}/retention", policy)
    topic = f"persistent://{NAMESPACE}/{stage.topic_base.rpartition('/')[2]}-{name}"
    stage.client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest).close()
    return topic, stage.publish(topic, [f"m{number:02}" for number in range(60)])


def _trim(stage: Stage, topic: str, last: pulsar.MessageId) -> None:
    """Acknowledge everything and wait until the ledger of an id is gone."""

    def is_gone() -> bool:
        stage.admin("POST", topic_path(topic) + "/subscription/s/skip_all")
        stage.admin("PUT", topic_path(topic) + "/unload")
        status, text = stage.admin.raw("GET", topic_path(topic) + "/internalStats")
        if status != 200:
            return False
        ledgers = [each["ledgerId"] for each in json.loads(text)["ledgers"]]
        return last.ledger_id() not in ledgers

    wait_until(is_gone, "what was acknowledged is trimmed")


@scenario("fail-on-data-loss")
def fail_on_data_loss(stage: Stage) -> None:
    """A start that was trimmed away."""
    topic, ids = _topic_that_is_trimmed(stage, "start")
    _trim(stage, topic, ids[3])
    stage.publish(topic, ["left0", "left1", "left2"])
    start = offsets({topic: ids[3]})
    for fail in ("true", "false"):
        options = {"topic": topic, "startingOffsets": start, "failOnDataLoss": fail}

        def batch(options: dict[str, str] = options) -> None:
            stage.see_rows("batch", stage.read(**options).select("value"))

        def stream(options: dict[str, str] = options, name: str = fail) -> None:
            _run(stage, name, options)
            stage.see_rows("streamed", stage.files(name).select("value"))

        stage.see_failure(f"batch, {fail}", batch)
        stage.see_failure(f"stream, {fail}", stream)


@scenario("fail-on-data-loss-between-runs")
def fail_on_data_loss_between_runs(stage: Stage) -> None:
    """Messages at the position of a checkpoint and after it are trimmed."""
    for fail in ("true", "false"):
        topic, ids = _topic_that_is_trimmed(stage, f"gap-{fail}")
        options = {"topic": topic, "startingOffsets": "earliest", "failOnDataLoss": fail}
        _run(stage, fail, options)
        stage.see("before", stage.files(fail).count())
        stage.publish(topic, [f"lost{number}" for number in range(5)])
        _trim(stage, topic, ids[59])
        stage.publish(topic, [f"left{number}" for number in range(5)])
        run = partial(_run, stage, fail, options)
        stage.see_failure(f"{fail}: over the gap", run)
        stage.see_failure(f"{fail}: again", run)
        stage.see_rows("rows", stage.files(fail).select("value"))


def _run(stage: Stage, name: str, options: dict[str, str]) -> None:
    """One run of a query that goes on at its checkpoint."""
    query = stage.to_files(stage.read_stream(**options), name)
    try:
        query.processAllAvailable()
    finally:
        query.stop()


@scenario("options-misspelt")
def options_misspelt(stage: Stage) -> None:
    topic = stage.topic()
    stage.publish(topic, ["a"])
    for what, options in {
        "a client setting": {"pulsar.client.operationTimeoutMsec": "100"},
        "a reader setting": {"pulsar.reader.queueSize": "100"},
        "no address": {"service.url": ""},
        "no admin address": {"admin.url": ""},
        "two kinds of topics": {"topics": topic},
        "a bad start": {"startingOffsets": "yesterday"},
        "a bad pattern": {"topicsPattern": topic},
    }.items():
        given = {"topic": topic, "startingOffsets": "earliest"} | options

        name = what.replace(" ", "-")
        stage.see_failure(what, partial(_run, stage, name, given))


@scenario("server-restarted-between-queries", own_server=True)
def server_restarted(stage: Stage) -> None:
    """Between two runs of a query the server is stopped, then killed: nothing lost or doubled."""
    topic = stage.topic()
    stage.publish(topic, [f"m{number}" for number in range(30)])
    stream = stage.read_stream(topic=topic, startingOffsets="earliest")
    query = stage.to_files(stream)
    query.processAllAvailable()
    stage.see("before", stage.files().count())
    query.stop()
    for how in ("stop", "kill"):
        stage.ask_of_server(how)
        stage.ask_of_server("start")
        stage.forget_client()
        stage.publish(topic, [f"after {how} {number}" for number in range(30)])
        query = stage.to_files(stream)
        query.processAllAvailable()
        query.stop()
        stage.see(f"after {how}", stage.files().count())
    stage.see_rows("rows", stage.files().select("value"))


@scenario("server-killed-under-a-query", own_server=True)
def server_killed(stage: Stage) -> None:
    """A query that loses its server fails or waits; started again it goes on."""
    topic = stage.topic()
    stage.publish(topic, [f"m{number}" for number in range(30)])
    stream = stage.read_stream(topic=topic, startingOffsets="earliest")
    query = stage.to_files(stream)
    query.processAllAvailable()
    stage.ask_of_server("kill")
    wait_until(lambda: not query.isActive, "the query has noticed")
    stage.ask_of_server("start")
    stage.forget_client()
    stage.publish(topic, [f"after {number}" for number in range(30)])
    query = stage.to_files(stream)
    query.processAllAvailable()
    query.stop()
    stage.see_rows("rows", stage.files().select("value"))


@scenario("driver-killed")
def driver_killed(stage: Stage) -> None:
    """kill -9 of a whole job under live publishing; the next one goes on at its checkpoint."""
    topic = stage.topic()
    stage.publish(topic, [f"m{number:03}" for number in range(30)])
    log_path = stage.directory / "job.log"
    with open(log_path, "wb") as log:
        job = subprocess.Popen(
            [
                *(sys.executable, "-m", "compat_tests.spark.stream_job"),
                *(stage.jar, str(stage.directory / "spark"), stage.service_url, stage.web_url),
                *(topic, str(stage.directory / "files")),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        first = stage.directory / "files" / "_spark_metadata" / "0"
        wait_until(
            lambda: first.exists() or job.poll() is not None,
            "the job has written",
            JOB_START_TIMEOUT_SECONDS,
        )
        assert job.poll() is None, log_path.read_text(errors="replace")[-2000:]
        stage.publish(topic, [f"m{number:03}" for number in range(30, 60)])
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    stage.see("leaked", stage.subscriptions(topic))
    stage.publish(topic, [f"m{number:03}" for number in range(60, 90)])
    _run(stage, "files", {"topic": topic, "startingOffsets": "earliest"})
    stage.see_rows("rows", stage.files().select("value"))
    stage.see("subscriptions", stage.subscriptions(topic))
