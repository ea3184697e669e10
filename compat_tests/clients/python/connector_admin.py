"""Requests of the Spark connector 3.1.1.4 to the admin API, one by one.

Its driver does everything by REST: schemas, partitions, lists, last ids, and one durable
subscription per partition that it creates, moves and removes without ever connecting to it.
"""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from compat_tests.clients.admin_requests import (
    EARLIEST,
    LATEST,
    AdminRequests,
    decoded,
    schema_path,
    topic_path,
)
from compat_tests.clients.python.scenario import Stage, receive_many, scenario, send_all, texts

if TYPE_CHECKING:
    import pulsar

RECORD = {
    "type": "record",
    "name": "topLevelRecord",
    "fields": [{"name": "straße", "type": ["string", "null"]}, {"name": "n", "type": "int"}],
}
AVRO_TEXTS = {
    "compact": json.dumps(RECORD, separators=(",", ":"), ensure_ascii=False),
    "indented": json.dumps(RECORD, indent=2, ensure_ascii=False),
    "escaped": json.dumps(RECORD) + "\n",
}
PRIMITIVES = (
    *("STRING", "BOOLEAN", "INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE", "DATE"),
    *("TIMESTAMP", "TIME", "NONE", "BYTES", "INSTANT", "LOCAL_DATE", "LOCAL_TIME"),
    "LOCAL_DATE_TIME",
)


def _schema(kind: str, text: str = "", **properties: str) -> dict[str, Any]:
    return {"type": kind, "schema": text, "properties": properties}


@scenario("connector-schemas")
def schemas(stage: Stage) -> None:
    admin = AdminRequests(stage.server.web_url)
    stage.see("unknown topic", admin("GET", schema_path(stage.topic())))
    for name, text in AVRO_TEXTS.items():
        for kind in ("AVRO", "JSON"):
            path = schema_path(stage.topic(f"-{kind}-{name}"))
            stage.see("before the topic exists", admin("POST", path, _schema(kind, text)))
            stage.see("read back", admin("GET", path))
            stage.see("posted again", admin("POST", path, _schema(kind, text)))
            assert decoded(admin.raw("GET", path)[1])["data"] == text
    for kind in PRIMITIVES:
        path = schema_path(stage.topic(f"-{kind}"))
        stage.see(f"post {kind}", admin("POST", path, _schema(kind)))
        stage.see("read back", admin("GET", path))
        if kind != "BYTES":  # kept as NONE, and real Pulsar then refuses it as another type
            stage.see(f"post {kind} again", admin("POST", path, _schema(kind)))
            stage.see("read back", admin("GET", path))
    path = schema_path(stage.topic("-properties"))
    given = _schema("AVRO", AVRO_TEXTS["compact"], __alwaysAllowNull="true", b="ü", a="")
    stage.see("post properties", admin("POST", path, given))
    stage.see("properties", admin("GET", path))


@scenario("connector-schema-refusals")
def schema_refusals(stage: Stage) -> None:
    admin = AdminRequests(stage.server.web_url)
    path = schema_path(stage.topic())
    admin("POST", path, _schema("AVRO", AVRO_TEXTS["compact"]))
    other = json.dumps(RECORD | {"fields": [{"name": "n", "type": "string"}]})
    for what, schema in (
        ("another record", _schema("AVRO", other)),
        ("a primitive", _schema("STRING")),
        ("JSON", _schema("JSON", AVRO_TEXTS["compact"])),
    ):
        stage.see(what, admin.raw("POST", path, schema)[0])
        stage.see("left", admin("GET", path))
    for what, path in (
        ("unknown namespace", "/admin/v2/schemas/public/nowhere/t/schema"),
        ("unknown tenant", "/admin/v2/schemas/nobody/nowhere/t/schema"),
    ):
        stage.see(what, admin.raw("GET", path)[0])
    stage.see("a version", admin("GET", schema_path(stage.topic()) + "/0"))
    stage.see("a version that is not there", admin("GET", schema_path(stage.topic()) + "/7"))


