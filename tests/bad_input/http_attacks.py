"""Hostile HTTP: an attacker, and what it does. Every kind is a function with `@hostile`."""

from __future__ import annotations

import json
import random
import socket
import struct
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

from broker.http.routes import all_routes
from protocol import client as wire

if TYPE_CHECKING:
    from collections.abc import Callable

HELD_MAX: Final = 400
"""Connections that one attacker leaves open without reading from them."""
NUMBERS: Final = ["0", "-1", "1" * 400, str(2**31 - 1), str(2**63), str(-(2**63)), "1e999", "NaN"]
METHODS: Final = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PATCH"]
ODD_METHODS: Final = ["get", "PRI", "M-SEARCH", "X" * 5_000, "G\x00T", "POST\t", ""]
NAMES: Final = [
    "fuzz",
    "fuzz%2Fx",
    "%00",
    "%ff%fe",
    "..",
    "%2e%2e",
    "a" * 2_000,
    "%",
    "\u00e4",
    "+",
]
HEADERS: Final = ["Host", "Content-Length", "Transfer-Encoding", "Connection", "Expect", "Upgrade"]
HEADERS_MORE: Final = ["Origin", "Content-Type", "Accept-Encoding", "Range", "Cookie", "X-Y"]
VALUES: Final = ["", "chunked", "gzip, chunked", "100-continue", "websocket", "h2c", "close"]
VALUES_MORE: Final = [
    "keep-alive",
    "Upgrade",
    "5, 5",
    "-5",
    "99999999999999999999",
    "\x01",
    "a\x00b",
]
FIELDS: Final = [
    *("partitions", "properties", "messageId", "ledgerId", "entryId", "partitionIndex"),
    *("type", "schema", "retentionTimeInMinutes", "retentionSizeInMB", "adminRoles", "policies"),
    *("allowedClusters", "serviceUrl", "bundles", "numBundles", "topicType", "a", "limit"),
]
ROUTES: Final = [(route.method, route.path) for route in all_routes()]


@final
class Attacker:
    """One thread's connections and its choices."""

    def __init__(self, port: int, seed: int) -> None:
        self.chance = random.Random(seed)
        self.held: list[socket.socket] = []
        self.count: Counter[str] = Counter()
        self._port = port

    def connect(self, receive_bytes: int = 0) -> socket.socket:
        """A new connection."""
        connection = socket.socket()
        if receive_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.settimeout(2)
        connection.connect(("127.0.0.1", self._port))
        return connection

    def exchange(self, data: bytes, read_seconds: float = 0.2) -> None:
        """Send, read a little, and leave in one of the ways in which clients leave."""
        with self.connect() as connection:
            connection.sendall(data)
            connection.settimeout(read_seconds)
            with suppress(TimeoutError):
                connection.recv(65536)
            if self.chance.random() < 0.3:
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    def hold(self, connection: socket.socket) -> None:
        """Leave it open; the oldest one goes when there are very many."""
        self.held.append(connection)
        while len(self.held) > HELD_MAX:
            self.held.pop(0).close()

    def name(self) -> str:
        """One in a path: often one that exists."""
        return "fuzz" if self.chance.random() < 0.7 else self.chance.choice(NAMES)

    def request(self, body: bytes = b"", method: str = "", more: str = "") -> bytes:
        """A valid request for one of the broker's routes, with odd names in it."""
        chance = self.chance
        of_route, path = chance.choice(ROUTES)
        segments = [
            self.name() if part.startswith("{") and part != "{domain}" else part
            for part in path.replace("{domain}", "persistent").split("/")
        ]
        query = "&".join(
            f"{chance.choice(['force', 'timeout', 'mode', 'perPartition', 'x'])}"
            f"={chance.choice(NUMBERS)}"
            for _ in range(chance.choice([0, 0, 1, 3, 100]))
        )
        target = "/".join(segments) + (f"?{query}" if query else "")
        head = f"{method or of_route} {target} HTTP/1.1\r\nHost: localhost\r\n{more}"
        if body or "Transfer" not in more:
            head += f"Content-Length: {len(body)}\r\n"
        return (head + "Content-Type: application/json\r\n\r\n").encode("utf-8") + body


HOSTILE: Final[dict[str, Callable[[Attacker], None]]] = {}


def hostile(act: Callable[[Attacker], None]) -> Callable[[Attacker], None]:
    """Registers a kind of misbehaviour."""
    HOSTILE[act.__name__] = act
    return act


