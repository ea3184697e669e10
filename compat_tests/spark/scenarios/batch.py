"""Batch jobs: write, read, offsets."""

from __future__ import annotations

import time

import pulsar

from compat_tests.clients.admin_requests import schema_path
from compat_tests.spark.stage import Stage, offsets, scenario

PEOPLE = """
    SELECT id, concat('n', id) AS name, id / 4D AS score, id % 2 = 0 AS even,
           array(id, id + 1) AS pair, named_struct('city', concat('c', id)) AS place,
           '{topic}' AS __topic, concat('k', id % 3) AS __key, 1700000000000 + id AS __eventTime
    FROM range({first}, {end})
"""


@scenario("batch-write-and-read")
def write_and_read(stage: Stage) -> None:
    """A record per row, in two jobs: one schema, and every column comes back."""
    topic = stage.topic()
    for first in (0, 10):
        stage.write(stage.spark.sql(PEOPLE.format(topic=topic, first=first, end=first + 10)))
        stage.see("schema", stage.admin("GET", schema_path(topic)))
    frame = stage.read(topic=topic, **stage.http_lookup)
    stage.see_rows("read", frame)
    stage.see("columns", frame.schema.simpleString())
    reader = stage.client.create_reader(topic, pulsar.MessageId.earliest)
    messages = [reader.read_next(10_000) for _ in range(20)]
    stage.see(
        "as the Python client reads it",
        sorted([m.partition_key(), m.event_timestamp(), m.data().hex()] for m in messages),
    )
    stage.see("subscriptions left", stage.subscriptions(topic))


@scenario("batch-write-to-many-topics")
def write_to_many_topics(stage: Stage) -> None:
    frame = stage.spark.sql(
        f"SELECT concat('v', id) AS value, concat('{stage.topic()}-', id % 3) AS __topic"
        " FROM range(12)"
    )
    stage.write(frame)
    for number in range(3):
        topic = stage.topic(f"-{number}")
        stage.see("schema", stage.admin("GET", schema_path(topic)))
        stage.see_rows("read", stage.read(topic=topic))


@scenario("batch-write-refused")
def write_refused(stage: Stage) -> None:
    topic = stage.topic()
    numbers = f"SELECT id AS value, '{topic}' AS __topic FROM range(4)"
    stage.write(stage.spark.sql(numbers))
    texts = stage.spark.sql(f"SELECT 'a' AS value, '{topic}' AS __topic")
    stage.see_failure("another schema", lambda: stage.write(texts))
    records = stage.spark.sql(PEOPLE.format(topic=topic, first=0, end=2))
    stage.see_failure("records", lambda: stage.write(records))
    no_topic = stage.spark.sql("SELECT 'a' AS value")
    stage.see_failure("no topic", lambda: stage.write(no_topic))
    stage.see_failure("the option alone", lambda: stage.write(no_topic, topic=topic))
    misspelt = {"pulsar.producer.blockIfQueFull": "true"}
    again = stage.spark.sql(numbers)
    stage.see_failure("a misspelt option", lambda: stage.write(again, **misspelt))
    stage.see_rows("left", stage.read(topic=topic))


@scenario("batch-read-metadata-columns")
def metadata_columns(stage: Stage) -> None:
    """The bytes of `__messageId` are those of the id the producer was given."""
    for batched in (False, True):
        topic = stage.topic(f"-{batched}")
        before = time.time() - 60
        ids = stage.publish(
            topic,
            [f"m{number}" for number in range(10)],
            batched,
            partition_key="key",
            properties={"a": "1", "b": "ü"},
            event_timestamp=1_700_000_000_123,
        )
        stage.publish(topic, ["bare"], batched)
        rows = stage.see_rows("read", stage.read(topic=topic))
        found = {bytes(row["value"]).decode(): row for row in rows}
        for number, message_id in enumerate(ids):
            row = found[f"m{number}"]
            assert pulsar.MessageId.deserialize(bytes(row["__messageId"])) == message_id
            assert before < row["__publishTime"].timestamp() < time.time() + 60


