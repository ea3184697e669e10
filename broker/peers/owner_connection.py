"""A connection to another broker, as its client.

An answer goes to the task that asked. All other commands of the broker go to one callback, in
order, and the next bytes are received only after it has returned. So a busy follower slows its
owner down through the socket, and costs it no more memory than any client may. Receiving never
waits for sending, because the owner does not read from a client that does not read.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import urlsplit

import structlog
import trio

from broker.peers.broker_client import ANONYMOUS
from protocol import client
from protocol import pulsar_api_pb2 as pb
from protocol.connection import COMMANDS
from protocol.errors import BrokerError, ProtocolError
from security.authentication.identity import CredentialUnreadable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker.peers.broker_client import BrokerClient, Shown
    from protocol.frames import ParsedFrame

RECEIVE_BYTES: Final = 1 << 20
ANSWER_SECONDS_MAX: Final = 30.0
CONNECT_SECONDS_MAX: Final = 10.0
UNSENT_BYTES_MAX: Final = 1 << 20
SILENCE_SECONDS_MAX: Final = 15.0
"""After this much silence the broker is asked for a sign of life, and after as much again it counts
as gone."""
CLIENT_VERSION: Final = "Vela follower"

_Type = pb.BaseCommand
_ANSWERS: Final = frozenset(
    {
        _Type.SUCCESS,
        _Type.ERROR,
        _Type.LOOKUP_RESPONSE,
        _Type.GET_LAST_MESSAGE_ID_RESPONSE,
        _Type.GET_SCHEMA_RESPONSE,
        _Type.PRODUCER_SUCCESS,
    }
)

log = structlog.get_logger()


class LinkLost(Exception):
    """There is no connection, or it has ended. The text says why."""


@final
class _Answer:
    __slots__ = ("command", "done")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.command: pb.BaseCommand | None = None


async def _secured(
    plain: trio.SocketStream, host: str, broker_client: BrokerClient
) -> trio.abc.Stream:
    """The stream with TLS, if that is wanted. Raises: trio.BrokenResourceError."""
    tls = await broker_client.context()
    if tls is None:
        return plain
    stream = trio.SSLStream(plain, tls, server_hostname=host, https_compatible=True)
    try:
        await stream.do_handshake()
    except BaseException:
        await trio.aclose_forcefully(plain)
        raise
    return stream


@final
class OwnerConnection:
    """See the module docstring. Made by `open`."""

    def __init__(
        self,
        plain: trio.SocketStream,
        stream: trio.abc.Stream,
        take: Callable[[list[ParsedFrame]], Awaitable[None]],
        broker_client: BrokerClient = ANONYMOUS,
    ) -> None:
        """`stream` is over `plain`, or the same. `begin` comes next."""
        self._plain = plain
        self._stream = stream
        self._take = take
        self._broker_client = broker_client
        self._codec = client.Client()
        self._waiting: dict[int, _Answer] = {}
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._wake_writer = trio.Event()
        self._connected: _Answer | None = _Answer()
        self._ended = trio.Event()
        self.failure = ""
        """Why it has ended; empty while it has not."""
        self.server_version = ""

    @classmethod
    async def open(
        cls,
        service_url: str,
        nursery: trio.Nursery,
        take: Callable[[list[ParsedFrame]], Awaitable[None]],
        broker_client: BrokerClient = ANONYMOUS,
    ) -> OwnerConnection:
        """Connect to `pulsar://host:port`, or to `pulsar+ssl://host:port` if `broker_client` is for
        TLS. Its task runs in the nursery until `close`.

        Raises: LinkLost.
        """
        try:
            parts = urlsplit(service_url)
            with trio.fail_after(CONNECT_SECONDS_MAX):
                plain = await trio.open_tcp_stream(parts.hostname or "", parts.port or 6650)
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                stream = await _secured(plain, parts.hostname or "", broker_client)
        except trio.BrokenResourceError as error:  # the cause is of TLS, and says more
            reason = error.__cause__ or error
            raise LinkLost(f"cannot connect to {service_url}: {reason}") from None
        except (OSError, ValueError, trio.TooSlowError) as error:
            raise LinkLost(f"cannot connect to {service_url}: {error}") from None
        connection = cls(plain, stream, take, broker_client)
        await connection.begin(service_url, nursery)
        return connection

    async def begin(self, peer: str, nursery: trio.Nursery) -> None:
        """Its task runs in the nursery until `close`. Raises: LinkLost."""
        nursery.start_soon(self.run)
        nursery.start_soon(self.write)
        try:
            await self.shake_hands()
        except LinkLost as lost:
            self.close("the handshake failed")
            raise LinkLost(f"{peer} does not let this broker in: {lost}") from None
        except BaseException:
            self.close("the handshake failed")
            raise

    async def shake_hands(self) -> None:
        """Raises: LinkLost: the broker refused, or did not answer."""
        greeting = self._connected
        assert greeting is not None
        features = pb.FeatureFlags(supports_broker_entry_metadata=True, supports_auth_refresh=True)
        method, data = await self._shown()
        fields: dict[str, Any] = {"auth_method_name": method, "auth_data": data} if method else {}
        self.send(client.connect(CLIENT_VERSION, feature_flags=features, **fields))
        with trio.move_on_after(CONNECT_SECONDS_MAX):
            await greeting.done.wait()
        if greeting.command is None:
            raise LinkLost(self.failure or "the broker does not answer CONNECT")
        self.server_version = greeting.command.connected.server_version

    async def _shown(self) -> Shown:
        """The credentials of this broker. Raises: LinkLost: the file that holds them cannot be
        read."""
        try:
            return await self._broker_client.shown()
        except CredentialUnreadable as error:
            raise LinkLost(str(error)) from None

    # --- requests -----------------------------------------------------------------------

    def send(self, frames: bytes) -> None:
        """Send it after what was sent before. Raises: LinkLost."""
        if self.failure:
            raise LinkLost(self.failure)
        self._unsent.append(frames)
        self._unsent_bytes += len(frames)
        if self._unsent_bytes > UNSENT_BYTES_MAX:
            self.close("the broker takes nothing")
            raise LinkLost(self.failure)
        self._wake_writer.set()

    async def write(self) -> None:
        """Send what is to be sent until the connection ends. Never raises."""
        try:
            while not self.failure:
                await self._wake_writer.wait()
                self._wake_writer = trio.Event()
                frames = b"".join(self._unsent)
                self._unsent.clear()
                self._unsent_bytes = 0
                await self._stream.send_all(frames)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.close(f"lost: {error}")

    async def ask(self, make: Callable[[int], bytes]) -> pb.BaseCommand:
        """The answer to the request that `make` makes for a request id.

        Raises: BrokerError: the broker refuses. LinkLost.
        """
        request_id = self._codec.next_request_id()
        answer = self._waiting[request_id] = _Answer()
        try:
            self.send(make(request_id))
            with trio.move_on_after(ANSWER_SECONDS_MAX):
                await answer.done.wait()
        finally:
            self._waiting.pop(request_id, None)
        command = answer.command
        if command is None:
            self.close("the broker does not answer")
            raise LinkLost(self.failure)
        if command.type == _Type.ERROR:
            raise BrokerError(command.error.error, command.error.message)
        return command

    # --- receiving ----------------------------------------------------------------------

    async def run(self) -> None:
        """Receive until the connection ends. Never raises."""
        try:
            while not self.failure:
                data = await self._receive()
                if not data:
                    self.close("closed by the broker")
                    return
                await self._dispatch(data)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.close(f"lost: {error}")
        except (LinkLost, BrokerError, ProtocolError) as error:
            self.close(str(error))
        except Exception as error:
            log.error("follower stops listening to the owner", exc_info=error)
            self.close(f"{type(error).__name__}: {error}")
        finally:
            self.close("cancelled")

    async def _receive(self) -> bytes:
        for attempt in range(2):
            with trio.move_on_after(SILENCE_SECONDS_MAX):
                return bytes(await self._stream.receive_some(RECEIVE_BYTES))
            if attempt == 0:
                self.send(client.ping())
        raise LinkLost(f"no sign of life for {2 * SILENCE_SECONDS_MAX:.0f} s")

    async def _dispatch(self, data: bytes) -> None:
        rest: list[ParsedFrame] = []
        for frame in self._codec.receive(data):
            command = frame[0]
            kind = command.type
            if kind == _Type.PING:
                self.send(client.pong())
            elif kind == _Type.AUTH_CHALLENGE:
                self.send(client.auth_response(*await self._shown()))
            elif kind == _Type.CONNECTED and self._connected is not None:
                self._resolve(self._connected, command)
                self._connected = None
            elif kind in _ANSWERS:
                self._answered(command)
            elif kind != _Type.PONG:
                rest.append(frame)
        if rest:
            await self._take(rest)

    def _answered(self, command: pb.BaseCommand) -> None:
        content = getattr(command, COMMANDS[command.type].field)
        answer = self._waiting.get(content.request_id)
        if answer is not None:
            self._resolve(answer, command)
        elif command.type == _Type.ERROR:
            raise LinkLost(command.error.message)

    @staticmethod
    def _resolve(answer: _Answer, command: pb.BaseCommand | None) -> None:
        answer.command = command
        answer.done.set()

    # --- end ----------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """End it, once. Those who wait for an answer get LinkLost."""
        if self.failure:
            return
        self.failure = reason
        self._plain.socket.close()
        self._wake_writer.set()
        for answer in (*self._waiting.values(), self._connected):
            if answer is not None:
                answer.done.set()
        self._ended.set()

    async def wait_ended(self) -> None:
        """Return when it has ended, for whatever reason."""
        await self._ended.wait()
