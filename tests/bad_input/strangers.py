"""What strangers do to a broker with TLS and authentication, and what they may be answered.

Every kind of misbehaviour is a function with `@strange`. None knows a credential. Of the binary
protocol the only answer is an ERROR that ends the connection: Pulsar's text, or what is wrong with
the bytes themselves. Over HTTP it is a refusal that says nothing of what exists. Anything else is
kept in `Stranger.told`.
"""

from __future__ import annotations

import random
import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, final

from broker.http.missing import pulsar_endpoints
from protocol import client as wire
from protocol import commands as wire_commands
from protocol import pulsar_api_pb2 as pb
from tests.bad_input.guarded_server import HOST, GuardedServer, wrong_tokens
from tests.bad_input.mutation import session

if TYPE_CHECKING:
    from collections.abc import Callable

Type = pb.BaseCommand
HELD_MAX: Final = 200
REFUSALS: Final = frozenset({400, 401, 403, 405, 408, 411, 413, 414, 417, 421, 426, 431, 501, 505})
"""None of them says what exists."""
OPEN_PATH: Final = b"/status.html"


def tls_socket(
    server: GuardedServer, port: int, kind: str = "", timeout_seconds: float = 3.0
) -> ssl.SSLSocket:
    """A connection whose handshake is finished."""
    plain = socket.create_connection((HOST, port), timeout_seconds)
    try:
        return server.client_context(kind).wrap_socket(plain, server_hostname=HOST)
    except BaseException:
        plain.close()
        raise


def first_flight(server: GuardedServer) -> bytes:
    """A proper ClientHello."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    engine = server.client_context().wrap_bio(incoming, outgoing, server_hostname=HOST)
    with suppress(ssl.SSLWantReadError):
        engine.do_handshake()
    return outgoing.read()


@final
class Stranger:
    """One thread's connections and choices."""

    def __init__(self, server: GuardedServer, seed: int) -> None:
        self.server = server
        self.chance = random.Random(seed)
        self.tokens = wrong_tokens()
        self.endpoints = [(each.method, each.path) for each in pulsar_endpoints()]
        self.hello = first_flight(server)
        self.held: list[socket.socket] = []
        self.told: list[str] = []

    @property
    def ports(self) -> tuple[int, int]:
        return self.server.binary_port, self.server.web_port

    def hold(self, connection: socket.socket) -> None:
        """Leave it open; the oldest goes when there are very many."""
        self.held.append(connection)
        while len(self.held) > HELD_MAX:
            self.held.pop(0).close()

    def plain(self) -> socket.socket:
        """A connection to either port, without TLS."""
        return socket.create_connection((HOST, self.chance.choice(self.ports)), 3.0)

    def mutated(self, data: bytes) -> bytes:
        """The same with a few other bytes."""
        changed = bytearray(data)
        for _ in range(self.chance.randint(1, 6)):
            changed[self.chance.randrange(len(changed))] = self.chance.randrange(256)
        return bytes(changed)

    def judge_commands(self, data: bytes, what: str) -> None:
        """Of the binary protocol only an ERROR may come."""
        client = wire.Client()
        for frame in client.receive(data):
            command = frame[0]
            error = command.error
            is_refusal = command.type == Type.ERROR and error.request_id == wire_commands.NO_REQUEST
            says_why = error.message == "Failed to authenticate" or (
                # What is wrong with the bytes that came, and nothing of this broker.
                error.error == pb.UnknownError and "public/default" not in error.message
            )
            if not (is_refusal and says_why):
                self.told.append(f"{what}: {command}"[:300])

    def judge_answer(self, answer: bytes, sent: bytes, what: str) -> None:
        """Over HTTP only refusals."""
        if not answer:
            return
        status = answer[9:12]
        if status.isdigit() and int(status) in REFUSALS | {100}:
            return
        if OPEN_PATH in sent and status == b"200":
            return
        self.told.append(f"{what}: {sent[:120]!r} answered {answer[:200]!r}")


STRANGE: Final[dict[str, Callable[[Stranger], None]]] = {}


def strange(act: Callable[[Stranger], None]) -> Callable[[Stranger], None]:
    """Registers a kind of misbehaviour."""
    STRANGE[act.__name__] = act
    return act


