"""`python -m bench.flood_loads KIND PORT TOPIC`: one flood, until its input ends.

It speaks the protocol with frames made beforehand, so that the flood costs its own process as
little as possible and the broker as much as a client can make it. It keeps what a stock client
keeps: CONNECT, a look-up, a bounded number of publishes under way, permits. It prints one line when
the flood is under way, and one at its end, with the number of things done.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import select
import socket
import sys
import time
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Final

from cli.perf.blocking_connection import BlockingConnection
from cli.perf.target import Target
from protocol import client
from protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

HOST: Final = "127.0.0.1"
KIBIBYTE: Final = 1024
RECEIVE_BYTES: Final = 1024 * KIBIBYTE
CONNECTIONS: Final = 10_000
OPENING_MAX: Final = 256
"""Connections that wait for their first answer, while idle ones are being opened."""
SOURCES: Final = 8
"""Addresses that the connections come from: one has too few ports for many short ones."""
BACKLOG_MESSAGES: Final = 100_000
BACKLOG_SIZE_BYTES: Final = 100
PERMITS: Final = 1_000
PENDING_MAX: Final = 1_000
"""Publishes under way, as by default in stock clients."""
PENDING_LARGE_MAX: Final = 64
"""64 MB, the memory that stock clients have by default."""
_MESSAGE_ID_AT: Final = 14
"""In a MESSAGE of consumer 1: two sizes (8), type (2), tag and size (2), consumer (2)."""
_Type = pb.BaseCommand


class FloodFailed(Exception):
    """The broker refused it. The text has its answer."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One flood."""

    name: str
    run: Callable[[Stop, int, str], int]
    """Until told to stop; returns how much was done."""
    counts: str
    """What it counts."""


class Stop:
    """The standard input: its end is the order to stop."""

    def __init__(self) -> None:
        self.is_asked = False

    def fileno(self) -> int:
        """For the wait."""
        return sys.stdin.fileno()

    def look(self) -> bool:
        """Whether to stop."""
        if not self.is_asked and wait([self.fileno()], 0):
            self.is_asked = not os.read(self.fileno(), 1)
        return self.is_asked


def begun() -> None:
    """Tell that the flood is under way."""
    print("begun", flush=True)


def _frames(data: bytearray) -> list[bytes]:
    """The whole frames at the beginning of `data`, which are removed from it."""
    found = []
    position, end = 0, len(data)
    while end - position >= 8:
        size = 4 + int.from_bytes(data[position : position + 4], "big")
        if position + size > end:
            break
        found.append(bytes(data[position : position + size]))
        position += size
    del data[:position]
    return found


def _is_kind(frame: bytes, kind: int) -> bool:
    return frame[8:10] == bytes((0x08, kind))


