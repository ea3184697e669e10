"""A broker in memory, and an HTTP client that talks to its ASGI application."""

from __future__ import annotations

import dataclasses

import httpx
import pytest

from broker.assembly.app import running_broker
from broker.ground.config import DEFAULT_CONFIG
from broker.http.router import Router
from broker.http.routes import all_routes
from broker.http.server import AdminApplication
from web.callers import CallerRules

CONFIG = dataclasses.replace(DEFAULT_CONFIG, brokerServicePort=0, webServicePort=0)


@pytest.fixture
async def broker():
    async with running_broker(CONFIG, None) as running:
        yield running


@pytest.fixture
async def http(broker):
    application = AdminApplication(Router(all_routes()), CallerRules((), ["vela"]))
    application.context = broker.admin
    transport = httpx.ASGITransport(application, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://vela") as client:
        yield Http(client)


class Http:
    """Requests below /admin/v2 with short answers: (status, JSON body or reason)."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def __call__(self, method: str, path: str, body: object = ..., **headers: str):
        arguments = {} if body is ... else {"json": body}
        if not path.startswith(("/admin", "/lookup", "/metrics")):
            path = f"/admin/v2/{path}"
        response = await self.client.request(method, path, headers=headers, **arguments)
        if not response.content:
            return response.status_code, None
        answer = response.json()
        if response.status_code >= 400:
            assert list(answer) == ["reason"]
            answer = answer["reason"]
        return response.status_code, answer
