"""`.../{topic}/{subscription}/dispatchRate`: the rate of dispatch of one subscription.

It is kept with the policies of the topic, also for a subscription that does not exist. A rate that
limits nothing is ignored, as in Pulsar 4.0.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.http.router import Route
from broker.http.topics.topic_policies import (
    SUBSCRIPTION_DISPATCH_RATE,
    namespace_of,
    own_record,
)
from broker.tenancy.policies.delivery_rates import (
    OF_SUBSCRIPTIONS,
    OWN_DISPATCH,
    dispatch_rate,
    dispatch_rate_in,
)
from web.responses import Response, json_response

if TYPE_CHECKING:
    from broker.http.context import AdminRequest

Json = Any
_PATH: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/{subscription}/dispatchRate"


async def _get(request: AdminRequest) -> Response | str:
    namespace = await namespace_of(request)
    namespace.topic_level.check(request.topic)
    record = own_record(request, namespace)
    own = (record.get(OF_SUBSCRIPTIONS) or {}).get(request.names["subscription"]) or {}
    value = own.get(OWN_DISPATCH)
    if value is None and request.flag("applied"):
        of_topic = SUBSCRIPTION_DISPATCH_RATE
        value = of_topic.of(record, request.context.config.clusterName)
        if value is None:
            value = of_topic.applied_to(request, namespace)
    return "" if value is None else json_response(value)


async def _set(request: AdminRequest) -> None:
    await namespace_of(request)
    body = await request.json()
    if body is None:
        return
    value = dispatch_rate(OWN_DISPATCH, body)
    if dispatch_rate_in(value):
        await _store(request, value)


async def _remove(request: AdminRequest) -> None:
    namespace = await namespace_of(request)
    if own_record(request, namespace):
        await _store(request, None)


async def _store(request: AdminRequest, value: Json) -> None:
    name = request.names["subscription"]

    def changed(before: Json) -> Json:
        own = dict(before or {})
        policies = {**own.pop(name, {}), OWN_DISPATCH: value}
        policies = {key: each for key, each in policies.items() if each is not None}
        return {**own, name: policies} if policies else own or None

    await request.context.namespaces.change_topic_policy(
        request.topic, OF_SUBSCRIPTIONS, changed, is_global=request.flag("isGlobal")
    )


ROUTES: Final = (
    Route("GET", _PATH, _get),
    Route("POST", _PATH, _set),
    Route("DELETE", _PATH, _remove),
)
