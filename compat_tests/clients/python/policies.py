"""Which values of a namespace's policies are taken, and how the others are refused."""

from __future__ import annotations

from typing import Any, Final

from compat_tests.clients.admin_requests import AdminRequests
from compat_tests.clients.python.scenario import Stage, scenario


def _retention(minutes: Any, megabytes: Any) -> dict[str, Any]:
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}


RETENTIONS: Final = (
    _retention(0, 100),
    _retention(100, 0),
    _retention(-7, -7),
    _retention(-1, -1),
    _retention(-1, 0),
    _retention(5, -1),
    _retention(0, 0),
    _retention(-2, 5),
    _retention(5, -2),
    _retention(1.5, 1),
    {"retentionTimeInMinutes": 5},
    {},
)
VALUES: Final = (
    ("maxProducersPerTopic", -1),
    ("maxProducersPerTopic", 1.5),
    ("maxTopicsPerNamespace", -1),
    ("autoTopicCreation", {}),
    ("autoTopicCreation", {"allowAutoTopicCreation": True, "topicType": "neither"}),
    ("autoSubscriptionCreation", {}),
    ("deduplication", 1),
)


@scenario("policy-values")
def policy_values(stage: Stage) -> None:
    ask = AdminRequests(stage.server.web_url)
    namespace = f"/admin/v2/namespaces/public/policy-values{stage.mark}"
    stage.see("create", ask("PUT", namespace))
    for value in RETENTIONS:
        stage.see(f"retention {value}", ask("POST", f"{namespace}/retention", value))
        stage.see("kept", ask("GET", f"{namespace}/retention"))
        stage.see("in a new one", ask("PUT", f"{namespace}-new", {"retention_policies": value}))
        stage.see("removed", ask("DELETE", f"{namespace}-new")[0] < 300)
    for policy, setting in VALUES:
        stage.see(f"{policy} {setting}", ask("POST", f"{namespace}/{policy}", setting))
        stage.see("kept", ask("GET", f"{namespace}/{policy}"))
    unknown = {"replication_clusters": ["elsewhere"]}
    stage.see("foreign cluster", ask("PUT", f"{namespace}-new", unknown))
    negative = {"message_ttl_in_seconds": -1}
    stage.see("negative time to live", ask("PUT", f"{namespace}-new", negative))