def read_all(connection: socket.socket, seconds: float) -> bytes:
    """What comes until the end, or for so long."""
    connection.settimeout(seconds)
    found = b""
    with suppress(OSError):
        while len(found) < 1_000_000 and (data := connection.recv(65536)):
            found += data
    return found


# --- handshakes -------------------------------------------------------------------------


@strange
def half_open_handshakes(stranger: Stranger) -> None:
    for _ in range(20):
        connection = stranger.plain()
        connection.sendall(stranger.hello[: stranger.chance.randrange(1, len(stranger.hello))])
        stranger.hold(connection)


@strange
def hello_and_silence(stranger: Stranger) -> None:
    connection = stranger.plain()
    connection.sendall(stranger.hello)
    stranger.hold(connection)


@strange
def mutated_hellos(stranger: Stranger) -> None:
    for _ in range(10):
        with stranger.plain() as connection:
            connection.sendall(stranger.mutated(stranger.hello))
            read_all(connection, 0.05)


@strange
def mutated_records(stranger: Stranger) -> None:
    """Right records until somewhere in the handshake or after it, then wrong ones."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    engine = stranger.server.client_context().wrap_bio(incoming, outgoing, server_hostname=HOST)
    right = stranger.chance.randrange(4)
    with stranger.plain() as connection:
        connection.settimeout(0.3)
        for number in range(6):
            try:
                engine.do_handshake()
                engine.write(b"GET / HTTP/1.1\r\n\r\n")
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                return
            data = outgoing.read()
            if data:
                connection.sendall(data if number < right else stranger.mutated(data))
            try:
                incoming.write(connection.recv(65536))
            except TimeoutError:
                return


@strange
def no_tls(stranger: Stranger) -> None:
    with stranger.plain() as connection:
        choices = [
            wire.connect(),
            b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
            stranger.chance.randbytes(3_000),
            b"\x16\x03\x01\xff\xff" + stranger.chance.randbytes(30_000),
            b"\x80\x2e\x01\x00\x02" + bytes(50),
            b"\x15\x03\x03\x00\x02\x02\x28",
        ]
        connection.sendall(stranger.chance.choice(choices))
        answer = read_all(connection, 0.1)
        if answer and answer[:1] != b"\x15":
            stranger.told.append(f"no_tls: answered {answer[:100]!r}")


@strange
def wrong_certificates(stranger: Stranger) -> None:
    kind = stranger.chance.choice(["foreign", "expired", "self-signed"])
    port = stranger.chance.choice(stranger.ports)
    with suppress(OSError), tls_socket(stranger.server, port, kind) as connection:
        if port == stranger.server.web_port:
            sent = b"GET /admin/v2/tenants HTTP/1.1\r\nHost: localhost\r\n\r\n"
            connection.sendall(sent)
            stranger.judge_answer(read_all(connection, 0.5), sent, kind)
        else:
            connection.sendall(wire.connect(auth_method_name="tls"))
            stranger.judge_commands(read_all(connection, 0.5), kind)


# --- the binary protocol ----------------------------------------------------------------


def converse(stranger: Stranger, data: bytes, what: str) -> None:
    with suppress(OSError), tls_socket(stranger.server, stranger.server.binary_port) as connection:
        connection.sendall(data)
        stranger.judge_commands(read_all(connection, 0.3), what)


@strange
def wrong_connects(stranger: Stranger) -> None:
    chance = stranger.chance
    method = chance.choice(["token", "tls", "basic", "sasl", "none", "", "athenz", "x" * 3_000])
    fields: dict[str, Any] = {
        "auth_method_name": method,
        "auth_data": chance.choice(stranger.tokens).encode(),
    }
    if chance.random() < 0.3:
        fields["original_principal"] = "root"
    if chance.random() < 0.3:
        fields["original_auth_data"] = chance.choice(stranger.tokens)
        fields["original_auth_method"] = "token"
    converse(stranger, wire.connect(**fields), "wrong_connects")


@strange
def commands_without_connect(stranger: Stranger) -> None:
    first, pieces = session(stranger.chance)
    converse(stranger, b"".join([*first[1:], *pieces])[:300_000], "commands_without_connect")


@strange
def commands_behind_a_wrong_connect(stranger: Stranger) -> None:
    wrong = wire.connect(
        auth_method_name="token", auth_data=stranger.chance.choice(stranger.tokens).encode()
    )
    more = [
        wire.lookup("persistent://public/default/known", 1),
        wire.producer("persistent://public/default/known", 1, 2),
        wire.auth_response("token", stranger.chance.choice(stranger.tokens).encode()),
    ]
    converse(stranger, wrong + b"".join(more), "commands_behind_a_wrong_connect")


@strange
def mutated_connects(stranger: Stranger) -> None:
    token = stranger.chance.choice(stranger.tokens).encode()
    data = wire.connect(auth_method_name="token", auth_data=token)
    converse(stranger, stranger.mutated(data), "mutated_connects")


@strange
def slow_connects(stranger: Stranger) -> None:
    with suppress(OSError):
        connection = tls_socket(stranger.server, stranger.server.binary_port)
        connection.sendall(wire.connect()[: stranger.chance.randrange(1, 12)])
        stranger.hold(connection)


# --- HTTP -------------------------------------------------------------------------------


def tricky(chance: random.Random, path: str) -> str:
    """A path of a guarded route, spelt to be taken for another."""
    tricks: list[Callable[[str], str]] = [
        lambda each: each,
        lambda each: each.replace("/", "%2F"),
        lambda each: each.replace("/", "//"),
        lambda each: f"/status.html/..{each}",
        lambda each: f"/status.html/%2e%2e{each}",
        lambda each: f"/status.html%2f..{each}",
        lambda each: f"/status.html/%252e%252e{each}",
        lambda each: f"/status.html;{each}",
        lambda each: each.replace("/", ";a=b/")[4:],
        lambda each: f"{each};/status.html",
        lambda each: f"{each}%00",
        lambda each: f"{each}?/status.html",
        lambda each: f"{each}%23/status.html",
        lambda each: f"//localhost{each}",
        lambda each: f"http://localhost{each}",
        lambda each: each.replace("/", "\\"),
        lambda each: each.upper(),
        lambda each: f"/.{each}",
    ]
    names = {"domain": "persistent", "tenant": "public", "namespace": "default", "topic": "known"}
    for name, value in names.items():
        path = path.replace(f"{{{name}}}", value)
    return chance.choice(tricks)(path.replace("{", "").replace("}", ""))


def request(stranger: Stranger, head: str, body: bytes, what: str) -> None:
    data = head.encode("latin-1", "replace") + body
    with suppress(OSError), tls_socket(stranger.server, stranger.server.web_port) as connection:
        connection.sendall(data)
        stranger.judge_answer(read_all(connection, 0.3), data, what)


@strange
def tricks_with_paths(stranger: Stranger) -> None:
    method, path = stranger.chance.choice(stranger.endpoints)
    target = tricky(stranger.chance, path)
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    request(stranger, head, b"", "tricks_with_paths")


@strange
def wrong_tokens_over_http(stranger: Stranger) -> None:
    chance = stranger.chance
    method, path = chance.choice(stranger.endpoints)
    token = chance.choice(stranger.tokens)
    kind = chance.choice(["Bearer ", "Basic ", "bearer ", "", "Negotiate "])
    more = chance.choice(
        ["", "X-Pulsar-Auth-Method-Name: token\r\n", "X-Original-Principal: root\r\n"]
    )
    head = (
        f"{method} {path.replace('{', '').replace('}', '')} HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: {kind}{token}\r\n{more}Connection: close\r\n\r\n"
    )
    request(stranger, head, b"", "wrong_tokens_over_http")


@strange
def bodies_of_strangers(stranger: Stranger) -> None:
    size = stranger.chance.choice([10, 10_000, 2_000_000])
    method, path = stranger.chance.choice(stranger.endpoints)
    head = (
        f"{method} {path.replace('{', '').replace('}', '')} HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    )
    request(stranger, head, b"[" * size, "bodies_of_strangers")


@strange
def mutated_requests(stranger: Stranger) -> None:
    method, path = stranger.chance.choice(stranger.endpoints)
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    changed = stranger.mutated(head.encode("latin-1")).decode("latin-1")
    request(stranger, changed, b"", "mutated_requests")
