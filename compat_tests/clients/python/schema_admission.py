"""Who may come to a topic with which schema: every state of a topic, newcomer and strategy.

A state is what was there before: open producers and consumers, stored messages, schemas, or what is
left of them. A newcomer is a producer or a consumer, with a schema or without. Each combination has
a topic of its own, and each strategy a namespace of its own.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from compat_tests.clients.admin_requests import AdminRequests, schema_path
from compat_tests.clients.python.scenario import Stage, scenario
from compat_tests.clients.python.wire import Wire, wire_schema
from protocol import client
from protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

RECORD: Final = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
OTHER_RECORD: Final = '{"type":"record","name":"R","fields":[{"name":"b","type":"string"}]}'
AUTO_CONSUME: Final = pb.Schema(name="", schema_data=b"", type=pb.Schema.AutoConsume)
BYTES: Final = pb.Schema(name="", schema_data=b"", type="None")
JSON: Final = wire_schema("JSON", RECORD)
OTHER_JSON: Final = wire_schema("JSON", OTHER_RECORD)
NEWCOMERS: Final[Mapping[str, pb.Schema | None]] = {
    "no schema": None,
    "AUTO_CONSUME": AUTO_CONSUME,
    "BYTES": BYTES,
    "JSON": JSON,
    "other JSON": OTHER_JSON,
}
MESSAGE: Final = client.message(b"data")
SETTINGS: Final = ("ALWAYS_COMPATIBLE", "FULL", "no auto update", "validation enforced")
"""Of the namespace: strategies; the last two with FULL."""


@dataclass(frozen=True)
class _Topic:
    """One topic and the steps that bring it into a state."""

    name: str
    wire: Wire
    requests: AdminRequests

    def producer(self, schema: pb.Schema | None = None) -> _Topic:
        _done(self.wire.keep_producer(self.name, **_field(schema)))
        return self

    def consumer(self, schema: pb.Schema | None = None, subscription: str = "before") -> _Topic:
        _done(self.wire.keep_consumer(self.name, subscription, **_field(schema)))
        return self

    def left(self, schema: pb.Schema | None = None) -> _Topic:
        _done(self.wire.try_consumer(self.name, "before", **_field(schema)))
        return self

    def messages(self) -> _Topic:
        self.wire.publish(self.name, [MESSAGE, MESSAGE])
        return self

    def schema(self, schema: pb.Schema) -> _Topic:
        answer = self.wire.produce(self.name, schema)
        assert answer[0] == "version", answer
        return self

    def no_schema(self, force: bool = False) -> _Topic:
        self.ask("DELETE", schema_path(self.name) + ("?force=true" if force else ""))
        return self

    def ask(self, method: str, path: str, body: Any = None) -> None:
        status, text = self.requests.raw(method, path, body)
        assert status < 300, f"{method} {path} answered {status} {text}"


def _done(answer: list[Any]) -> None:
    assert len(answer) == 1, answer


def _field(schema: pb.Schema | None) -> dict[str, pb.Schema]:
    return {} if schema is None else {"schema": schema}


STATES: Final[Mapping[str, Callable[[_Topic], object]]] = {
    "nothing": lambda topic: topic,
    "a subscription": lambda topic: topic.left(),
    "a producer": lambda topic: topic.producer(),
    "a consumer": lambda topic: topic.consumer(),
    "an AUTO_CONSUME consumer": lambda topic: topic.consumer(AUTO_CONSUME),
    "two AUTO_CONSUME consumers": lambda topic: topic.consumer(AUTO_CONSUME).consumer(
        AUTO_CONSUME, "other"
    ),
    "an AUTO_CONSUME consumer and another": lambda topic: topic.consumer(AUTO_CONSUME).consumer(
        None, "other"
    ),
    "an AUTO_CONSUME consumer and a producer": lambda topic: topic.consumer(
        AUTO_CONSUME
    ).producer(),
    "messages": lambda topic: topic.messages(),
    "messages and an AUTO_CONSUME consumer": lambda topic: topic.messages().consumer(AUTO_CONSUME),
    "BYTES": lambda topic: topic.schema(BYTES),
    "JSON": lambda topic: topic.schema(JSON),
    "messages and JSON": lambda topic: topic.messages().schema(JSON),
    "deleted JSON": lambda topic: topic.schema(JSON).no_schema(),
    "messages and deleted JSON": lambda topic: topic.messages().schema(JSON).no_schema(),
    "deleted JSON and an AUTO_CONSUME consumer": lambda topic: (
        topic.schema(JSON).no_schema().consumer(AUTO_CONSUME)
    ),
    "JSON deleted by force and a JSON consumer": lambda topic: topic.consumer(JSON).no_schema(
        force=True
    ),
}
PERSISTENT_ONLY: Final = frozenset({"a subscription", "messages and JSON"})

WITH_SCHEMA: Final = frozenset(state for state in STATES if "JSON" in state) | {"BYTES"}
"""States that need a producer or consumer which registers one."""


def _namespace_of(stage: Stage, setting: str) -> str:
    name = (
        f"{stage.scenario_name}{stage.mark}-{setting.lower().replace('_', '-').replace(' ', '-')}"
    )
    path = f"/admin/v2/namespaces/public/{name}"
    strategy = setting if setting.isupper() else "FULL"
    requests: list[tuple[str, str, Any]] = [
        ("PUT", "", {"bundles": {"numBundles": 1}}),
        ("PUT", "/schemaCompatibilityStrategy", strategy),
    ]
    if setting == "no auto update":
        requests.append(("POST", "/isAllowAutoUpdateSchema", False))
    if setting == "validation enforced":
        requests.append(("POST", "/schemaValidationEnforced", True))
    for method, end, body in requests:
        status, answer = stage.server.http(method, path + end, body)
        assert status == 204, f"{method} {path}{end} answered {status} {answer}"
    return f"public/{name}"


def _admit(stage: Stage, setting: str, domain: str) -> list[list[Any]]:
    requests = AdminRequests(stage.server.web_url)
    namespace = _namespace_of(stage, setting)
    seen: list[list[Any]] = []
    for number, (state, prepare) in enumerate(STATES.items()):
        if domain != "persistent" and state in PERSISTENT_ONLY:
            continue
        if setting == "no auto update" and state in WITH_SCHEMA:
            continue
        for who in ("consumer", "producer"):
            for newcomer, schema in NEWCOMERS.items():
                slug = newcomer.replace(" ", "-").lower()
                name = f"{domain}://{namespace}/{number}-{who}-{slug}"
                wire = Wire(stage.server.service_url)
                try:
                    prepare(_Topic(name, wire, requests))
                    if who == "consumer":
                        answer = wire.try_consumer(name, "new", **_field(schema))
                    else:
                        answer = wire.try_producer(name, **_field(schema))
                finally:
                    wire.close()
                seen.append([f"{setting}: {state}, {who} with {newcomer}", answer[:1]])
    return seen


def _compare(stage: Stage, domain: str, settings: Sequence[str]) -> None:
    with ThreadPoolExecutor(2) as pool:
        for seen in pool.map(lambda setting: _admit(stage, setting, domain), settings):
            for what, answer in seen:
                stage.see(what, answer)


@scenario("schema-admission")
def schema_admission(stage: Stage) -> None:
    _compare(stage, "persistent", SETTINGS)


@scenario("schema-admission-non-persistent")
def schema_admission_non_persistent(stage: Stage) -> None:
    _compare(stage, "non-persistent", SETTINGS[:2])
