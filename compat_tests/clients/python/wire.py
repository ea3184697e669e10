"""Commands on the binary protocol of which a stock client shows too little, and messages that it
does not make.

Each finds the owner of its topic first, as every stock client does: a broker of a cluster refuses
commands for topics that it does not own, and owns none before somebody asks for the owner.
"""

from __future__ import annotations

import socket
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from protocol import client
from protocol import pulsar_api_pb2 as pb
from protocol.metadata import is_marker, peek

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ANSWER_TIMEOUT_SECONDS: Final = 30.0
LOOKUPS_MAX: Final = 20
"""As many redirects as stock clients follow."""
UNASKED: Final = frozenset(
    {
        pb.BaseCommand.ACTIVE_CONSUMER_CHANGE,
        pb.BaseCommand.CLOSE_CONSUMER,
        pb.BaseCommand.CLOSE_PRODUCER,
        pb.BaseCommand.PONG,
    }
)
"""What a broker tells without a request of this client."""
CONSUMER_ID: Final = 1
PRODUCER_ID: Final = 2


class Wire:
    """One connection to each broker, one request at a time."""

    def __init__(self, service_url: str) -> None:
        self._service_url = service_url
        self._connections: dict[str, _Connection] = {}
        self._ids = count(100)

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def produce(self, topic: str, schema: pb.Schema) -> list[Any]:
        """Open a producer and close it; the version, or the error."""
        owner = self._owner_of(topic)
        answer = owner.ask(
            lambda number: client.producer(topic, PRODUCER_ID, number, schema=schema)
        )
        if answer.type == pb.BaseCommand.ERROR:
            return _refused(answer)
        owner.ask(lambda number: client.close_producer(PRODUCER_ID, number))
        return ["version", answer.producer_success.schema_version.hex()]

    def publish(self, topic: str, messages: Iterable[bytes]) -> None:
        """Publish headers and payloads as they are, one after the other. Those of markers are told
        to be such, as by the brokers that write them.

        Raises: ConnectionError: the broker refuses the producer or a message.
        """
        owner = self._owner_of(topic)
        answer = owner.ask(lambda number: client.producer(topic, PRODUCER_ID, number))
        if answer.type == pb.BaseCommand.ERROR:
            raise ConnectionError(answer.error.message)
        for number, each in enumerate(messages):
            marker = {"marker": True} if is_marker(peek(each)) else {}
            answer = owner.answer_to(client.send(PRODUCER_ID, number, each, **marker))
            if answer.type != pb.BaseCommand.SEND_RECEIPT:
                raise ConnectionError(f"message {number}: {answer}")
        owner.ask(lambda number: client.close_producer(PRODUCER_ID, number))

    def subscribe(self, topic: str, schema: pb.Schema) -> list[Any]:
        """Subscribe and close; the success, or the error."""
        owner = self._owner_of(topic)
        answer = owner.ask(
            lambda number: client.subscribe(topic, "s", CONSUMER_ID, number, schema=schema)
        )
        if answer.type == pb.BaseCommand.ERROR:
            return _refused(answer)
        owner.ask(lambda number: client.close_consumer(CONSUMER_ID, number))
        return ["subscribed"]

    def keep_producer(self, topic: str, **fields: Any) -> list[Any]:
        """Open a producer that stays; code and text of a refusal."""
        return _told(
            self._owner_of(topic).ask(
                lambda number: client.producer(topic, next(self._ids), number, **fields)
            )
        )

    def keep_consumer(self, topic: str, subscription: str, **fields: Any) -> list[Any]:
        """Subscribe a consumer that stays; code and text of a refusal."""
        return _told(
            self._owner_of(topic).ask(
                lambda number: client.subscribe(
                    topic, subscription, next(self._ids), number, **fields
                )
            )
        )

    def try_producer(self, topic: str, **fields: Any) -> list[Any]:
        """Open a producer that leaves again; its schema's version, or code and text of a
        refusal."""
        owner, producer_id = self._owner_of(topic), next(self._ids)
        answer = owner.ask(lambda number: client.producer(topic, producer_id, number, **fields))
        if answer.type == pb.BaseCommand.ERROR:
            return _told(answer)
        owner.ask(lambda number: client.close_producer(producer_id, number))
        return ["version", answer.producer_success.schema_version.hex()]

    def try_consumer(self, topic: str, subscription: str, **fields: Any) -> list[Any]:
        """Subscribe a consumer that leaves again; code and text of a refusal."""
        owner, consumer_id = self._owner_of(topic), next(self._ids)
        answer = owner.ask(
            lambda number: client.subscribe(topic, subscription, consumer_id, number, **fields)
        )
        if answer.type != pb.BaseCommand.ERROR:
            owner.ask(lambda number: client.close_consumer(consumer_id, number))
        return _told(answer)

    def try_publish(self, topic: str, message: bytes) -> list[Any]:
        """Publish one message with a producer of its own; code and text of a refusal."""
        owner, producer_id = self._owner_of(topic), next(self._ids)
        opened = owner.ask(lambda number: client.producer(topic, producer_id, number))
        if opened.type == pb.BaseCommand.ERROR:
            return _told(opened)
        answer = owner.answer_to(client.send(producer_id, 0, message))
        owner.ask(lambda number: client.close_producer(producer_id, number))
        if answer.type == pb.BaseCommand.SEND_ERROR:
            error = answer.send_error
            return [pb.ServerError.Name(error.error), error.message]
        return _told(answer)

    def get_or_create(self, topic: str, schema: pb.Schema) -> list[Any]:
        """GET_OR_CREATE_SCHEMA: the version, or the error."""
        answer = self._owner_of(topic).ask(
            lambda number: client.get_or_create_schema(topic, number, schema)
        )
        if answer.type == pb.BaseCommand.ERROR:
            return _refused(answer)
        found = answer.getOrCreateSchemaResponse
        if found.HasField("error_code"):
            return [pb.ServerError.Name(found.error_code)]
        return ["version", found.schema_version.hex()]

    def get(self, topic: str, version: bytes | None) -> list[Any]:
        """GET_SCHEMA: version and definition, or the error."""
        answer = self._owner_of(topic).ask(lambda number: client.get_schema(topic, number, version))
        if answer.type == pb.BaseCommand.ERROR:
            return _refused(answer)
        found = answer.getSchemaResponse
        if found.HasField("error_code"):
            return [pb.ServerError.Name(found.error_code)]
        return [found.schema_version.hex(), found.schema.schema_data.decode()]

    def _owner_of(self, topic: str) -> _Connection:
        """LOOKUP, until a broker says which one to connect to."""
        url, is_authoritative = self._service_url, False
        for _ in range(LOOKUPS_MAX):
            found = self._connection(url).lookup(topic, is_authoritative)
            if not found.proxy_through_service_url:
                url = found.brokerServiceUrl
            if found.response == pb.CommandLookupTopicResponse.Connect:
                return self._connection(url)
            is_authoritative = found.authoritative
        raise ConnectionError(f"brokers send those who ask for {topic} around in circles")

    def _connection(self, url: str) -> _Connection:
        if url not in self._connections:
            self._connections[url] = _Connection(url)
        return self._connections[url]


