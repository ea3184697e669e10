"""One TCP connection to a broker, for sending what no client library would send."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Self, final
from urllib.parse import urlsplit

from protocol import client as wire
from protocol import pulsar_api_pb2 as pb
from protocol.decoding import COMMAND_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.frames import ParsedFrame

Type = pb.BaseCommand


@final
class RawConnection:
    """Blocking; `seen` is everything the broker sent, as short words."""

    def __init__(self, service_url: str, timeout_seconds: float = 60.0) -> None:
        address = urlsplit(service_url)
        self._socket = socket.create_connection(
            (address.hostname or "127.0.0.1", address.port or 6650), timeout=timeout_seconds
        )
        self._timeout_seconds = timeout_seconds
        self._client = wire.Client()
        self._frames: list[ParsedFrame] = []
        self.is_closed = False
        self._is_served = False
        self.seen: list[str] = []
        self.texts: list[str] = []
        """Messages of the errors seen."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def connect(self) -> None:
        """A proper CONNECT, answered."""
        self.send(wire.connect())
        assert self.next() is not None, "no answer to CONNECT"
        self.seen.clear()

    def send(self, *buffers: bytes) -> None:
        """Everything, unless the broker has closed."""
        try:
            self._socket.sendall(b"".join(buffers))
        except (BrokenPipeError, ConnectionResetError):
            self.is_closed = True

    def request_id(self) -> int:
        """One not used yet."""
        return self._client.next_request_id()

    def next(self, timeout_seconds: float | None = None) -> pb.BaseCommand | None:
        """The next command that is not PING or PONG; None: closed, or nothing in time."""
        deadline = time.monotonic() + (timeout_seconds or self._timeout_seconds)
        while (frame := self._next_frame(deadline)) is not None:
            command = frame[0]
            if command.type == Type.PING:
                self.send(wire.pong())
                continue
            if command.type != Type.PONG:
                self._note(command)
                return command
        return None

    def next_frame(self) -> ParsedFrame | None:
        """The next command of any kind with what follows it; None: closed, or nothing in time."""
        return self._next_frame(time.monotonic() + self._timeout_seconds)

    def expect(self, kind: pb.BaseCommand.Type) -> pb.BaseCommand:
        """The next command, which must be of this type."""
        command = self.next()
        assert command is not None, f"closed instead of {Type.Type.Name(kind)}"
        assert command.type == kind, f"got {self.seen[-1]}, not {Type.Type.Name(kind)}"
        return command

    def outcome(
        self,
        *,
        is_connected: bool = True,
        wait_seconds: float = 0.3,
        is_whole: Callable[[tuple[str, ...]], bool] = lambda _seen: True,
    ) -> tuple[str, ...]:
        """All that was seen and is still to come, and whether the connection is still served.

        It is waited for what comes within `wait_seconds` after the answer to a PING, and for longer
        where `is_whole` says that something is missing.
        """
        self._is_served = not is_connected
        if is_connected:
            self.send(wire.ping())
            self._see_until(time.monotonic() + self._timeout_seconds, lambda: self._is_served)
        # Effects of an earlier command may come after the answer to the PING.
        self._see_until(time.monotonic() + wait_seconds, lambda: False)
        self._see_until(
            time.monotonic() + self._timeout_seconds, lambda: is_whole(self._outcome_now())
        )
        return self._outcome_now()

    def _see_until(self, deadline: float, is_over: Callable[[], bool]) -> None:
        while not (self.is_closed or is_over()):
            frame = self._next_frame(deadline)
            if frame is None:
                return
            if frame[0].type == Type.PONG:
                self._is_served = True
            elif frame[0].type == Type.PING:
                self.send(wire.pong())
            else:
                self._note(frame[0])

    def _outcome_now(self) -> tuple[str, ...]:
        if self.is_closed:
            return (*self.seen, "closed")
        return (*self.seen, "open" if self._is_served else "stuck")

    def _note(self, command: pb.BaseCommand) -> None:
        content = getattr(command, COMMAND_FIELDS[command.type])
        word = Type.Type.Name(command.type)
        names = {field.name for field in content.DESCRIPTOR.fields}
        if "error" in names and content.HasField("error"):
            word += f" {pb.ServerError.Name(content.error)}"
            self.texts.append(content.message)
        self.seen.append(word)

    def _next_frame(self, deadline: float) -> ParsedFrame | None:
        while not self._frames:
            left = deadline - time.monotonic()
            if left <= 0 or self.is_closed:
                return None
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                return None
            except ConnectionResetError:
                data = b""
            if not data:
                self.is_closed = True
                return None
            self._frames += self._client.receive(data)
        return self._frames.pop(0)
