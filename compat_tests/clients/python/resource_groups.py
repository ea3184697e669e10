"""Resource groups: their REST, and the publish budget that namespaces of a group share."""

from __future__ import annotations

import time
from threading import Thread
from typing import Any, Final

from compat_tests.clients.admin_requests import AdminRequests
from compat_tests.clients.python.scenario import Stage, scenario, send_all

GROUPS: Final = "/admin/v2/resourcegroups"
VALUES: Final = (
    {"publishRateInMsgs": 10, "publishRateInBytes": 1_000, "dispatchRateInMsgs": 20},
    {},
    {"dispatchRateInBytes": 2**40, "publishRateInMsgs": -1},
    {"publishRateInMsgs": -5, "publishRateInBytes": 0},
    {"publishRateInMsgs": "7", "dispatchRateInMsgs": 1.5, "other": 1},
    {"publishRateInMsgs": None},
    {"publishRateInMsgs": "x"},
    {"publishRateInMsgs": 2**31},
    5,
    [],
)


@scenario("resource-group-values")
def resource_group_values(stage: Stage) -> None:
    ask = AdminRequests(stage.server.web_url)
    name = f"{stage.scenario_name}{stage.mark}"
    group = f"{GROUPS}/{name}"

    def see(what: str, method: str, path: str, body: Any = None) -> None:
        """Why JSON cannot be read is said in words of each server's own."""
        status, told = ask(method, path, body)
        if isinstance(told, str):
            told = told.replace(name, stage.scenario_name)
        stage.see(what, [status, None if status == 400 else told])

    see("absent", "GET", group)
    for value in VALUES:
        see(f"change {value}", "PUT", group, value)
        see("kept", "GET", group)
        see(f"new with {value}", "PUT", f"{group}-new", value)
        see("kept", "GET", f"{group}-new")
        ask("DELETE", f"{group}-new")
    stage.see("listed", name in ask("GET", GROUPS)[1])
    namespace = f"/admin/v2/namespaces/public/{name}"
    ask.raw("PUT", namespace)
    of_namespace = f"{namespace}/resourcegroup"
    see("none", "GET", of_namespace)
    see("unknown group", "POST", f"{of_namespace}/{name}-unknown")
    see("set", "POST", f"{of_namespace}/{name}")
    see("shown", "GET", of_namespace)
    stage.see("in the policies", ask("GET", namespace)[1]["resource_group_name"] == name)
    see("in use", "DELETE", group)
    for _ in range(2):
        see("taken away", "DELETE", of_namespace)
    see("none", "GET", of_namespace)
    see("removed", "DELETE", group)
    see("absent", "GET", group)
    for path in (f"public/{name}-absent", "absent/absent"):
        for method in ("GET", "DELETE"):
            see(f"{method} of {path}", method, f"/admin/v2/namespaces/{path}/resourcegroup")


@scenario("resource-group-publish-budget")
def resource_group_publish_budget(stage: Stage) -> None:
    """Two namespaces of the group share 50 messages a second; a third one is free."""
    ask = AdminRequests(stage.server.web_url)
    name = f"{stage.scenario_name}{stage.mark}"
    status, told = ask.raw("PUT", f"{GROUPS}/{name}", {"publishRateInMsgs": 50})
    assert status == 204, told
    producers = {}
    for place in ("one", "two", "free"):
        namespace = f"/admin/v2/namespaces/public/{name}-{place}"
        assert ask.raw("PUT", namespace)[0] == 204
        if place != "free":
            assert ask.raw("POST", f"{namespace}/resourcegroup/{name}")[0] == 204
        producers[place] = stage.new_client().create_producer(
            f"persistent://public/{name}-{place}/t", batching_enabled=False
        )
    seconds: dict[str, float] = {}

    def publish(place: str) -> None:
        start = time.monotonic()
        send_all(producers[place], [f"m{number}" for number in range(100)])
        seconds[place] = time.monotonic() - start

    threads = [Thread(target=publish, args=(place,)) for place in producers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stage.see("held together", 2 < max(seconds["one"], seconds["two"]) < 20)
    stage.see("free", seconds["free"] < 2)
