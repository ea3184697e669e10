"""Requests that a web page can make a browser send, and WebSocket."""

from __future__ import annotations

import httpx
import pytest

from broker.http.router import Router
from broker.http.routes import all_routes
from broker.http.server import AdminApplication
from broker.http.tests.test_topic_layouts import publish
from broker.topics.subscription.request import SubscriptionRequest
from protocol.topic_name import TopicName
from web.callers import CallerRules

NAME = "persistent://public/default/t"
SKIP_ALL = "/admin/v2/persistent/public/default/t/subscription/s/skip_all"
JSON = {"content-type": "application/json"}


@pytest.fixture
async def page(broker):
    application = AdminApplication(Router(all_routes()), CallerRules((), ()))
    application.context = broker.admin
    transport = httpx.ASGITransport(application, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080") as client:
        yield client


@pytest.fixture
async def backlog(broker):
    topic = await broker.service.get_or_load_topic(TopicName.parse(NAME), create=True)
    subscription = await topic.open_subscription(SubscriptionRequest(name="s", earliest=True))
    await publish(broker, NAME, 1)
    return lambda: subscription.backlog_entries


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://attacker.test", "content-type": "text/plain"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"host": "rebound.attacker.test", **JSON}, 421),
    ],
)
async def test_a_web_page_cannot_wipe_a_backlog(page, backlog, headers, status):
    assert backlog() == 1
    answer = await page.post(SKIP_ALL, headers=headers, content=b"")
    assert answer.status_code == status
    assert list(answer.json()) == ["reason"]
    assert backlog() == 1
    assert (await page.post(SKIP_ALL, headers=JSON)).status_code == 204
    assert backlog() == 0


async def test_a_preflight_gets_no_permission(page):
    headers = {"origin": "https://attacker.test", "access-control-request-method": "POST"}
    answer = await page.options(SKIP_ALL, headers=headers)
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert answer.status_code >= 400


async def test_a_rebound_name_reads_nothing(page):
    answer = await page.get("/admin/v2/clusters", headers={"host": "rebound.attacker.test"})
    assert answer.status_code == 421


async def test_a_websocket_upgrade_is_told_that_there_is_none(page):
    headers = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    answer = await page.get("/ws/v2/producer/persistent/public/default/t", headers=headers)
    assert answer.status_code == 501
    assert "WebSocket is not supported" in answer.json()["reason"]


async def test_a_body_of_very_many_values_is_refused(page):
    body = b"[" + b"1," * 200_000 + b"1]"
    answer = await page.put("/admin/v2/tenants/many", content=body, headers=JSON)
    assert answer.status_code == 413


@pytest.mark.parametrize("body", [b"NaN", b"[-Infinity]", b"1e999", b'["\\ud800"]', b"9" * 5_000])
async def test_what_cannot_be_stored_is_no_json(page, body):
    answer = await page.put("/admin/v2/tenants/odd", content=body, headers=JSON)
    assert answer.status_code == 400
    assert "not JSON" in answer.json()["reason"]


@pytest.mark.parametrize("name", ["%00", "a%0Ab", "%7f"])
async def test_a_name_with_a_control_character_is_refused(page, name):
    answer = await page.delete(f"/admin/v2/clusters/{name}")
    assert answer.status_code == 400


async def test_a_deeply_nested_body_is_no_json(page):
    body = b"[" * 90_000
    answer = await page.put("/admin/v2/tenants/deep", content=body, headers=JSON)
    assert answer.status_code == 400
