"""A client connection on a blocking socket: requests, and answers waited for one by one.

For the few clients of a run that are measured themselves and have a process or a thread of their
own. The many consumers use `worker`.
"""

from __future__ import annotations

import time
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Final, final

from cli.perf.target import NOTHING_NOW, decrypted_of
from protocol import client
from protocol import pulsar_api_pb2 as pb
from protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from cli.perf.target import Target
    from protocol.frames import ParsedFrame

ANSWER_SECONDS_MAX: Final = 30.0
_RECEIVE_BYTES: Final = 65_536
_Type = pb.BaseCommand


class ConnectionFailed(Exception):
    """The broker refused something or did not answer. The text has its answer."""


@final
class BlockingConnection:
    """Connected, with CONNECT answered."""

    def __init__(self, target: Target) -> None:
        """Raises: ConnectionFailed, OSError."""
        self._codec = client.Client()
        self._socket = target.connect()
        self._decrypted = decrypted_of(self._socket)
        try:
            self.send(target.connect_frame())
            self.wait_for(_Type.CONNECTED)
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def fileno(self) -> int:
        """For the wait."""
        return self._socket.fileno()

    def next_request_id(self) -> int:
        """An id that no request on this connection has had."""
        return self._codec.next_request_id()

    def send(self, frames: bytes) -> None:
        """Raises: OSError."""
        self._socket.sendall(frames)

    def find_topic(self, topic: str) -> None:
        """Ask for partitions and owner, as client libraries do first.

        Raises: ConnectionFailed, OSError.
        """
        self.send(client.partitioned_metadata(topic, self.next_request_id()))
        answer = self.wait_for(_Type.PARTITIONED_METADATA_RESPONSE).partitionMetadataResponse
        if answer.partitions:
            raise ConnectionFailed(f"{topic} is partitioned: name one of its partitions")
        self.send(client.lookup(topic, self.next_request_id()))
        self.wait_for(_Type.LOOKUP_RESPONSE)

    def wait_for(self, kind: int) -> pb.BaseCommand:
        """The next command of the kind. Earlier commands are dropped.

        Raises: ConnectionFailed, OSError.
        """
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while time.monotonic() < deadline:
            for command, _ in self.receive(deadline - time.monotonic()):
                if command.type == kind:
                    return command
                if command.type == _Type.ERROR:
                    raise ConnectionFailed(command.error.message)
        raise ConnectionFailed(f"no {pb.BaseCommand.Type.Name(kind)} in {ANSWER_SECONDS_MAX} s")

    def receive(self, timeout_seconds: float) -> list[ParsedFrame]:
        """The content of one receive, after a bounded wait. PINGs are answered.

        Raises: ConnectionFailed, OSError.
        """
        if not self._decrypted() and not wait([self._socket], max(0.0, timeout_seconds)):
            return []
        try:
            data = self._receive_now()
        except NOTHING_NOW:
            return []  # a part of a record of TLS, or one without data
        if not data:
            raise ConnectionFailed("the broker closed the connection")
        try:
            frames = self._codec.receive(data)
        except RemoteProtocolError as error:
            raise ConnectionFailed(str(error)) from None
        for command, _ in frames:
            if command.type == _Type.PING:
                self.send(client.pong())
        return frames

    def _receive_now(self) -> bytes:
        """All that OpenSSL has decrypted of it, which select does not see."""
        self._socket.setblocking(False)
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
            while data and (count := self._decrypted()):
                data += self._socket.recv(count)
            return data
        finally:
            self._socket.settimeout(ANSWER_SECONDS_MAX)
