"""Every route and every command, asked by callers of several rights: who is refused, and how.

A cell of the table is a refusal (status or error code, and text) or `PASSED`: what happens to those
who may is the matter of other tests. Callers that may less come first, and find what they might
change as it was.
"""

from __future__ import annotations

import http.client
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from compat_tests.authorized_servers import CALLERS, ProbeCaller, make_tenant
from compat_tests.endpoint_probes import Place, endpoints, names_of
from protocol import client as wire
from protocol import pulsar_api_pb2 as pb
from protocol.command_frames import command_frame
from protocol.decoding import COMMAND_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker.http.missing import Endpoint
    from compat_tests.oracle.server_process import ServerProcess

PASSED: Final = "passed"
Cell = str
Key = tuple[str, str]
"""What is asked, and of what."""
Table = dict[Key, dict[str, Cell]]
"""By what is asked, then by caller."""

REFUSALS: Final = (401, 403)
SECONDS_MAX: Final = 30.0
AT_A_TIME: Final = 4
_TENANTS: Final = {"tenant", "property"}
_OF_WHAT_IS_THERE: Final = {"updateProperties"}
"""Pulsar does not answer those who may if there is nothing."""


_POSITION: Final = {"ledgerId": 1, "entryId": 1}
_BODIES: Final[dict[str, Any]] = {
    "antiAffinity": "group",
    "compactionThreshold": 1,
    "deduplication": True,
    "deduplicationEnabled": True,
    "encryptionRequired": True,
    "expireMessages": _POSITION,
    "isAllowAutoUpdateSchema": True,
    "maxConsumers": 1,
    "maxConsumersPerSubscription": 1,
    "maxConsumersPerTopic": 1,
    "maxMessageSize": 1,
    "maxProducers": 1,
    "maxProducersPerTopic": 1,
    "maxSubscriptionsPerTopic": 1,
    "maxTopicsPerNamespace": 1,
    "maxUnackedMessagesPerConsumer": 1,
    "maxUnackedMessagesPerSubscription": 1,
    "messageTTL": 1,
    "migration": False,
    "offload": _POSITION,
    "offloadDeletionLagMs": 1,
    "offloadThreshold": 1,
    "offloadThresholdInSeconds": 1,
    "partitions": 3,
    "permissions": ["consume"],
    "properties": {"a": "b"},
    "replicatedSubscriptionStatus": True,
    "replicas": 1,
    "resetcursor": _POSITION,
    "schemaValidationEnforced": True,
    "subscriptionExpirationTime": 1,
}
"""By the end of the path. Without a body, or with one that it cannot read, Pulsar refuses these
requests before it asks who sent them."""


def http_cell(server: ServerProcess, caller: ProbeCaller, method: str, path: str) -> Cell:
    """The answer to one request."""
    body = _BODIES.get(path.rpartition("/")[2]) if method in ("POST", "PUT") else None
    address = urlsplit(server.web_url).netloc
    connection = http.client.HTTPConnection(address, timeout=SECONDS_MAX)
    try:
        headers = {"Accept": "application/json", **caller.http_headers}
        if method in ("POST", "PUT"):
            headers["Content-Type"] = "application/json"
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return "no answer"
    finally:
        connection.close()
    try:
        decoded = json.loads(text)
        text = decoded.get("reason", text) if isinstance(decoded, dict) else text
    except ValueError:
        pass
    if answer.status in REFUSALS:
        return f"{answer.status} {text}"
    return PASSED if answer.status < 500 else f"{PASSED} {answer.status}"


def ask_endpoint(
    server: ServerProcess, endpoint: Endpoint, tenant: str
) -> Iterator[tuple[Key, dict[str, Cell]]]:
    """The rows of one endpoint: on things that are there and, if it only reads, on others."""
    places = [Place("there", tenant, "ns", "plain", "reads")]
    names = names_of(endpoint)
    if "topic" in names:
        places.append(Place("partitioned", tenant, "ns", "parts", "reads"))
        places.append(Place("no topic", tenant, "ns", "absent", "absent"))
    if "namespace" in names:
        places.append(Place("no namespace", tenant, "absent", "absent", "absent"))
    if endpoint.name in _OF_WHAT_IS_THERE:
        places = [each for each in places if not each.variant.startswith("no ")]
    elif names & _TENANTS:
        places.append(Place("no tenant", f"absent-{tenant}", "absent", "absent", "absent"))
    for place in reversed(places):
        row = {
            caller.name: http_cell(server, caller, endpoint.method, place.path(endpoint))
            .replace(tenant, "TENANT")
            .replace(f"127.0.0.1:{server.web_port}", "BROKER")
            for caller in CALLERS
        }
        yield (f"{endpoint.method} {endpoint.path}", place.variant), row


