"""One connection, over streams in memory and a clock that does not wait."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from web.asgi import read_body
from web.connection import Link
from web.errors import RequestRefused
from web.limits import HttpLimits
from web.server import HANDLED_PER_ROUND, SLOW_SECONDS, HttpServer

LIMITS = HttpLimits(
    connections_max=2,
    request_seconds_max=30,
    idle_seconds_max=60,
    answer_seconds_max=120,
    buffered_bytes_max=1024 * 1024,
)
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Application:
    """Answers with what it read; `/big` with many slices, `/unread` without reading."""

    def __init__(self):
        self.scopes = []
        self.sent = 0

    async def __call__(self, scope, receive, send):
        self.scopes.append(scope)
        status, body = 200, b"ok"
        if scope["path"] not in ("/unread", "/big"):
            try:
                body = await read_body(receive) or b"ok"
            except RequestRefused as refusal:
                status, body = refusal.status, b"refused"
        start = {"type": "http.response.start", "status": status, "headers": []}
        await send(start)
        if scope["path"] == "/big":
            for _ in range(1_000):
                await send({"type": "http.response.body", "body": bytes(65536), "more_body": True})
                self.sent += 65536
        await send({"type": "http.response.body", "body": body})


class Client:
    """One connection to a server."""

    def __init__(self, nursery, server):
        self.stream, served = memory_stream_pair()
        self.server = server
        nursery.start_soon(server.serve_stream, served, Link())

    async def send(self, data):
        await self.stream.send_all(data)

    async def all(self):
        """Everything until the server closes."""
        data = b""
        while more := await self.stream.receive_some(65536):
            data += more
        await self.stream.send_eof()
        return data

    async def answer(self):
        """One short answer: (status, body)."""
        data = b""
        while b"0\r\n\r\n" not in data and (more := await self.stream.receive_some(65536)):
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        chunk = body.split(b"\r\n")[1] if b"chunked" in head else body
        return int(head.split()[1]), chunk


@pytest.fixture
async def serving():
    application = Application()
    server = HttpServer(application, LIMITS)
    async with trio.open_nursery() as nursery:
        yield server, lambda: Client(nursery, server)
        nursery.cancel_scope.cancel()
    assert server.budget.held == 0
    assert len(server) == 0


def reason(data):
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    return int(head.split()[1]), json.loads(body)["reason"]


async def test_requests_follow_each_other_on_one_connection(autojump_clock, serving):
    _, connect = serving
    client = connect()
    for body in (b"one", b"two"):
        await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n" + body)
        assert await client.answer() == (200, body)


async def test_pipelined_requests_are_answered_in_order(autojump_clock, serving):
    _, connect = serving
    client = connect()
    request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n"
    await client.send(request + b"1" + request + b"2" + request + b"3")
    await client.stream.send_eof()
    answers = await client.all()
    assert [answers.index(b"1\r\n%d\r\n" % number) for number in (1, 2, 3)] == sorted(
        answers.index(b"1\r\n%d\r\n" % number) for number in (1, 2, 3)
    )


@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: a\r\n"])
async def test_a_head_that_does_not_arrive_ends_the_connection(autojump_clock, serving, begun):
    _, connect = serving
    client = connect()
    if begun:
        await client.send(begun)
    started = trio.current_time()
    answer = await client.all()
    assert trio.current_time() - started < LIMITS.request_seconds_max + 5
    if begun:
        assert reason(answer)[0] == 408
    else:
        assert answer == b""


async def test_a_head_that_comes_byte_by_byte_has_the_same_time(autojump_clock, serving):
    server, connect = serving
    client = connect()
    started = trio.current_time()
    await wait_all_tasks_blocked()
    while len(server):
        await client.send(b"G")
        await trio.sleep(10)
    assert trio.current_time() - started < LIMITS.request_seconds_max + 15


async def test_a_body_that_does_not_arrive_is_answered(autojump_clock, serving):
    _, connect = serving
    client = connect()
    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf")
    started = trio.current_time()
    status = int((await client.all()).split()[1])
    assert status == 408
    assert trio.current_time() - started < LIMITS.request_seconds_max + 5


async def test_an_idle_connection_is_closed(autojump_clock, serving):
    _, connect = serving
    client = connect()
    await client.send(GET)
    await client.answer()
    started = trio.current_time()
    assert await client.all() == b""
    assert trio.current_time() - started == pytest.approx(LIMITS.idle_seconds_max, abs=5)


async def test_a_client_that_does_not_take_its_answer_is_cut_off(autojump_clock):
    application = Application()
    server = HttpServer(application, LIMITS)
    client_stream, stream = memory_stream_pair()

    async def full(self=None):
        await trio.sleep_forever()

    stream.send_stream.send_all_hook = full
    await client_stream.send_all(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n")
    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_stream, stream, Link())
        await wait_all_tasks_blocked()
        assert server.budget.held <= 70_000, "one slice is held for it"
    assert trio.current_time() - started == pytest.approx(LIMITS.answer_seconds_max, abs=1)
    assert application.sent == 0
    assert server.budget.held == 0


async def test_a_large_head_is_refused(autojump_clock, serving):
    _, connect = serving
    client = connect()
    await client.send(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000 + b"\r\n\r\n")
    assert reason(await client.all())[0] == 431


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_no_http_is_refused(autojump_clock, serving, nonsense, caplog):
    _, connect = serving
    client = connect()
    await client.send(nonsense)
    assert int((await client.all()).split()[1]) in (400, 501)
    assert not caplog.records


async def test_a_body_whose_end_is_told_twice_is_refused(autojump_clock, serving):
    """A proxy may see its end elsewhere, and take the rest for another client's request."""
    _, connect = serving
    client = connect()
    await client.send(
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"
    )
    answer = await client.all()
    assert answer.count(b"HTTP/1.1 ") == 1
    assert reason(answer) == (400, "Transfer-Encoding and Content-Length")


