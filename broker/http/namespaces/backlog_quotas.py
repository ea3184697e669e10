"""`.../backlogQuota` and `.../backlogQuotaMap` of namespaces and topics.

A quota is set by its type (`backlogQuotaType`), so these endpoints do not fit into the tables of
single policies. A quota above what retention keeps is refused, and so is the reverse. A change is
in force at once, also for loaded topics.

Source: the statuses and texts of Pulsar 4.0.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.ground.refusal import Refusal, not_found, precondition_failed
from broker.http.router import Route
from broker.http.topics.topic_policies import namespace_of, own_record
from broker.tenancy.policies.backlog_quotas import (
    FIELD,
    SIZE,
    TYPES,
    exceeds_retention,
    quota,
    record_of,
)
from web.responses import Response, json_response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.http.context import AdminRequest
    from broker.tenancy.policies.backlog_quotas import BacklogQuotas
    from broker.tenancy.policies.record import Policies

Json = Any
_RETENTION: Final = "retention_policies"


def _type_of(request: AdminRequest) -> str:
    """The type of quota. Raises: Refusal: there is no such type."""
    kind = request.query.get("backlogQuotaType") or SIZE
    if kind not in TYPES:
        raise not_found(f"There is no backlog quota of type {kind}: use {' or '.join(TYPES)}")
    return kind


def _with_quota(quotas: Json, kind: str, value: Json) -> dict[str, Json]:
    others = {name: each for name, each in (quotas or {}).items() if name != kind}
    return others if value is None else {**others, kind: value}


def _shown(quotas: BacklogQuotas) -> dict[str, Json]:
    return dict(zip(TYPES, map(record_of, (quotas.size, quotas.age)), strict=True))


# --- namespaces -----------------------------------------------------------------------------


async def of_namespace(request: AdminRequest) -> Response:
    """The namespace's own quotas, by type."""
    namespace = await request.context.namespaces.get(request.namespace_name)
    return json_response(namespace.policies.record.fields.get(FIELD) or {})


async def set_of_namespace(request: AdminRequest) -> None:
    """Set one. Pulsar fails with an exception where this refuses an empty body."""
    kind, body = _type_of(request), await request.json()
    if body is None:
        raise Refusal(400, "The request entity cannot be empty.")
    await _change_namespace(request, kind, quota(request.namespace_name, body))


async def remove_of_namespace(request: AdminRequest) -> None:
    """Remove one."""
    await _change_namespace(request, _type_of(request), None)


async def _change_namespace(request: AdminRequest, kind: str, value: Json) -> None:
    context, name = request.context, request.namespace_name
    if await context.namespaces.find(name) is None:
        raise not_found("")

    def change(record: Policies) -> Policies:
        if value and exceeds_retention(value, record.fields.get(_RETENTION), context.config):
            raise precondition_failed(
                "Backlog Quota exceeds configured retention quota for namespace. Please increase "
                "retention quota and retry"
            )
        return record.with_fields(**{FIELD: _with_quota(record.fields.get(FIELD), kind, value)})

    await context.namespaces.change_policies(name, change)


# --- topics ---------------------------------------------------------------------------------


async def of_topic(request: AdminRequest) -> Response:
    """The topic's own quotas; with `applied`, those of its namespace or the configuration where it
    has none."""
    namespace = await namespace_of(request)
    namespace.topic_level.check(request.topic)
    own: Mapping[str, Json] | None = own_record(request, namespace).get(FIELD)
    if not own and request.flag("applied"):
        own = namespace.policies.record.fields.get(FIELD)
        own = own or _shown(namespace.policies.effective.backlog_quotas)
    return json_response(own or {})


async def set_of_topic(request: AdminRequest) -> None:
    """Set one. An empty body removes it, as in Pulsar."""
    kind, body = _type_of(request), await request.json()
    await namespace_of(request)
    value = None if body is None else quota(request.namespace_name, body)
    await _change_topic(request, kind, value)


async def remove_of_topic(request: AdminRequest) -> None:
    """Remove one."""
    kind = _type_of(request)
    await namespace_of(request)
    await _change_topic(request, kind, None)


async def _change_topic(request: AdminRequest, kind: str, value: Json) -> None:
    context, topic = request.context, request.topic
    namespace = await context.namespaces.get(request.namespace_name)
    own = own_record(request, namespace)
    retention = own.get(_RETENTION) or namespace.policies.record.fields.get(_RETENTION)
    if exceeds_retention(value, retention, context.config):
        raise precondition_failed(
            "Backlog Quota exceeds configured retention quota for topic. Please increase retention "
            "quota and retry"
        )
    if value is not None or own.get(FIELD):
        await context.namespaces.change_topic_policy(
            topic,
            FIELD,
            lambda quotas: _with_quota(quotas, kind, value) or None,
            is_global=request.flag("isGlobal"),
        )


# --- brokers --------------------------------------------------------------------------------


async def check_now(request: AdminRequest) -> None:
    """Enforce the quotas of all loaded topics now, without waiting for the next check."""
    await request.context.service.backlog_checks.check()


_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPIC: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
ROUTES: Final = (
    Route("GET", f"{_NAMESPACE}/backlogQuotaMap", of_namespace),
    Route("POST", f"{_NAMESPACE}/backlogQuota", set_of_namespace),
    Route("DELETE", f"{_NAMESPACE}/backlogQuota", remove_of_namespace),
    Route("GET", f"{_TOPIC}/backlogQuotaMap", of_topic),
    Route("POST", f"{_TOPIC}/backlogQuota", set_of_topic),
    Route("DELETE", f"{_TOPIC}/backlogQuota", remove_of_topic),
    Route("GET", "/admin/v2/brokers/backlog-quota-check", check_now),
)
