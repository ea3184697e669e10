"""A blocking connection to a broker that reads entries as they are stored.

The stock client hands out messages one by one, without the flag that says how a key is encoded, and
always fetches a receiver queue more than is needed. Spark tasks read ranges that are known
beforehand, so this reader subscribes without a durable cursor at the first entry, asks for what is
left and no more than the receiver queue at once, and leaves decoding to `pipeline.decode`.
"""

from __future__ import annotations

import socket
import ssl
import uuid
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlsplit

from pipeline.decode import StoredEntry
from protocol import client
from protocol import pulsar_api_pb2 as pb
from protocol.errors import RemoteProtocolError
from protocol.message_id import position_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.options import Connection
    from protocol.frames import ParsedFrame

_Type = pb.BaseCommand
RECEIVE_BYTES: Final = 1 << 20
REDIRECTS_MAX: Final = 10
PORT_DEFAULT: Final = 6650
CONSUMER_ID: Final = 1
_PASSING: Final = frozenset({pb.ServiceNotReady, pb.MetadataError, pb.TooManyRequests})


class ConnectionLost(Exception):
    """The broker went away or moved the topic; connecting again may help."""


class BrokerAway(Exception):
    """Connecting again did not help for as long as the user allows."""


class Refused(Exception):
    """The broker refused, with its reason; asking again would not help."""


@final
class EntryReader:
    """Reads a topic from one entry on. Close it, or use it as a context manager.

    Raises, everywhere: ConnectionLost, Refused.
    """

    def __init__(self, connection: Connection, topic: str, ledger_id: int, entry_id: int) -> None:
        self._timeout_seconds = connection.operation_timeout_ms / 1000
        self._frames: list[ParsedFrame] = []
        self._socket = self._connected_to_owner(connection, topic)
        try:
            self._request(
                client.subscribe(
                    topic,
                    f"reader-{uuid.uuid4().hex[:10]}",
                    CONSUMER_ID,
                    self._client.next_request_id(),
                    start_message_id=(ledger_id, entry_id),
                    durable=False,
                    consumer_name="spark",
                )
            )
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> EntryReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; the broker forgets the reader with its connection."""
        self._socket.close()

    def flow(self, permits: int) -> None:
        """Ask for so many more messages."""
        self._send(client.flow(CONSUMER_ID, permits))

    def entries(self, wait_seconds: float) -> Iterator[StoredEntry]:
        """Entries as they arrive, until none comes for `wait_seconds`."""
        self._socket.settimeout(wait_seconds)
        while True:
            frame = self._next_frame()
            if frame is None:
                return
            command, data = frame
            if command.type == _Type.MESSAGE:
                ledger_id, entry_id = position_of(command.message.message_id)
                yield StoredEntry(ledger_id, entry_id, data or b"")
            elif command.type == _Type.CLOSE_CONSUMER:
                raise ConnectionLost("the broker closed the reader: the topic moves or was deleted")

    def _connected_to_owner(self, connection: Connection, topic: str) -> socket.socket:
        url, authoritative = connection.service_url, False
        for _ in range(REDIRECTS_MAX):
            self._socket = _open(connection, url, self._timeout_seconds)
            self._client = client.Client()
            self._frames = []
            try:
                self._handshake(connection)
                request_id = self._client.next_request_id()
                lookup = client.lookup(topic, request_id, authoritative=authoritative)
                answer = self._request(lookup).lookupTopicResponse
            except BaseException:
                self._socket.close()
                raise
            if answer.response == answer.Failed:
                self._socket.close()
                raise _refusal(answer.error, answer.message)
            secure = connection.service_url.startswith("pulsar+ssl")
            owner = answer.brokerServiceUrlTls if secure else answer.brokerServiceUrl
            here = answer.proxy_through_service_url or owner in ("", url)
            if answer.response == answer.Connect and here:
                return self._socket
            self._socket.close()
            if answer.response == answer.Connect:
                return self._connected_at(connection, owner)
            url, authoritative = owner, answer.authoritative
        raise ConnectionLost(f"{topic}: more than {REDIRECTS_MAX} redirects while looking it up")

    def _connected_at(self, connection: Connection, url: str) -> socket.socket:
        self._socket = _open(connection, url, self._timeout_seconds)
        self._client = client.Client()
        self._frames = []
        self._handshake(connection)
        return self._socket

    def _handshake(self, connection: Connection) -> None:
        method = "token" if connection.token else "none"
        credentials = connection.token.encode() or None
        self._send(client.connect("vela-spark", auth_method_name=method, auth_data=credentials))
        self._answer()

    def _request(self, frame: bytes) -> pb.BaseCommand:
        self._send(frame)
        return self._answer()

    def _answer(self) -> pb.BaseCommand:
        """The answer to the one request that is under way."""
        while True:
            frame = self._next_frame()
            if frame is None:
                raise ConnectionLost(f"no answer in {self._timeout_seconds} s")
            command = frame[0]
            if command.type == _Type.ERROR:
                raise _refusal(command.error.error, command.error.message)
            if command.type in (_Type.CONNECTED, _Type.SUCCESS, _Type.LOOKUP_RESPONSE):
                return command

    def _next_frame(self) -> ParsedFrame | None:
        """None: nothing came in time."""
        while True:
            if not self._frames:
                try:
                    data = self._socket.recv(RECEIVE_BYTES)
                    if not data:
                        raise ConnectionLost("the broker closed the connection")
                    self._frames = self._client.receive(data)[::-1]
                except TimeoutError:
                    return None
                except (OSError, RemoteProtocolError) as error:
                    raise ConnectionLost(str(error)) from error
                continue
            frame = self._frames.pop()
            if frame[0].type == _Type.PING:
                self._send(client.pong())
                continue
            return frame

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise ConnectionLost(str(error)) from error


def _open(connection: Connection, url: str, timeout_seconds: float) -> socket.socket:
    parts = urlsplit(url.split(",")[0])
    address = (parts.hostname or "localhost", parts.port or PORT_DEFAULT)
    try:
        opened = socket.create_connection(address, timeout_seconds)
    except OSError as error:
        raise ConnectionLost(f"{url} cannot be reached: {error}") from error
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if parts.scheme != "pulsar+ssl":
        return opened
    context = ssl.create_default_context(cafile=connection.tls_trust_certs_file or None)
    if connection.tls_allow_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        return context.wrap_socket(opened, server_hostname=address[0])
    except OSError as error:
        opened.close()
        raise Refused(f"{url}: no TLS connection: {error}") from error


def _refusal(code: pb.ServerError, message: str) -> Exception:
    text = f"{pb.ServerError.Name(code)}: {message}"
    return ConnectionLost(text) if code in _PASSING else Refused(text)
