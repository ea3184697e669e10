"""Which topics are shadows, and of what. Pure.

A shadow topic has no messages of its own: its consumers get those of its source. A property in the
record of its managed ledger names the source, as Pulsar's `create-shadow-topic` writes it
(PIP-180).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.errors import NotAllowed
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Mapping

SHADOW_SOURCE: Final = "PULSAR.SHADOW_SOURCE"


def source_of(properties: Mapping[str, str]) -> TopicName | None:
    """The source that the properties of a topic name; None: it is no shadow.

    Raises: InvalidTopicName. NotAllowed: the source stores nothing.
    """
    if not is_shadow(properties):
        return None
    text = properties[SHADOW_SOURCE]
    source = TopicName.parse(text)
    if not source.persistent:
        raise NotAllowed(f"{source.full} cannot have a shadow topic: it stores nothing")
    return source


def is_shadow(properties: Mapping[str, str]) -> bool:
    """Whether the properties name a source, even one that cannot be one."""
    return bool(properties.get(SHADOW_SOURCE))