def ask_all_endpoints(server: ServerProcess, mark: str) -> Table:
    """The table of routes of one server."""

    def rows(numbered: tuple[int, Endpoint]) -> list[tuple[Key, dict[str, Cell]]]:
        number, endpoint = numbered
        tenant = f"{mark}-{number}"
        if endpoint.method == "GET" or "-policy:" in endpoint.asks:
            tenant = mark  # nothing is done that would change an answer about rights
        elif names_of(endpoint) & (_TENANTS | {"namespace", "topic"}):
            make_tenant(server, tenant)
        return list(ask_endpoint(server, endpoint, tenant))

    make_tenant(server, mark)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return dict(row for some in pool.map(rows, enumerate(endpoints())) for row in some)


# --- commands -------------------------------------------------------------------------------


class Connection:
    """A blocking connection of bare commands."""

    def __init__(self, server: ServerProcess, caller: ProbeCaller) -> None:
        address = ("127.0.0.1", server.broker_port)
        self._socket = socket.create_connection(address, timeout=SECONDS_MAX)
        self._client = wire.Client()
        self._received: list[pb.BaseCommand] = []
        self.send(wire.connect(**caller.connect_fields))

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, *frames: bytes) -> None:
        """Write frames."""
        self._socket.sendall(b"".join(frames))

    def rid(self) -> int:
        """The next request id."""
        return self._client.next_request_id()

    def next(self) -> pb.BaseCommand | None:
        """The next command that is no PING; None: the server has closed."""
        while not self._received:
            data = self._socket.recv(65536)
            if not data:
                return None
            for command, _payload in self._client.receive(data):
                if command.type == pb.BaseCommand.PING:
                    self.send(wire.pong())
                else:
                    self._received.append(command)
        return self._received.pop(0)

    def next_within(self, seconds: float) -> pb.BaseCommand | None:
        """The next command, if one comes in time."""
        self._socket.settimeout(seconds)
        try:
            return self.next()
        except TimeoutError:
            return None
        finally:
            self._socket.settimeout(SECONDS_MAX)

    def until(self, *kinds: int) -> pb.BaseCommand | None:
        """The next command of one of these types."""
        while (command := self.next()) is not None:
            if command.type in kinds:
                return command
        return None


def command_cell(answer: pb.BaseCommand | None) -> Cell:
    """What an answer says about the right to ask."""
    if answer is None:
        return "closed"
    content = getattr(answer, COMMAND_FIELDS[answer.type])
    error = getattr(content, "error", None)
    if not isinstance(error, int) or not content.HasField("error"):
        return PASSED
    if error in (pb.AuthorizationError, pb.AuthenticationError):
        return f"{pb.ServerError.Name(error)} {content.message}"
    return f"{PASSED} {pb.ServerError.Name(error)}"


@dataclass(frozen=True)
class CommandProbe:
    """One command, after those that prepare for it, whose refusals are told instead."""

    name: str
    make: Callable[[Connection, str, str], bytes]
    """Of a connection, a topic and its namespace."""
    before: tuple[str, ...] = ()


TXN: Final = {"txnid_least_bits": 1, "txnid_most_bits": 0, "txn_action": pb.COMMIT}
SCHEMA: Final = pb.Schema(name="s", type=pb.Schema.String, schema_data=b"")
MESSAGE: Final = wire.message(b"x")


def _raw(kind: pb.BaseCommand.Type, **fields: Any) -> Callable[[Connection, str, str], bytes]:
    def make(connection: Connection, topic: str, namespace: str) -> bytes:
        named = {
            key: value.format(topic=topic, namespace=namespace) if isinstance(value, str) else value
            for key, value in fields.items()
        }
        return command_frame(kind, request_id=connection.rid(), **named)

    return make


