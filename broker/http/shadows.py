"""Shadow topics in requests: the property that makes one, who may set it, and how it is removed.

The property has an effect beyond its topic: whoever may consume from the shadow gets the messages
of the source. Every route that writes properties therefore asks `check_shadow` first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.ground.refusal import Refusal
from broker.http.authorization import check
from broker.tenancy.authorization.decision import Scope
from broker.tenancy.authorization.operations import operation
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.http.context import AdminRequest, Shadows

SHADOW_SOURCE: Final = "PULSAR.SHADOW_SOURCE"
"""The property with which `create-shadow-topic` names the topic to follow."""
_CONSUME: Final = operation("topic:CONSUME")


def refuse_shadow(properties: Mapping[str, str] | None) -> None:
    """Raises: Refusal: the properties request a shadow topic, and none can be made here."""
    if SHADOW_SOURCE in (properties or {}):
        raise Refusal(
            501,
            "there are no shadows of partitioned topics, nor in a broker that shares topics with "
            f"no others: the property {SHADOW_SOURCE} has no effect",
        )


async def wanted_shadow(request: AdminRequest, properties: Mapping[str, str]) -> Shadows | None:
    """Whether the properties may make a shadow of the topic of the path; None: they request none.

    Raises: Refusal: there are no shadows here, or the caller may not consume from the source.
        BrokerError: there is no such source, or the shadow would not be opened.
    """
    if SHADOW_SOURCE not in properties:
        return None
    shadows = request.context.shadows
    if shadows is None or shadows.refusal:
        refuse_shadow(properties)
        return None
    source = TopicName.parse(properties[SHADOW_SOURCE])
    await check(request, _CONSUME, Scope(source.tenant, source.namespace_name, source))
    await shadows.check(request.topic, properties)
    return shadows


async def end_shadow(request: AdminRequest) -> bool:
    """Make the topic of the path an ordinary one, if it is a shadow: returns that. It need not be
    one that can be opened. Raises: BrokerError."""
    shadows, topic = request.context.shadows, request.topic
    if shadows is None:
        return False
    name = topic.managed_ledger_name
    return await request.context.service.transform_topic(
        topic, lambda close: shadows.end(name, close)
    )
