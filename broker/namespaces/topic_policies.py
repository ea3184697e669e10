"""The policies that single topics of one namespace have of their own.

Stored at `/vela/topic-policies/<namespace>/<domain>/<encoded name>` as JSON, with fields as in the
record of a namespace. Those of a partitioned topic hold for its partitions.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, final

from broker.namespaces.json_nodes import change_json, create_json
from broker.namespaces.kept_records import KeptRecords
from broker.namespaces.names import topic_policies_path
from metadata.store import NodeNotFound
from protocol.topic_name import NON_PERSISTENT, PERSISTENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from metadata.store import MetadataStore
    from protocol.topic_name import TopicName

Json = dict[str, Any]


@final
class TopicPolicyRecords:
    """See the module docstring. Names of topics are never those of partitions."""

    def __init__(
        self, store: MetadataStore, namespace_name: str, flaw_in: Callable[[Json], str]
    ) -> None:
        """`flaw_in` tells why fields cannot be in force; empty: they can."""
        self._store = store
        self.records = KeptRecords(
            store,
            {
                domain: topic_policies_path(namespace_name, domain)
                for domain in (PERSISTENT, NON_PERSISTENT)
            },
            flaw_in,
        )

    async def change(self, topic: TopicName, field: str, change: Callable[[Any], object]) -> None:
        """Change a policy of a topic from what it is now; None: it has none of this kind. `change`
        may be called several times, since another broker may change the record meanwhile."""
        path = self.records.path(topic)

        def changed(record: Json) -> Json:
            others = {name: each for name, each in record.items() if name != field}
            value = change(record.get(field))
            return others if value is None else {**others, field: value}

        record = await change_json(self._store, path, changed)
        while record is None:
            if not changed({}):
                return
            if await create_json(self._store, path, record := changed({})):
                break
            record = await change_json(self._store, path, changed)
        self.records.found[topic.domain, topic.local_name] = record

    async def delete(self, topic: TopicName) -> None:
        """The topic is deleted, and its policies with it."""
        if self.records.of(topic) is None:
            return
        with suppress(NodeNotFound):
            await self._store.delete(self.records.path(topic))
        self.records.found.pop((topic.domain, topic.local_name), None)
