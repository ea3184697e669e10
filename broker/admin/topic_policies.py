"""`.../{topic}/persistence`: policies of a single topic. Statuses and texts as of Pulsar 4.0.8.

Those of a partitioned topic are set on the whole, never on a partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.responses import JSONResponse

from broker.admin.namespace_policies import refuse_copies
from broker.admin.router import Route
from broker.policies.persistence import persistence, record_of
from broker.refusal import Refusal, not_found, precondition_failed

if TYPE_CHECKING:
    from broker.admin.context import AdminRequest
    from broker.namespaces.loaded_namespaces import Namespace

_FIELD: Final = "persistence"


async def _namespace_of(request: AdminRequest) -> Namespace:
    """The namespace of the topic in the path. Raises: Refusal, BrokerError: the topic has no
    policies of its own, or does not exist."""
    namespaces, topic = request.context.namespaces, request.topic
    if topic.is_partition:
        raise precondition_failed("Not allowed to set/get topic policy for a partition")
    namespace = await namespaces.of_topic(topic)
    if not await namespaces.topic_exists(topic):
        raise not_found(f"Topic {topic.full} not found")
    return namespace


async def get_persistence(request: AdminRequest) -> JSONResponse | str:
    """What the topic itself says; with `applied` what is in force."""
    namespace = await _namespace_of(request)
    value: Any
    if request.flag("isGlobal"):
        value = None  # Nothing is set for several clusters together.
    else:
        value = (namespace.topic_policies.records.of(request.topic) or {}).get(_FIELD)
    if value is None and request.flag("applied"):
        value = record_of(namespace.policies.of_topic(request.topic).effective.persistence)
    return "" if value is None else JSONResponse(value)


async def set_persistence(request: AdminRequest) -> None:
    """Body: PersistencePolicies. It holds for ledgers made from now on."""
    await _namespace_of(request)
    value = persistence(_FIELD, await request.json())
    if not request.topic.persistent:
        raise Refusal(405, "Persistence of a non-persistent topic is not allowed")
    if request.flag("isGlobal"):
        raise Refusal(
            501, "Vela does not replicate to other clusters yet: leave out isGlobal (--global)"
        )
    refuse_copies(request.context, value)
    await request.context.namespaces.set_topic_policy(request.topic, _FIELD, value)


async def remove_persistence(request: AdminRequest) -> None:
    """From now on the topic is stored as its namespace says."""
    namespace = await _namespace_of(request)
    if not request.flag("isGlobal") and namespace.topic_policies.records.of(request.topic):
        await request.context.namespaces.set_topic_policy(request.topic, _FIELD, None)


_PATH: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/persistence"
ROUTES: Final = (
    Route("GET", _PATH, get_persistence),
    Route("POST", _PATH, set_persistence),
    Route("DELETE", _PATH, remove_persistence),
)
