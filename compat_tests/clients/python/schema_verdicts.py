"""Which schema may follow which: verdicts and statuses, by REST and by the binary protocol.

Every pair of `schema_pairs` under every strategy, as AVRO and as JSON. One namespace per strategy
and type; in it, per pair, one topic that is asked by REST and one that only producers use. Two
threads, because a request to real Pulsar that stores a schema makes a ledger and takes 20 ms.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from compat_tests.clients.admin_requests import AdminRequests, decoded, schema_path
from compat_tests.clients.python.scenario import Stage, scenario
from compat_tests.clients.python.schema_pairs import NEVER_ANSWERED_AS_JSON, PAIRS
from compat_tests.clients.python.wire import Wire, wire_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

STRATEGIES: Final = (
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
)


class _Rest:
    def __init__(self, server: Any) -> None:
        self._requests = AdminRequests(server.web_url)

    def ask(self, method: str, path: str, body: Any = None) -> list[Any]:
        """Status and the answer; of a refusal the status alone."""
        status, text = self._requests.raw(method, path, body)
        if status >= 300:
            return [status]
        return [status, self._requests.told(decoded(text))]


def _namespace_of(stage: Stage, kind: str, strategy: str) -> str:
    name = f"{stage.scenario_name}{stage.mark}-{strategy.lower().replace('_', '-')}"
    namespace = f"public/{kind.lower()}-{name}"
    for method, path, body in (
        ("PUT", "", {"bundles": {"numBundles": 1}}),
        ("PUT", "/schemaCompatibilityStrategy", strategy),
    ):
        status, answer = stage.server.http(method, f"/admin/v2/namespaces/{namespace}{path}", body)
        assert status == 204, f"{method} {namespace}{path} answered {status} {answer}"
    return namespace


def _judge(stage: Stage, kind: str, namespace: str, names: Iterable[str]) -> list[list[Any]]:
    rest, wire = _Rest(stage.server), Wire(stage.server.service_url)
    try:
        return [[name, _verdicts(rest, wire, kind, namespace, name)] for name in names]
    finally:
        wire.close()


def _verdicts(rest: _Rest, wire: Wire, kind: str, namespace: str, name: str) -> dict[str, Any]:
    older, newer = PAIRS[name]
    slug = re.sub("[^a-z]+", "-", name.lower())
    topic = f"persistent://{namespace}/{slug}"
    consumed = f"non-persistent://{namespace}/{slug}"
    published = f"non-persistent://{namespace}/{slug}-produced"
    path = schema_path(topic)
    body = {"type": kind, "schema": newer, "properties": {}}
    first = rest.ask("POST", path, body | {"schema": older})
    if first[0] >= 300:
        # Whether real Pulsar then lets a consumer with a bad schema subscribe is chance.
        return {"older": first, "post": rest.ask("POST", path, body)}
    return {
        "older": first,
        "compatible": rest.ask("POST", f"{path.removesuffix('schema')}compatibility", body),
        "version": rest.ask("POST", f"{path.removesuffix('schema')}version", body),
        "subscribe": wire.subscribe(consumed, wire_schema(kind, newer)),
        "post": rest.ask("POST", path, body),
        "older produced": wire.produce(published, wire_schema(kind, older)),
        "produced": wire.produce(published, wire_schema(kind, newer)),
        "created": wire.get_or_create(published, wire_schema(kind, newer)),
    }


def _compare_verdicts(stage: Stage, kind: str) -> None:
    names = [name for name in PAIRS if kind == "AVRO" or name not in NEVER_ANSWERED_AS_JSON]
    namespaces = {strategy: _namespace_of(stage, kind, strategy) for strategy in STRATEGIES}
    with ThreadPoolExecutor(2) as pool:
        judged = pool.map(
            lambda strategy: _judge(stage, kind, namespaces[strategy], names), STRATEGIES
        )
        for strategy, verdicts in zip(STRATEGIES, judged, strict=True):
            for name, verdict in verdicts:
                stage.see(f"{kind} {strategy}: {name}", verdict)
    assert len(stage.trace) == len(STRATEGIES) * len(names)


@scenario("schema-verdicts-avro")
def schema_verdicts_avro(stage: Stage) -> None:
    _compare_verdicts(stage, "AVRO")


@scenario("schema-verdicts-json")
def schema_verdicts_json(stage: Stage) -> None:
    _compare_verdicts(stage, "JSON")


@scenario("schema-deletion")
def schema_deletion(stage: Stage) -> None:
    """Versions after a deletion, by number and in lists, and the numbers given afterwards."""
    rest, wire = _Rest(stage.server), Wire(stage.server.service_url)
    topic = stage.topic()
    path = schema_path(topic)
    first, second = PAIRS["field added with a default"]
    third = PAIRS["int to string"][1]

    def look(when: str) -> None:
        for number in ("", "/0", "/1", "/2", "/3", "/9", "/-1"):
            stage.see(f"{when}: version{number}", rest.ask("GET", path + number))
        stage.see(f"{when}: all", rest.ask("GET", path + "s"))
        for version in (None, *(number.to_bytes(8, "big") for number in range(5))):
            stage.see(f"{when}: by wire {version!r}", wire.get(topic, version))

    def post(what: str, text: str) -> None:
        body = {"type": "AVRO", "schema": text, "properties": {}}
        stage.see(f"post {what}", rest.ask("POST", path, body))
        stage.see(
            f"version of {what}", rest.ask("POST", path.removesuffix("schema") + "version", body)
        )

    try:
        stage.see("delete of none", rest.ask("DELETE", path))
        look("after the deletion of none")
        post("first", first)
        post("second", second)
        stage.see("delete", rest.ask("DELETE", path))
        look("deleted")
        stage.see("delete again", rest.ask("DELETE", path))
        post("first again", first)
        post("something else", third)
        look("posted again")
        stage.see("forced", rest.ask("DELETE", path + "?force=true"))
        look("forced")
        post("third", third)
        look("posted after force")
    finally:
        wire.close()