class _Connection:
    """To one broker."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        assert address.port is not None
        place = (address.hostname, address.port)
        self._socket = socket.create_connection(place, ANSWER_TIMEOUT_SECONDS)
        self._client = client.Client()
        self.answer_to(client.connect())

    def close(self) -> None:
        self._socket.close()

    def lookup(self, topic: str, is_authoritative: bool) -> pb.CommandLookupTopicResponse:
        """Raises: ConnectionError: no broker owns the topic, or will."""
        answer = self.ask(
            lambda number: client.lookup(topic, number, authoritative=is_authoritative)
        )
        found = answer.lookupTopicResponse
        if found.response == pb.CommandLookupTopicResponse.Failed:
            why = f"{pb.ServerError.Name(found.error)} {found.message}"
            raise ConnectionError(f"the look-up of {topic} failed: {why}")
        return found

    def ask(self, make: Callable[[int], bytes]) -> pb.BaseCommand:
        """The answer to the command that is made with a request id."""
        return self.answer_to(make(self._client.next_request_id()))

    def answer_to(self, frame: bytes) -> pb.BaseCommand:
        """The next command of the broker."""
        self._socket.sendall(frame)
        while True:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the server closed the connection")
            for command, _ in self._client.receive(data):
                if command.type == pb.BaseCommand.PING:
                    self._socket.sendall(client.pong())
                elif command.type not in UNASKED:
                    return command


def _told(answer: pb.BaseCommand) -> list[Any]:
    if answer.type != pb.BaseCommand.ERROR:
        return [pb.BaseCommand.Type.Name(answer.type)]
    return [*_refused(answer), answer.error.message]


def _refused(answer: pb.BaseCommand) -> list[Any]:
    return [pb.ServerError.Name(answer.error.error)]


def wire_schema(kind: str, text: str) -> pb.Schema:
    """A schema as PRODUCER and SUBSCRIBE carry it."""
    number = pb.Schema.Avro if kind == "AVRO" else pb.Schema.Json
    return pb.Schema(name="", schema_data=text.encode(), type=number)