@scenario("connector-schema-race")
def schema_race(stage: Stage) -> None:
    """Two tasks find no schema and post the same one at the same moment: both succeed."""
    admin = AdminRequests(stage.server.web_url)
    for turn in range(10):
        path = schema_path(stage.topic(f"-{turn}"))
        together = threading.Barrier(4)
        schema = _schema("AVRO", AVRO_TEXTS["compact"])

        def post(
            path: str = path, schema: Any = schema, together: threading.Barrier = together
        ) -> list[Any]:
            together.wait(10.0)
            return admin("POST", path, schema)

        with ThreadPoolExecutor(4) as pool:
            stage.see(
                f"turn {turn}", [each.result() for each in [pool.submit(post) for _ in "1234"]]
            )
        stage.see("read back", admin("GET", path))


@scenario("connector-schema-of-partitions")
def schema_of_partitions(stage: Stage) -> None:
    admin = AdminRequests(stage.server.web_url)
    topic = stage.topic()
    stage.partition(topic, 2)
    stage.see("none yet", admin("GET", schema_path(topic)))
    stage.see("post", admin("POST", schema_path(topic), _schema("INT32")))
    stage.see("of a partition", admin("GET", schema_path(topic + "-partition-1")))
    stage.see(
        "post to a partition", admin("POST", schema_path(topic + "-partition-0"), _schema("INT32"))
    )
    stage.see("of the topic", admin("GET", schema_path(topic)))


@scenario("connector-topics")
def topics(stage: Stage) -> None:
    admin = AdminRequests(stage.server.web_url)
    plain, parted = stage.topic("-plain"), stage.topic("-parted")
    stage.see("unknown topic", admin("GET", topic_path(plain) + "/partitions"))
    stage.client.create_producer(plain)
    stage.partition(parted, 3)
    for name in (plain, parted, parted + "-partition-1", parted + "-partition-7"):
        stage.see(f"partitions of {name}", admin("GET", topic_path(name) + "/partitions"))
    for domain in ("persistent", "non-persistent"):
        for end in ("", "/partitioned"):
            path = f"/admin/v2/{domain}/public/default{end}"
            status, names = admin("GET", path)
            own = sorted(name for name in names if stage.topic("-").partition("://")[2] in name)
            stage.see(f"GET {path}", [status, own])
            missing = f"/admin/v2/{domain}/public/nowhere{end}"
            stage.see(f"GET {missing}", admin("GET", missing))
            missing = f"/admin/v2/{domain}/nobody/nowhere{end}"
            stage.see(f"GET {missing}", admin("GET", missing))


@scenario("connector-last-message-id")
def last_message_id(stage: Stage) -> None:
    admin = AdminRequests(stage.server.web_url)

    def see(what: str, topic: str) -> None:
        stage.see(what, admin("GET", topic_path(topic) + "/lastMessageId"))

    see("unknown topic", stage.topic("-unknown"))
    for batched in (False, True):
        topic = stage.topic(f"-{batched}")
        producer = stage.client.create_producer(
            topic,
            batching_enabled=batched,
            batching_max_messages=5,
            batching_max_publish_delay_ms=5000,
        )
        see("empty topic", topic)
        send_all(producer, [str(number) for number in range(10)])
        see(f"batched {batched}", topic)
        stage.see("unload", admin("PUT", topic_path(topic) + "/unload"))
        see("after an unload", topic)
        send_all(producer, ["one"])
        see("one message in its ledger", topic)
    parted = stage.topic("-parted")
    stage.partition(parted, 2)
    see("partitioned topic", parted)
    see("empty partition", parted + "-partition-1")
    send_all(stage.client.create_producer(parted + "-partition-1"), ["a", "b"])
    see("partition", parted + "-partition-1")
    see("a partition that is not there", parted + "-partition-7")
    see("non-persistent", stage.topic("-np", domain="non-persistent"))


def _subscription(topic: str, name: str) -> str:
    return f"{topic_path(topic)}/subscription/{name}"


def _encoded(prefix: str, topic: str) -> str:
    """The name of a subscription as the connector puts it into a path: encoded twice."""
    return prefix + quote(quote(topic, safe=""), safe="")


def _names(admin: AdminRequests, topic: str) -> list[str]:
    status, names = admin("GET", topic_path(topic) + "/subscriptions")
    assert status == 200, names
    return sorted(names)