async def test_http_2_is_not_spoken(autojump_clock, serving):
    _, connect = serving
    client = connect()
    await client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert reason(await client.all()) == (505, "Only HTTP/1.1 is spoken here")
    client = connect()
    await client.send(
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n"
    )
    assert await client.answer() == (200, b"ok")


async def test_a_body_that_nobody_reads_keeps_the_connection_while_it_is_small(
    autojump_clock, serving
):
    _, connect = serving
    client = connect()
    for _ in range(2):
        await client.send(b"POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody")
        assert await client.answer() == (200, b"ok")
    head = b"POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
    await client.send(head + bytes(1_000_000))
    assert b"connection: close" in (await client.all()).lower()


async def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(autojump_clock, serving):
    _, connect = serving
    client = connect()
    await client.send(
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    )
    assert (await client.stream.receive_some()).startswith(b"HTTP/1.1 100")
    await client.send(b"yes")
    assert await client.answer() == (200, b"yes")


async def test_a_body_of_very_many_small_chunks_is_refused(autojump_clock, serving):
    _, connect = serving
    client = connect()
    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    await client.send(b"1\r\nx\r\n" * 1_100)
    assert int((await client.all()).split()[1]) == 400


async def test_unfinished_requests_hold_half_of_the_budget_at_most(autojump_clock, serving):
    server, connect = serving
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
    first, second = connect(), connect()
    await first.send(head + bytes(300_000))
    await wait_all_tasks_blocked()
    assert server.budget.held == 300_000
    await second.send(head + bytes(300_000))
    assert int((await second.all()).split()[1]) == 503
    assert server.budget.held <= LIMITS.buffered_bytes_max // 2


async def test_bytes_of_a_request_are_given_back_when_its_client_leaves(autojump_clock, serving):
    server, connect = serving
    client = connect()
    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nhalf")
    await wait_all_tasks_blocked()
    assert server.budget.held == 4
    await client.stream.aclose()
    await wait_all_tasks_blocked()
    assert (server.budget.held, len(server)) == (0, 0)


async def test_an_idle_connection_gives_way_to_a_new_one(autojump_clock, serving):
    server, connect = serving
    oldest, newer = connect(), connect()
    for client in (newer, oldest):
        await trio.sleep(1)
        await client.send(GET)
        await client.answer()
    third = connect()  # `newer` has been idle for longer
    await third.send(GET)
    assert await third.answer() == (200, b"ok")
    assert await newer.all() == b""
    assert len(server) == 2
    await oldest.send(GET)
    assert await oldest.answer() == (200, b"ok")