@hostile
def proper_requests(attacker: Attacker) -> None:
    """So that there is something to be hostile to."""
    tenant = b'{"adminRoles": [], "allowedClusters": ["standalone"]}'
    for path, body in (
        ("tenants/fuzz", tenant),
        ("namespaces/fuzz/fuzz", b""),
        ("persistent/fuzz/fuzz/fuzz", b""),
        ("persistent/fuzz/fuzz/fuzz/subscription/fuzz", b""),
    ):
        head = (
            f"PUT /admin/v2/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        )
        attacker.exchange(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)


@hostile
def odd_values(attacker: Attacker) -> None:
    for _ in range(10):
        attacker.exchange(attacker.request(json.dumps(_odd_value(attacker.chance, 3)).encode()))


def _odd_value(chance: random.Random, depth: int) -> object:
    plain = [
        None,
        True,
        0,
        -1,
        2**31,
        2**63,
        -(2**63) - 1,
        10**300,
        1e308,
        0.1,
        "",
        "fuzz",
        "\ud800",
    ]
    if not depth or chance.random() < 0.5:
        return chance.choice(plain)
    if chance.random() < 0.3:
        return [_odd_value(chance, depth - 1) for _ in range(chance.randint(0, 5))]
    return {chance.choice(FIELDS): _odd_value(chance, depth - 1) for _ in range(4)}


@hostile
def changed_bytes(attacker: Attacker) -> None:
    data = bytearray(attacker.request(b'{"a": 1}'))
    for _ in range(attacker.chance.randint(1, 8)):
        data[attacker.chance.randrange(len(data))] = attacker.chance.randrange(256)
    attacker.exchange(bytes(data))


@hostile
def odd_methods(attacker: Attacker) -> None:
    attacker.exchange(attacker.request(method=attacker.chance.choice(METHODS + ODD_METHODS)))


@hostile
def odd_headers(attacker: Attacker) -> None:
    chance = attacker.chance
    more = "".join(
        f"{chance.choice(HEADERS + HEADERS_MORE)}: {chance.choice(VALUES + VALUES_MORE)}\r\n"
        for _ in range(chance.randint(1, 5))
    )
    attacker.exchange(attacker.request(b"[]", more=more))


@hostile
def huge_headers(attacker: Attacker) -> None:
    size = attacker.chance.choice([7_000, 9_000, 100_000, 2_000_000])
    kind = attacker.chance.choice(["X: " + "x" * size, "\r\n".join(["a:b"] * (size // 5))])
    attacker.exchange(attacker.request(more=kind + "\r\n"))


@hostile
def chunks(attacker: Attacker) -> None:
    chance = attacker.chance
    good = [b"1\r\nx\r\n", b"a;ext=1\r\n0123456789\r\n", b"0\r\n\r\n", b"0\r\nTrailer: x\r\n\r\n"]
    bad = [b"zz\r\n", b"-1\r\nx\r\n", b"ffffffffffffffffff\r\n", b"1\r\nxx\r\n", b"1" * 5_000]
    body = b"".join(
        chance.choices(good + bad, [20, 5, 1, 1, 1, 1, 1, 1, 1], k=chance.randint(1, 99))
    )
    if chance.random() < 0.1:
        body = b"1\r\nx\r\n" * 20_000
    head = attacker.request(more="Transfer-Encoding: chunked\r\n")
    attacker.exchange(head + body)


@hostile
def pipelined(attacker: Attacker) -> None:
    attacker.exchange(b"".join(attacker.request() for _ in range(attacker.chance.randint(2, 200))))


@hostile
def broken_halfway(attacker: Attacker) -> None:
    data = attacker.request(b"{" * attacker.chance.choice([10, 10_000]))
    attacker.exchange(data[: attacker.chance.randrange(len(data))], 0.01)


@hostile
def slow_head(attacker: Attacker) -> None:
    connection = attacker.connect()
    connection.sendall(attacker.request()[: attacker.chance.randint(0, 40)])
    attacker.hold(connection)


@hostile
def slow_body(attacker: Attacker) -> None:
    connection = attacker.connect()
    data = attacker.request(bytes(attacker.chance.choice([100, 100_000, 4_000_000])), "PUT")
    connection.setblocking(False)
    with suppress(BlockingIOError):
        connection.send(data[: max(100, len(data) // 2)])
    attacker.hold(connection)


@hostile
def answers_not_read(attacker: Attacker) -> None:
    connection = attacker.connect(receive_bytes=2_048)
    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
    attacker.hold(connection)


@hostile
def many_connections(attacker: Attacker) -> None:
    for _ in range(200):
        attacker.hold(attacker.connect())


@hostile
def slow_bytes(attacker: Attacker) -> None:
    for connection in attacker.chance.sample(attacker.held, min(20, len(attacker.held))):
        connection.setblocking(False)
        connection.send(b"x")


@hostile
def json_bombs(attacker: Attacker) -> None:
    chance = attacker.chance
    bombs = [b"[" * 100_000, b'{"a":' * 50_000, b"[" + b"1," * 300_000 + b"1]", b"9" * 100_000]
    more = [b'"' + b"\\u0000" * 10_000 + b'"', b"\xff\xfe", b"1e400", b"[1e400,NaN,-Infinity]"]
    attacker.exchange(attacker.request(chance.choice(bombs + more), chance.choice(["PUT", "POST"])))


@hostile
def large_bodies(attacker: Attacker) -> None:
    attacker.exchange(
        attacker.request(bytes(attacker.chance.choice([1_000_000, 9_000_000])), "POST")
    )


@hostile
def other_protocols(attacker: Attacker) -> None:
    attacker.exchange(
        attacker.chance.choice(
            [
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(100),
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
                wire.connect(),
                b"GET / HTTP/0.9\r\n\r\n",
                b"GET / HTTP/9.9\r\n\r\n",
                b"GET /\r\n",
                b"\r\n" * 2_000,
                b"GET /ws/v2/producer/persistent/a/b/c HTTP/1.1\r\nHost: localhost\r\n"
                b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n\x81\x05hello",
                b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\n"
                b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
            ]
        )
    )


@hostile
def foreign_callers(attacker: Attacker) -> None:
    data = attacker.request(method="POST").replace(
        b"localhost", attacker.chance.choice([b"attacker.test", b"", b"[::1", b"a, b", b"\xff"])
    )
    attacker.exchange(data)