def _next_of(stage: Stage, topic: str, name: str, count: int) -> list[str]:
    """The next messages of a subscription without consumers."""
    consumer = stage.new_client().subscribe(topic, name)
    try:
        return texts(receive_many(consumer, count, acknowledge=False))
    finally:
        consumer.close()


@scenario("connector-subscription-created")
def subscription_created(stage: Stage) -> None:
    admin, topic = AdminRequests(stage.server.web_url), stage.topic()
    send_all(stage.client.create_producer(topic, batching_enabled=False), list("abcd"))
    for name, body in (
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("no-body", None),
        ("more-fields", EARLIEST | {"batchIndex": -1, "acker": None, "ledgerId": -1}),
    ):
        stage.see(f"create {name}", admin("PUT", _subscription(topic, name), body))
        stage.see("again", admin("PUT", _subscription(topic, name), body))
    stage.see("names", _names(admin, topic))
    stage.see("earliest", _next_of(stage, topic, "earliest", 4))
    stage.see("more fields", _next_of(stage, topic, "more-fields", 4))
    unknown = stage.topic("-unknown")
    stage.see("on an unknown topic", admin("PUT", _subscription(unknown, "s"), EARLIEST))
    stage.see("it is there now", admin("GET", topic_path(unknown) + "/subscriptions"))
    parted = stage.topic("-parted")
    stage.partition(parted, 2)
    part = parted + "-partition-1"
    stage.see("on a partition", admin("PUT", _subscription(part, "s"), EARLIEST))
    stage.see("on the topic", admin("PUT", _subscription(parted, "s"), EARLIEST))
    stage.see("on the topic, new", admin("PUT", _subscription(parted, "t"), EARLIEST))
    stage.see("on the topic, again", admin("PUT", _subscription(parted, "t"), EARLIEST))
    for index in range(2):
        stage.see("names of a partition", _names(admin, f"{parted}-partition-{index}"))
    nowhere = topic.replace("/default/", "/nowhere/")
    stage.see("unknown namespace", admin("PUT", _subscription(nowhere, "s"), EARLIEST))


def _ids(stage: Stage, topic: str, payloads: list[str]) -> list[pulsar.MessageId]:
    producer = stage.client.create_producer(topic, batching_enabled=False)
    return [producer.send(payload.encode()) for payload in payloads]


def _body(message_id: pulsar.MessageId, entries_more: int = 0, ledgers_more: int = 0) -> Any:
    return {
        "ledgerId": message_id.ledger_id() + ledgers_more,
        "entryId": message_id.entry_id() + entries_more if not ledgers_more else 0,
        "partitionIndex": message_id.partition(),
    }


@scenario("connector-resetcursor")
def reset_cursor(stage: Stage) -> None:
    """The id itself is the next to read; an id beyond the end waits for what comes."""
    admin, topic = AdminRequests(stage.server.web_url), stage.topic()
    ids = _ids(stage, topic, list("abcde"))

    def reset(what: str, body: Any, name: str = "s", on: str = topic) -> None:
        stage.see(what, admin("POST", _subscription(on, name) + "/resetcursor", body))

    reset("of a subscription that is not there", _body(ids[0]))
    admin("PUT", _subscription(topic, "s"), LATEST)
    for index in (0, 2, 4):
        reset(f"to message {index}", _body(ids[index]))
        stage.see("then", _next_of(stage, topic, "s", 5 - index))
    reset("to earliest", EARLIEST)
    stage.see("then", _next_of(stage, topic, "s", 5))
    reset("in the middle of a batch", _body(ids[3]) | {"batchIndex": 2})
    stage.see("then", _next_of(stage, topic, "s", 2))
    for what, body in (
        ("to latest", LATEST),
        ("to the entry after the last", _body(ids[4], 1)),
        ("far beyond the end", _body(ids[4], 1000)),
        ("to a later ledger", _body(ids[4], ledgers_more=10_000)),
    ):
        reset("back to the first", _body(ids[0]))
        reset(what, body)
        stage.see("backlog", _backlog(admin, topic, "s"))
        new = f"new after {what}"
        _ids(stage, topic, [new])
        stage.see("then", _next_of(stage, topic, "s", 1))
    reset("unknown topic", _body(ids[0]), on=stage.topic("-unknown"))
    path = _subscription(topic, "s") + "/resetcursor"
    stage.see("not an id", admin.raw("POST", path, {"ledgerId": "x"})[0])