class Publisher:
    """One producer that has as many messages under way as it may."""

    def __init__(self, port: int, topic: str, size_bytes: int, pending_max: int) -> None:
        self._connection = connection = BlockingConnection(Target(HOST, port))
        connection.find_topic(topic)
        connection.send(client.producer(topic, 1, connection.next_request_id()))
        connection.wait_for(_Type.PRODUCER_SUCCESS)
        self._socket = socket.socket(fileno=socket.dup(connection.fileno()))
        self._socket.setblocking(False)
        message = client.message(bytes(size_bytes))
        self._frame = client.send(1, 0, message)
        self._pending_max = pending_max
        self._pending = 0
        self._output = memoryview(b"")
        self._input = bytearray()
        self.answered = 0

    def run(self, stop: Stop, messages_max: float) -> None:
        """Until told to stop, or until so many have been answered."""
        poll = select.epoll()
        poll.register(stop.fileno(), select.EPOLLIN)
        poll.register(self._socket.fileno(), select.EPOLLIN | select.EPOLLOUT)
        is_writable_watched = True
        while self.answered < messages_max:
            for descriptor, _ in poll.poll(1):
                if descriptor == stop.fileno() and stop.look():
                    return
            self._receive()
            self._send()
            if bool(self._output) != is_writable_watched:
                is_writable_watched = bool(self._output)
                wanted = select.EPOLLIN | (select.EPOLLOUT if is_writable_watched else 0)
                poll.modify(self._socket.fileno(), wanted)

    def _send(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                if not self._output:
                    # A part of the window is sent when it is free, as messages come one by one.
                    room = self._pending_max - self._pending
                    if room < max(1, self._pending_max // 16):
                        return
                    self._output = memoryview(self._frame * room)
                    self._pending += room
                self._output = self._output[self._socket.send(self._output) :]

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                raise FloodFailed("the broker closed the connection")
            self._input += data
        for frame in _frames(self._input):
            if _is_kind(frame, _Type.SEND_RECEIPT):
                self.answered += 1
                self._pending -= 1
            elif _is_kind(frame, _Type.PING):
                self._socket.setblocking(True)
                self._socket.sendall(b"" if self._output else client.pong())
                self._socket.setblocking(False)
            elif not _is_kind(frame, _Type.PONG):
                raise FloodFailed(str(client.Client().receive(frame)[0][0]))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
        self._connection.close()


def _publish(size_bytes: int, pending_max: int) -> Callable[[Stop, int, str], int]:
    def run(stop: Stop, port: int, topic: str) -> int:
        publisher = Publisher(port, topic, size_bytes, pending_max)
        begun()
        publisher.run(stop, float("inf"))
        publisher.close()
        return publisher.answered

    return run


def _acknowledge(stop: Stop, port: int, topic: str) -> int:
    """A consumer with a backlog acknowledges each message in a frame of its own; at the end of the
    backlog it takes the next subscription."""
    publisher = Publisher(port, topic, BACKLOG_SIZE_BYTES, PENDING_MAX)
    publisher.run(stop, BACKLOG_MESSAGES)
    publisher.close()
    begun()
    done = 0
    for number in count():
        done += _acknowledge_all(stop, port, topic, f"flood-{number}")
        if stop.is_asked:
            return done
    raise AssertionError


def _acknowledge_all(stop: Stop, port: int, topic: str, subscription: str) -> int:
    connection = BlockingConnection(Target(HOST, port))
    connection.send(
        client.subscribe(
            topic,
            subscription,
            1,
            connection.next_request_id(),
            pb.CommandSubscribe.Shared,
            initialPosition=pb.CommandSubscribe.Earliest,
        )
    )
    connection.wait_for(_Type.SUCCESS)
    connection.send(client.flow(1, PERMITS))
    plain = socket.socket(fileno=socket.dup(connection.fileno()))
    plain.settimeout(10)
    received = bytearray()
    heads: dict[int, bytes] = {}
    permits = done = 0
    while done < BACKLOG_MESSAGES and not stop.look():
        data = plain.recv(RECEIVE_BYTES)
        if not data:
            raise FloodFailed("the broker closed the connection")
        received += data
        answers = []
        for frame in _frames(received):
            if _is_kind(frame, _Type.MESSAGE):
                answers.append(_acknowledgement(frame, heads))
            elif _is_kind(frame, _Type.PING):
                answers.append(client.pong())
        plain.sendall(b"".join(answers))
        done += len(answers)
        permits += len(answers)
        if permits >= PERMITS // 2:
            plain.sendall(client.flow(1, permits))
            permits = 0
    plain.close()
    connection.close()
    return done


def _acknowledgement(frame: bytes, heads: dict[int, bytes]) -> bytes:
    """ACK with the message id of a MESSAGE, taken as it is."""
    if frame[_MESSAGE_ID_AT] != 0x12:
        raise FloodFailed("a MESSAGE of a form that is not known here")
    start = _MESSAGE_ID_AT + 2
    size = frame[_MESSAGE_ID_AT + 1]
    identifier = frame[start : start + size]
    head = heads.get(size)
    if head is None:
        made = client.ack(1, [pb.MessageIdData.FromString(identifier)])
        if not made.endswith(identifier):
            raise FloodFailed("a message id of a form that is not known here")
        head = heads[size] = made[:-size]
    return head + identifier


class Connections:
    """Very many of them, each with one request under way."""

    def __init__(self, port: int, topic: str, *, is_looping: bool) -> None:
        self._port = port
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._steps: dict[int, int] = {}
        """Descriptor -> which of the requests is under way."""
        self._opened = 0
        requests = [client.connect("flood")]
        if is_looping:
            requests += [client.partitioned_metadata(topic, 1), client.lookup(topic, 2)]
        self._requests = requests
        self._is_looping = is_looping
        self.ready = 0
        """Which have had all their answers."""

    def run(self, stop: Stop) -> None:
        """Until told to stop."""
        self._poll.register(stop.fileno(), select.EPOLLIN)
        is_begun = False
        while not stop.is_asked:
            self._open_more()
            if not is_begun and (self._opened if self._is_looping else self.ready) >= CONNECTIONS:
                is_begun = True
                begun()
            for descriptor, event in self._poll.poll(1, 1024):
                if descriptor == stop.fileno():
                    stop.look()
                else:
                    self._go_on(descriptor, event)

    def _open_more(self) -> None:
        waiting = 0 if self._is_looping else len(self._sockets) - self.ready
        for _ in range(min(CONNECTIONS - len(self._sockets), OPENING_MAX - waiting)):
            opened = socket.socket()
            opened.setblocking(False)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.setsockopt(socket.SOL_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
            opened.bind((f"127.0.0.{2 + self._opened % SOURCES}", 0))
            failed = opened.connect_ex((HOST, self._port))
            if failed not in (0, errno.EINPROGRESS):
                opened.close()
                raise FloodFailed(f"cannot connect: {errno.errorcode[failed]}")
            self._opened += 1
            self._sockets[opened.fileno()] = opened
            self._steps[opened.fileno()] = -1
            self._poll.register(opened.fileno(), select.EPOLLOUT)

    def _go_on(self, descriptor: int, event: int) -> None:
        connection = self._sockets[descriptor]
        step = self._steps[descriptor]
        try:
            if step == -1:
                self._poll.modify(descriptor, select.EPOLLIN)
            elif not connection.recv(RECEIVE_BYTES):
                raise ConnectionResetError
            if step == len(self._requests):  # a PING
                connection.send(client.pong())
                return
            self._steps[descriptor] = step = step + 1
            if step < len(self._requests):
                connection.send(self._requests[step])
                return
        except OSError:
            if not self._is_looping:
                raise FloodFailed("the broker closed an idle connection") from None
            self._close(descriptor)
            return
        self.ready += 1
        if self._is_looping:
            self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        del self._steps[descriptor]
        self._sockets.pop(descriptor).close()


def _connect(*, is_looping: bool) -> Callable[[Stop, int, str], int]:
    def run(stop: Stop, port: int, topic: str) -> int:
        connections = Connections(port, topic, is_looping=is_looping)
        connections.run(stop)
        return connections.ready

    return run


KINDS: Final = {
    each.name: each
    for each in (
        Kind("1KB", _publish(KIBIBYTE, PENDING_MAX), "messages"),
        Kind("1MB", _publish(1000 * KIBIBYTE, PENDING_LARGE_MAX), "messages"),
        Kind("idle", _connect(is_looping=False), "connections"),
        Kind("connecting", _connect(is_looping=True), "connections"),
        Kind("acks", _acknowledge, "acknowledgements"),
    )
}


def main() -> int:
    """Run one; the last line is JSON: how much was done, and in which time."""
    parser = argparse.ArgumentParser(prog="python -m bench.flood_loads")
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("port", type=int)
    parser.add_argument("topic")
    options = parser.parse_args()
    begun_at = time.monotonic()
    cpu = time.process_time()
    try:
        done = KINDS[options.kind].run(Stop(), options.port, options.topic)
    except (FloodFailed, OSError) as failure:
        print(f"{options.kind}: {failure!r}", file=sys.stderr)
        return 1
    seconds = time.monotonic() - begun_at
    print(json.dumps({"done": done, "seconds": seconds, "cpu": time.process_time() - cpu}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
