"""The policies that result from the messages about topics, read in order. Pure.

The last message of a key counts. An unreadable message leaves only its own topic in doubt: the
former policies stay in force, and new requests for its policies are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from broker.tenancy.policies.topic_events import Malformed, fields_in, message_key, topic_of
from protocol.errors import MetadataError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.tenancy.policies.scopes import TopicKey
    from protocol.position import Position
    from protocol.topic_name import TopicName

Json = Any
NO_VERSION: Final = b""


@final
@dataclass(frozen=True, slots=True)
class Kept:
    """The last message of a key."""

    position: Position
    version: bytes = NO_VERSION
    """The version of the schema with which it was written."""
    policies: Mapping[str, Json] | None = None
    """Names of the message. None: the topic has none."""
    flaw: str = ""
    """Why it cannot be read."""
    before: Kept | None = None
    """The one that it replaced, itself without one before."""


@final
class TopicPolicyMap:
    """The policies of the topics of one namespace."""

    def __init__(self, cluster: str, flaw_in: Callable[[Json], str]) -> None:
        """`flaw_in` returns why fields cannot be in force; empty: they can."""
        self._cluster = cluster
        self._flaw_in = flaw_in
        self._kept: dict[str, Kept] = {}
        self.fields: dict[TopicKey, Json] = {}
        """The policies in force, by the names of a namespace's record. Policies for all clusters
        give way to those for this one."""
        self.damage: dict[TopicKey, MetadataError] = {}
        """The refusal of what needs the policies of this topic."""

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, key: str) -> Kept | None:
        """The last message of this key."""
        return self._kept.get(key)

    def own_fields(self, topic: TopicName, *, is_global: bool) -> dict[str, Json]:
        """The policies set for the topic in this cluster, or in all, by the names of a namespace's
        record."""
        kept = self._kept.get(message_key(topic, is_global=is_global))
        return {} if kept is None else fields_in(kept.policies or {}, self._cluster)

    def apply(self, key: str, kept: Kept) -> TopicKey:
        """Take the next message. Returns its topic. Raises: Malformed: it is about none."""
        topic = topic_of(key)
        if key not in (message_key(topic, is_global=each) for each in (False, True)):
            raise Malformed("its key is not the full name of a topic that is no partition")
        last = self._kept.get(key)
        if last is not None:
            last = Kept(last.position, last.version, last.policies, last.flaw)
        self._kept[key] = Kept(kept.position, kept.version, kept.policies, kept.flaw, last)
        topic_key = topic.domain, topic.local_name
        self._resolve(topic, topic_key)
        if kept.policies is None and not kept.flaw:
            del self._kept[key]
        return topic_key

    def _resolve(self, topic: TopicName, topic_key: TopicKey) -> None:
        keys = [message_key(topic, is_global=each) for each in (True, False)]
        found = [self._kept[key] for key in keys if key in self._kept]
        flaw = next((each.flaw for each in found if each.flaw), "")
        fields: dict[str, Json] = {}
        if not flaw:
            for each in found:
                fields |= fields_in(each.policies or {}, self._cluster)
            flaw = self._flaw_in(fields)
        if flaw:
            self.damage[topic_key] = MetadataError(
                f"The policies of {topic.full} in its namespace's __change_events are damaged: "
                f"{flaw}. Set or remove any policy of the topic, which replaces them all"
            )
            return
        self.damage.pop(topic_key, None)
        if not fields:
            self.fields.pop(topic_key, None)
        elif fields != self.fields.get(topic_key):
            self.fields[topic_key] = fields