def _backlog(admin: AdminRequests, topic: str, name: str) -> Any:
    _, stats = admin("GET", topic_path(topic) + "/stats")
    return stats["subscriptions"][name]["msgBacklog"]


@scenario("connector-partitions-absent")
def partitions_absent(stage: Stage) -> None:
    """A partition that is not there is told from a topic that is not there."""
    admin, topic = AdminRequests(stage.server.web_url), stage.topic("-parted")
    stage.partition(topic, 2)
    plain = stage.topic("-plain")
    _ids(stage, plain, ["a"])
    for what, absent in (
        ("beyond the last", topic + "-partition-7"),
        ("of a plain topic", plain + "-partition-0"),
        ("of an unknown topic", stage.topic("-unknown") + "-partition-0"),
        ("in an unknown namespace", "persistent://public/nowhere/t-partition-0"),
        ("plain in an unknown namespace", "persistent://public/nowhere/t"),
        ("in an unknown tenant", "persistent://nobody/nowhere/t"),
    ):
        path = topic_path(absent)
        mark = _subscription(absent, "s")
        for method, asked, body in (
            ("GET", path + "/partitions", None),
            ("GET", path + "/lastMessageId", None),
            ("GET", path + "/subscriptions", None),
            ("GET", path + "/stats", None),
            ("GET", path + "/internalStats", None),
            ("POST", mark + "/resetcursor", EARLIEST),
            ("POST", mark + "/resetcursor/0", None),
            ("DELETE", mark, None),
            ("PUT", mark, EARLIEST),
            ("GET", path + "/subscriptions", None),
        ):
            stage.see(f"{what} {method} {asked}", admin(method, asked, body))


@scenario("connector-resetcursor-of-partitions")
def reset_cursor_of_partitions(stage: Stage) -> None:
    admin, topic = AdminRequests(stage.server.web_url), stage.topic()
    stage.partition(topic, 2)
    part = topic + "-partition-1"
    ids = _ids(stage, part, list("abc"))
    stage.see("create", admin("PUT", _subscription(part, "s"), LATEST))
    for what, on, name in (
        ("partition", part, "s"),
        ("the other partition", topic + "-partition-0", "s"),
        ("the topic", topic, "s"),
        ("a partition that is not there", topic + "-partition-7", "s"),
    ):
        path = _subscription(on, name) + "/resetcursor"
        stage.see(what, admin("POST", path, _body(ids[1]) | {"partitionIndex": 1}))
    stage.see("then", _next_of(stage, part, "s", 2))
    stage.see("by time", admin("POST", _subscription(topic, "s") + "/resetcursor/0"))
    deadline = time.monotonic() + 10.0  # the answer may come before the other partition is done
    while _backlog(admin, part, "s") != 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    stage.see("then", _next_of(stage, part, "s", 3))


@scenario("connector-resetcursor-to-time")
def reset_cursor_to_time(stage: Stage) -> None:
    admin, topic = AdminRequests(stage.server.web_url), stage.topic()
    producer = stage.client.create_producer(topic, batching_enabled=False)
    read = stage.client.subscribe(topic, "read")
    moments: list[int] = []
    for letter in "abcd":
        producer.send(letter.encode())
        # Publish times are whole milliseconds; each message gets one of its own.
        moments.append(read.receive(10_000).publish_timestamp())
        while time.time() * 1000 <= moments[-1] + 2:
            time.sleep(0.001)
    admin("PUT", _subscription(topic, "s"), LATEST)

    def reset(what: str, moment: object, name: str = "s", on: str = topic) -> None:
        path = f"{_subscription(on, name)}/resetcursor/{moment}"
        stage.see(what, admin("POST", path))

    for index, moment in enumerate(moments):
        reset(f"to the time of message {index}", moment)
        stage.see("then", _next_of(stage, topic, "s", 4 - index))
    reset("to the start of time", 0)
    stage.see("then", _next_of(stage, topic, "s", 4))
    reset("to the future", moments[-1] + 3_600_000)
    stage.see("backlog", _backlog(admin, topic, "s"))
    reset("subscription that is not there", moments[0], "nobody")
    reset("unknown topic", moments[0], on=stage.topic("-unknown"))


