"""Calls between servers of a cluster."""

from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
import trio

from runtime.testing.conditions import SECONDS_MAX
from web.client import CallFailed, fetch


@asynccontextmanager
async def server(*pieces, hang=False):
    """A server that answers one request with these bytes. Yields its URL and what it heard."""
    heard = bytearray()

    async def answer(stream):
        while b"\r\n\r\n" not in heard:
            heard.extend(await stream.receive_some())
        with suppress(trio.BrokenResourceError):
            for piece in pieces:
                await stream.send_all(piece)
        if hang:
            await trio.sleep_forever()
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        yield f"http://127.0.0.1:{port}", heard
        nursery.cancel_scope.cancel()


async def call(method, url, seconds, **fields):
    answer = await fetch(method, url, seconds, **{"body_bytes_max": 1_000_000} | fields)
    return answer.status


async def test_the_status_of_an_answer():
    for head, status in (
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204),
        (b"HTTP/1.1 307 x\r\nLocation: http://other/\r\nContent-Length: 0\r\n\r\n", 307),
        (b"HTTP/1.1 412 x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 412),
    ):
        async with server(head[:9], head[9:], hang=True) as (url, heard):
            assert await call("PUT", f"{url}/a/b?c=d", SECONDS_MAX) == status
            assert heard.startswith(b"PUT /a/b?c=d HTTP/1.1\r\n")
            assert b"Content-Length: 0\r\n" in heard


@pytest.mark.parametrize(
    "pieces",
    [(), (b"HTTP/1.1",), (b"no http at all\r\n\r\n",), (b"HTTP/1.1 200 " + b"x" * 100_000,)],
)
async def test_an_answer_that_is_none_fails(pieces):
    async with server(*pieces) as (url, _heard):
        with pytest.raises(CallFailed, match="PUT http"):
            await call("PUT", url + "/", SECONDS_MAX)


async def test_a_server_that_does_not_answer_fails_in_time():
    async with server(hang=True) as (url, _heard):
        with pytest.raises(CallFailed):
            await call("PUT", url + "/", 0.05)


async def test_a_body_without_an_end_is_not_read_for_ever():
    head = b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    async with server(head, *[chunk] * 40) as (url, _heard):
        with pytest.raises(CallFailed, match="over 1000000 bytes"):
            await call("GET", url + "/", SECONDS_MAX)


async def test_the_body_and_the_place_of_an_answer():
    head = b"HTTP/1.1 307 x\r\nLocation: http://other/x?y=z\r\nContent-Length: 5\r\n\r\n"
    async with server(head, b"12", b"345") as (url, heard):
        answer = await fetch("POST", f"{url}/a", SECONDS_MAX, body=b'{"a":1}', body_bytes_max=5)
        assert answer == (307, "http://other/x?y=z", b"12345")
        assert b"Content-Length: 7\r\n" in heard
        assert b"Content-Type: application/json\r\n" in heard


async def test_half_a_body_is_no_answer():
    async with server(b"HTTP/1.1 200 x\r\nContent-Length: 5\r\n\r\n12") as (url, _heard):
        with pytest.raises(CallFailed):
            await call("GET", url + "/", SECONDS_MAX)


@pytest.mark.parametrize("url", ["", "pulsar://a/", "https://a/", "http://"])
async def test_other_urls_are_refused(url):
    with pytest.raises(CallFailed, match="is no http URL"):
        await call("PUT", url, SECONDS_MAX)


async def test_nobody_listens():
    with pytest.raises(CallFailed):
        await call("PUT", "http://127.0.0.1:1/", SECONDS_MAX)


@pytest.mark.parametrize(
    "host", ["[", "a:99999", "a:-1", "a..b", "x" * 300, "a\ud800", "127.0.0.1:2\u0661"]
)
async def test_a_url_that_is_none_is_a_failed_call(host):
    with pytest.raises(CallFailed, match="GET http://"):
        await call("GET", f"http://{host}/", SECONDS_MAX)