_T = pb.BaseCommand
COMMAND_PROBES: Final = (
    CommandProbe("PARTITIONED_METADATA", _raw(_T.PARTITIONED_METADATA, topic="{topic}")),
    CommandProbe("LOOKUP", _raw(_T.LOOKUP, topic="{topic}")),
    CommandProbe(
        "GET_TOPICS_OF_NAMESPACE", _raw(_T.GET_TOPICS_OF_NAMESPACE, namespace="{namespace}")
    ),
    CommandProbe(
        "WATCH_TOPIC_LIST",
        _raw(
            _T.WATCH_TOPIC_LIST,
            watcher_id=1,
            namespace="{namespace}",
            topics_pattern="persistent://{namespace}/.*",
        ),
    ),
    CommandProbe("GET_SCHEMA", _raw(_T.GET_SCHEMA, topic="{topic}")),
    CommandProbe(
        "GET_OR_CREATE_SCHEMA",
        lambda connection, topic, _: wire.get_or_create_schema(topic, connection.rid(), SCHEMA),
    ),
    CommandProbe("PRODUCER", _raw(_T.PRODUCER, topic="{topic}", producer_id=1)),
    CommandProbe(
        "PRODUCER initial subscription",
        _raw(_T.PRODUCER, topic="{topic}", producer_id=2, initial_subscription_name="first"),
    ),
    CommandProbe(
        "SEND", lambda connection, _topic, _ns: wire.send(1, 0, MESSAGE), before=("PRODUCER",)
    ),
    CommandProbe("CLOSE_PRODUCER", _raw(_T.CLOSE_PRODUCER, producer_id=1), before=("PRODUCER",)),
    CommandProbe(
        "SUBSCRIBE",
        lambda connection, topic, _: wire.subscribe(
            topic, "reads", 1, connection.rid(), pb.CommandSubscribe.Shared
        ),
    ),
    CommandProbe(
        "SUBSCRIBE new",
        lambda connection, topic, _: wire.subscribe(
            topic, "reads-new", 2, connection.rid(), pb.CommandSubscribe.Shared
        ),
    ),
    CommandProbe(
        "ACK",
        lambda connection, _topic, _ns: wire.ack(1, [(0, 0)], request_id=connection.rid()),
        before=("SUBSCRIBE",),
    ),
    CommandProbe("CONSUMER_STATS", _raw(_T.CONSUMER_STATS, consumer_id=1), before=("SUBSCRIBE",)),
    CommandProbe(
        "GET_LAST_MESSAGE_ID", _raw(_T.GET_LAST_MESSAGE_ID, consumer_id=1), before=("SUBSCRIBE",)
    ),
    CommandProbe(
        "SEEK",
        lambda connection, _topic, _ns: wire.seek(1, connection.rid(), publish_time=1),
        before=("SUBSCRIBE",),
    ),
    CommandProbe("UNSUBSCRIBE", _raw(_T.UNSUBSCRIBE, consumer_id=2), before=("SUBSCRIBE new",)),
    CommandProbe("CLOSE_CONSUMER", _raw(_T.CLOSE_CONSUMER, consumer_id=1), before=("SUBSCRIBE",)),
    CommandProbe("TC_CLIENT_CONNECT_REQUEST", _raw(_T.TC_CLIENT_CONNECT_REQUEST, tc_id=0)),
    CommandProbe("NEW_TXN", _raw(_T.NEW_TXN, txn_ttl_seconds=1)),
    CommandProbe("ADD_PARTITION_TO_TXN", _raw(_T.ADD_PARTITION_TO_TXN, partitions=["{topic}"])),
    CommandProbe("ADD_SUBSCRIPTION_TO_TXN", _raw(_T.ADD_SUBSCRIPTION_TO_TXN)),
    CommandProbe("END_TXN", _raw(_T.END_TXN, **TXN)),
    CommandProbe("END_TXN_ON_PARTITION", _raw(_T.END_TXN_ON_PARTITION, topic="{topic}", **TXN)),
    CommandProbe(
        "END_TXN_ON_SUBSCRIPTION",
        _raw(
            _T.END_TXN_ON_SUBSCRIPTION,
            subscription=pb.Subscription(topic="persistent://public/default/t", subscription="s"),
            **TXN,
        ),
    ),
)
UNASKED: Final = (_T.CLOSE_CONSUMER, _T.CLOSE_PRODUCER, _T.ACTIVE_CONSUMER_CHANGE)
"""Not answers: the server tells them by itself."""


def ask_command(
    server: ServerProcess, caller: ProbeCaller, probe: CommandProbe, topic: str, namespace: str
) -> Cell:
    """The answer of one server to one caller."""
    with Connection(server, caller) as connection:
        connected = connection.next()
        if connected is None or connected.type != _T.CONNECTED:
            return f"CONNECT: {command_cell(connected)}"
        for name in (*probe.before, probe.name):
            step = next(each for each in COMMAND_PROBES if each.name == name)
            connection.send(step.make(connection, topic, namespace))
            answer = connection.next()
            while answer is not None and answer.type in UNASKED:
                answer = connection.next()
            cell = command_cell(answer)
            if cell != PASSED:
                told = name != probe.name and not cell.startswith(PASSED)
                return f"{name}: {cell}" if told else cell
        return PASSED


def places_of_commands(tenant: str) -> dict[str, tuple[str, str]]:
    """Topic and namespace by what is special about them."""
    namespace = f"{tenant}/ns"
    return {
        "there": (f"persistent://{namespace}/plain", namespace),
        "partition": (f"persistent://{namespace}/parts-partition-1", namespace),
        "partitioned": (f"persistent://{namespace}/parts", namespace),
        "non-persistent": (f"non-persistent://{namespace}/plain", namespace),
        "no topic": (f"persistent://{namespace}/absent", namespace),
        "no namespace": (f"persistent://{tenant}/absent/t", f"{tenant}/absent"),
        "no tenant": (f"persistent://absent-{tenant}/absent/t", f"absent-{tenant}/absent"),
    }


def ask_all_commands(server: ServerProcess, tenant: str) -> Table:
    """The table of commands of one server."""
    make_tenant(server, tenant)
    table: Table = {}
    for variant, (topic, namespace) in places_of_commands(tenant).items():
        for probe in COMMAND_PROBES:
            table[probe.name, variant] = {
                caller.name: ask_command(server, caller, probe, topic, namespace).replace(
                    tenant, "TENANT"
                )
                for caller in CALLERS
            }
    return table