@scenario("connector-subscription-deleted")
def subscription_deleted(stage: Stage) -> None:
    admin, topic = AdminRequests(stage.server.web_url), stage.topic()
    _ids(stage, topic, ["a"])

    def delete(what: str, name: str = "s", on: str = topic) -> None:
        stage.see(what, admin("DELETE", _subscription(on, name)))

    delete("not there")
    admin("PUT", _subscription(topic, "s"), EARLIEST)
    delete("there")
    delete("again")
    stage.see("names", admin("GET", topic_path(topic) + "/subscriptions"))
    delete("unknown topic", on=stage.topic("-unknown"))
    consumer = stage.client.subscribe(topic, "held")
    delete("with a consumer on it", "held")
    consumer.close()
    delete("after it has gone", "held")
    parted = stage.topic("-parted")
    stage.partition(parted, 2)
    for index in range(2):
        part = f"{parted}-partition-{index}"
        stage.see("create", admin("PUT", _subscription(part, _encoded("s-", part)), EARLIEST))
    delete("by the name of the topic", _encoded("s-", parted), parted)
    for index in range(2):
        part = f"{parted}-partition-{index}"
        stage.see("leaked", admin("GET", topic_path(part) + "/subscriptions"))
        delete("of a partition", _encoded("s-", part), part)
    delete("of no partition", "nobody", parted)


@scenario("connector-subscription-names")
def subscription_names(stage: Stage) -> None:
    """A path segment is percent-decoded once, then read as a form value."""
    admin, topic = AdminRequests(stage.server.web_url), stage.topic()
    _ids(stage, topic, ["a"])
    raw_names = [
        "one%2Fx",
        "two%252Fx",
        "three%25252Fx",
        "sp%20c",
        "p+q",
        "p2%2Bq",
        "p3%252Bq",
        "plain",
        "gr%C3%BC%C3%9Fe",
        "gr%25C3%25BC%25C3%259Fe",
        _encoded("spar-pulsar-7f0c-", "persistent://public/default/t-partition-0"),
    ]
    for raw in raw_names:
        stage.see(f"create {raw}", admin("PUT", _subscription(topic, raw), EARLIEST))
        stage.see("reset", admin("POST", _subscription(topic, raw) + "/resetcursor", EARLIEST))
    stage.see("names", _names(admin, topic))
    stage.see(
        "consumed by name",
        _next_of(stage, topic, "spar-pulsar-7f0c-persistent://public/default/t-partition-0", 1),
    )
    for raw in raw_names:
        stage.see(f"delete {raw}", admin("DELETE", _subscription(topic, raw)))
    stage.see("names left", admin("GET", topic_path(topic) + "/subscriptions"))


@scenario("connector-life-of-a-query")
def life_of_a_query(stage: Stage) -> None:
    """Start, triggers with data and without, a restart with a new name, stop: in its order."""
    admin, topic = AdminRequests(stage.server.web_url), stage.topic()
    ids = _ids(stage, topic, list("abc"))

    def see(what: str, method: str, path: str, body: Any = None) -> None:
        stage.see(what, admin(method, path, body))

    for uuid in ("u1", "u2"):
        mark = _subscription(topic, _encoded(f"spar-pulsar-{uuid}-", topic))
        see("schema at load", "GET", schema_path(topic))
        see("partitions", "GET", topic_path(topic) + "/partitions")
        see("create", "PUT", mark, EARLIEST)
        see("initial offset", "POST", mark + "/resetcursor", EARLIEST)
        for message_id in ids:
            see("trigger", "GET", topic_path(topic) + "/lastMessageId")
            see("commit", "POST", mark + "/resetcursor", _body(message_id))
            stage.see("backlog", _all_backlogs(admin, topic))
    see("stop of the second", "DELETE", mark)
    see("a commit after it", "POST", mark + "/resetcursor", _body(ids[2]))
    stage.see("what a killed driver leaves", _names(admin, topic))


def _all_backlogs(admin: AdminRequests, topic: str) -> Any:
    _, stats = admin("GET", topic_path(topic) + "/stats")
    return {name: each["msgBacklog"] for name, each in sorted(stats["subscriptions"].items())}
