"""The application is loaded by the first request, once."""

from __future__ import annotations

import threading

import httpx
import pytest
import trio

from broker.http.front import AdminFront
from broker.http.router import Router
from broker.http.routes import all_routes
from broker.http.server import AdminApplication
from web.callers import CallerRules


@pytest.fixture
def loads():
    return []


@pytest.fixture
def front(loads):
    def load():
        loads.append(threading.current_thread())
        return AdminApplication(Router(all_routes()), CallerRules((), ["vela"]))

    return AdminFront(load)


@pytest.fixture
async def client(front):
    transport = httpx.ASGITransport(front)
    async with httpx.AsyncClient(transport=transport, base_url="http://vela") as client:
        yield client


async def test_before_the_broker_is_ready_nothing_is_loaded(client, loads):
    answer = await client.get("/admin/v2/clusters")
    assert answer.status_code == 503
    assert answer.json() == {"reason": "The broker is starting; it is not ready yet"}
    assert answer.headers["content-type"] == "application/json"
    assert not loads


async def test_requests_at_the_same_time_load_it_once_beside_the_event_loop(
    client, front, broker, loads
):
    front.context = broker.admin
    statuses = []

    async def ask():
        statuses.append((await client.get("/admin/v2/clusters")).status_code)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(ask)
    assert statuses == [200] * 5
    assert len(loads) == 1
    assert loads[0] is not threading.main_thread()
