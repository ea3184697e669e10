"""Several topics, patterns, topics that come and go."""

from __future__ import annotations

from compat_tests.clients.admin_requests import topic_path
from compat_tests.spark.stage import Stage, offsets, scenario, wait_until


@scenario("topics-listed")
def listed(stage: Stage) -> None:
    names = [stage.topic(f"-{number}") for number in range(3)]
    ids = {
        name: stage.publish(name, [f"{number} {turn}" for turn in range(6)])
        for number, name in enumerate(names)
    }
    topics = ",".join(names)
    stage.see_rows("batch", stage.read(topics=topics))
    starts = offsets({name: each[3] for name, each in ids.items()})
    stage.see_rows("from ids", stage.read(topics=topics, startingOffsets=starts))
    some = offsets({names[0]: ids[names[0]][3]})
    stage.see_failure(
        "an id for one of them", lambda: stage.read(topics=topics, startingOffsets=some).collect()
    )
    query = stage.to_files(stage.read_stream(topics=topics, startingOffsets="earliest"))
    query.processAllAvailable()
    stage.publish(names[1], ["late"])
    query.processAllAvailable()
    query.stop()
    stage.see_rows("stream", stage.files())
    for name in names:
        stage.see("subscriptions left", stage.subscriptions(name))


@scenario("topics-by-pattern")
def by_pattern(stage: Stage) -> None:
    """A topic that appears while the query runs is read from its beginning."""
    pattern = stage.topic("-yes-.*")
    for number in range(2):
        stage.publish(stage.topic(f"-yes-{number}"), [f"{number} {turn}" for turn in range(4)])
        stage.publish(stage.topic(f"-no-{number}"), ["not this"])
    stage.see_rows("batch", stage.read(topicsPattern=pattern))
    query = stage.to_files(stage.read_stream(topicsPattern=pattern, startingOffsets="earliest"))
    query.processAllAvailable()
    stage.see("first", stage.files().count())
    stage.partition(stage.topic("-yes-parted"), 2)
    for index in range(2):
        stage.publish(stage.topic(f"-yes-parted-partition-{index}"), [f"parted {index}"])
    stage.publish(stage.topic("-yes-new"), ["new 0", "new 1"])
    stage.publish(stage.topic("-yes-0"), ["old"])
    wait_until(lambda: stage.files().count() == 13, "the new topics' rows are there")
    query.stop()
    stage.see_rows("stream", stage.files())


@scenario("topics-of-different-schemas")
def different_schemas(stage: Stage) -> None:
    names = [stage.topic(f"-{kind}") for kind in ("number", "text")]
    for name, value in zip(names, ("id", "concat('v', id)"), strict=True):
        stage.write(stage.spark.sql(f"SELECT {value} AS value, '{name}' AS __topic FROM range(3)"))
    topics = ",".join(names)
    stage.see_failure("not allowed", lambda: stage.read(topics=topics).collect())
    frame = stage.read(topics=topics, allowDifferentTopicSchemas="true")
    stage.see("columns", frame.schema.simpleString())
    stage.see_rows("allowed", frame)


@scenario("topics-deleted-between-runs")
def deleted_between_runs(stage: Stage) -> None:
    """One of two topics is deleted, and created again with more than it had."""
    kept, gone = stage.topic("-kept"), stage.topic("-gone")
    for name in (kept, gone):
        stage.publish(name, [f"{name[-4:]} {turn}" for turn in range(3)])

    def run() -> None:
        query = stage.to_files(
            stage.read_stream(topicsPattern=stage.topic("-.*"), startingOffsets="earliest")
        )
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    run()
    stage.see("first", stage.files().count())
    stage.see("delete", stage.admin("DELETE", topic_path(gone) + "?force=true"))
    stage.publish(kept, ["kept after"])
    stage.see_failure("without it", run)
    stage.see("files", stage.files().count())
    stage.publish(gone, [f"again {turn}" for turn in range(6)])
    stage.publish(kept, ["kept at last"])
    stage.see_failure("with it anew", run)
    stage.see_rows("rows", stage.files())