@scenario("batch-read-offsets")
def read_offsets(stage: Stage) -> None:
    for batched in (False, True):
        topic = stage.topic(f"-{batched}")
        ids = stage.publish(topic, [f"m{number}" for number in range(20)], batched)
        earliest = pulsar.MessageId.earliest.serialize()
        latest = pulsar.MessageId.latest.serialize()
        first, middle, last = ids[0], ids[10], ids[19]
        forms = {
            "defaults": {},
            "earliest to latest": {"startingOffsets": "earliest", "endingOffsets": "latest"},
            "from the first": {"startingOffsets": offsets({topic: first})},
            "from the middle": {"startingOffsets": offsets({topic: middle})},
            "from the last": {"startingOffsets": offsets({topic: last})},
            "to the first": {"endingOffsets": offsets({topic: first})},
            "to the middle": {"endingOffsets": offsets({topic: middle})},
            "to the last": {"endingOffsets": offsets({topic: last})},
            "from the first to the middle": {
                "startingOffsets": offsets({topic: first}),
                "endingOffsets": offsets({topic: middle}),
            },
            "earliest as an id": {"startingOffsets": offsets({topic: earliest})},
            "latest as an id": {"endingOffsets": offsets({topic: latest})},
        }
        for what, options in forms.items():
            frame = stage.read(topic=topic, **options).select("value")
            stage.see_rows(f"batched {batched}: {what}", frame)


@scenario("batch-read-offsets-refused")
def read_offsets_refused(stage: Stage) -> None:
    topic = stage.topic()
    stage.publish(topic, ["a"])
    for what, options in {
        "latest as a start": {"startingOffsets": "latest"},
        "earliest as an end": {"endingOffsets": "earliest"},
        "no JSON": {"startingOffsets": "here"},
        "another topic": {"startingOffsets": offsets({topic + "-other": b"\x08\x01\x10\x01"})},
        "an unknown topic": {"topic": stage.topic("-unknown")},
        "a misspelt option": {"pulsar.reader.receiverQueSize": "10"},
        "no number": {"pollTimeoutMs": "soon"},
        "no topic": {"topic": ""},
    }.items():
        given = {"topic": topic} | options
        stage.see_failure(what, lambda given=given: stage.read(**given).collect())


@scenario("batch-read-starting-time")
def starting_time(stage: Stage) -> None:
    """3.1.1.4 leaves out the first entry at or after the time; so it does on both servers."""
    topic = stage.topic()
    moments: list[int] = []
    for number in range(6):
        stage.publish(topic, [f"m{number}"])
        moments.append(int(time.time() * 1000) + 5)
        while time.time() * 1000 <= moments[-1] + 5:
            time.sleep(0.001)
    for number in (0, 2, 4):
        frame = stage.read(topic=topic, startingTime=moments[number]).select("value")
        stage.see_rows(f"after message {number}", frame)


@scenario("batch-read-empty-topic")
def empty_topic(stage: Stage) -> None:
    topic = stage.topic()
    stage.client.create_producer(topic).close()
    stage.see("columns", stage.read(topic=topic).schema.simpleString())
    stage.see_rows("read", stage.read(topic=topic))


@scenario("batch-read-partitions")
def read_partitions(stage: Stage) -> None:
    """All partitions, from and to an id of each, and one partition by its name."""
    topic = stage.topic()
    stage.partition(topic, 3)
    names = [f"{topic}-partition-{index}" for index in range(3)]
    ids = {
        name: stage.publish(name, [f"{index} {turn}" for turn in range(10)], batched=index == 1)
        for index, name in enumerate(names)
    }
    stage.see_rows("all", stage.read(topic=topic))
    stage.see_rows("one", stage.read(topic=names[1]))
    starts = offsets({name: each[4] for name, each in ids.items()})
    ends = offsets({name: each[6] for name, each in ids.items()})
    for what, options in {
        "from an id": {"startingOffsets": starts},
        "to an id": {"endingOffsets": ends},
        "between ids": {"startingOffsets": starts, "endingOffsets": ends},
    }.items():
        stage.see_rows(what, stage.read(topic=topic, **options).select("value"))
    some = offsets({names[0]: ids[names[0]][4]})
    stage.see_failure(
        "an id of one partition",
        lambda: stage.read(topic=topic, startingOffsets=some).collect(),
    )


@scenario("batch-read-compressed")
def read_compressed(stage: Stage) -> None:
    """All but SNAPPY: the connector's jar lacks the native code of it and reads nothing."""
    for batched in (False, True):
        for kind in ("LZ4", "ZLib", "ZSTD"):
            topic = stage.topic(f"-{kind}-{batched}")
            compression = getattr(pulsar.CompressionType, kind)
            payloads = [f"{kind} {number} " + "x" * 300 for number in range(10)]
            stage.publish(topic, payloads, batched, compression)
            stage.see_rows(kind, stage.read(topic=topic).select("value"))