async def test_a_connection_above_busy_ones_is_told_why(autojump_clock, serving):
    server, connect = serving
    busy = [connect(), connect()]
    for client in busy:
        await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n")
    await wait_all_tasks_blocked()
    status, text = reason(await connect().all())
    assert status == 503
    assert "maxHttpServerConnections" in text
    assert len(server) == 2
    await busy[0].send(b"x")
    assert await busy[0].answer() == (200, b"x")


async def test_a_client_that_stands_still_gives_way_to_a_new_one(autojump_clock, serving):
    """Else as many clients as there are places keep all others out, for two minutes each."""
    _, connect = serving
    slow, newer = connect(), connect()
    for client in (newer, slow):
        await trio.sleep(SLOW_SECONDS)
        await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n")
    await wait_all_tasks_blocked()
    third = connect()  # `newer` has stood still for longer
    await third.send(GET)
    assert await third.answer() == (200, b"ok")
    assert await newer.all() == b""
    await slow.send(b"x")
    assert await slow.answer() == (200, b"x")


async def test_a_client_that_does_not_read_gives_way_to_a_new_one(autojump_clock):
    server = HttpServer(Application(), replace(LIMITS, connections_max=1))
    async with trio.open_nursery() as nursery:
        unread, served = memory_stream_pair()
        served.send_stream.send_all_hook = trio.sleep_forever
        await unread.send_all(GET)
        nursery.start_soon(server.serve_stream, served, Link())
        await trio.sleep(SLOW_SECONDS)
        client = Client(nursery, server)
        await client.send(GET)
        assert await client.answer() == (200, b"ok")
        nursery.cancel_scope.cancel()


async def test_a_rate_of_requests_is_kept_when_asked_for(autojump_clock):
    server = HttpServer(Application(), replace(LIMITS, requests_per_second_max=2.0))
    async with trio.open_nursery() as nursery:
        client = Client(nursery, server)
        seen = []
        for _ in range(3):
            await client.send(GET)
            data = await client.stream.receive_some(65536)
            seen.append(int(data.split()[1]))
        assert seen == [200, 200, 429]
        assert b"httpRequestsMaxPerSecond" in data
        await trio.sleep(1)
        await client.send(GET)
        assert (await client.answer())[0] == 200
        nursery.cancel_scope.cancel()


class Rounds(trio.abc.Instrument):
    """Counts what happens between two looks at what has arrived."""

    def __init__(self):
        self.now = 0
        self.most = 0

    def before_io_wait(self, timeout):
        self.most = max(self.most, self.now)
        self.now = 0


@pytest.mark.parametrize(
    "pieces",
    [
        [GET],
        [b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n", b"ab", b"cd"],
        [GET * 3],
    ],
    ids=["requests", "bodies", "pipelined"],
)
async def test_of_many_requests_that_come_together_few_are_handled_in_a_round(pieces):
    rounds, count, answered = Rounds(), 100, 0

    async def application(scope, receive, send):
        nonlocal answered
        more = True
        while more:
            rounds.now += 1
            more = (await receive())["more_body"]
        answered += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})
        rounds.now += 1

    server = HttpServer(application, replace(LIMITS, connections_max=count))
    trio.lowlevel.add_instrument(rounds)
    async with trio.open_nursery() as nursery:
        clients = [Client(nursery, server) for _ in range(count)]
        for piece in pieces:
            await wait_all_tasks_blocked()
            async with trio.open_nursery() as together:
                for client in clients:
                    together.start_soon(client.send, piece)
        await wait_all_tasks_blocked()
        trio.lowlevel.remove_instrument(rounds)
        for client in clients:
            assert (await client.answer())[0] == 200
        nursery.cancel_scope.cancel()
    assert answered == count * sum(piece.count(b"HTTP") for piece in pieces)
    assert 1 < rounds.most <= 4 * HANDLED_PER_ROUND
