"""Ends open producers and consumers whose callers have lost their right.

When the policies of a namespace, the administrators of a tenant or the super users change, through
any broker, this broker checks the rights of the callers of all open producers and consumers of the
topics concerned again. Those that may not go on are sent CLOSE_PRODUCER or CLOSE_CONSUMER. Their
clients look up again, and are refused then. While the store cannot be read they go on. A shadow
topic is closed if its source may not be read any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

import structlog
import trio

from broker.ground.slices import STEPS_PER_SLICE
from broker.tenancy.authorization.decision import Scope
from broker.tenancy.authorization.operations import Right
from broker.tenancy.namespaces.names import POLICIES_PATH
from protocol.errors import AuthorizationError, MetadataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.tenancy.authorization.authorizer import Authorizer
    from broker.topics.topic.topic import Topic
    from metadata.store import MetadataStore
    from protocol.topic_name import TopicName
    from security.caller import Caller

log = structlog.get_logger()

ASK_AGAIN_SECONDS: Final = 1.0
"""Pause after the store could not be read."""


class FollowingTopic(Protocol):
    """A shadow that is open."""

    @property
    def shadow(self) -> TopicName:
        """Its name."""

    @property
    def source(self) -> TopicName:
        """The topic whose messages it serves."""

    def give_up(self, reason: str) -> None:
        """Close it: it cannot be served any more."""


@final
class Enforcement:
    """Run it with `nursery.start(run)`."""

    def __init__(
        self,
        store: MetadataStore,
        authorizer: Authorizer,
        topics: Mapping[str, Topic],
        shadows: Mapping[str, FollowingTopic],
    ) -> None:
        """`topics`: those that are open, by full name. `shadows`: those of them that are."""
        self._shadows = shadows
        self._store = store
        self._authorizer = authorizer
        self._topics = topics
        self._changed: set[str] = set()
        """`tenant` or `tenant/namespace`; empty: all."""
        self._wake = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled."""
        stop = self._store.watch(POLICIES_PATH, self._tell)
        self._authorizer.watch_rules(lambda: self._tell(POLICIES_PATH))
        try:
            task_status.started()
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                changed, self._changed = self._changed, set()
                await self._check_all(changed)
        finally:
            stop()

    def _tell(self, path: str) -> None:
        name = path.removeprefix(POLICIES_PATH).lstrip("/")
        if name.count("/") <= 1:
            self._changed.add(name)
            self._wake.set()

    async def _check_all(self, changed: set[str]) -> None:
        for topic in list(self._topics.values()):
            if changed.isdisjoint(_owners(topic.name)):
                continue
            try:
                await _Check(self._authorizer, topic).run()
            except MetadataError as error:
                log.warning("grants not checked", topic=topic.name.full, reason=str(error))
                await trio.sleep(ASK_AGAIN_SECONDS)
                self._changed.add(topic.name.namespace_name)
                self._wake.set()
        for followed in list(self._shadows.values()):
            if changed.isdisjoint((*_owners(followed.shadow), *_owners(followed.source))):
                continue
            try:
                await self._authorizer.check_shadow(followed.shadow, followed.source)
            except AuthorizationError as refused:
                followed.give_up(refused.message)
            except MetadataError as error:
                log.warning("grants not checked", topic=followed.shadow.full, reason=str(error))
                await trio.sleep(ASK_AGAIN_SECONDS)
                self._changed.add(followed.shadow.namespace_name)
                self._wake.set()


def _owners(name: TopicName) -> tuple[str, ...]:
    """The namespaces and tenants whose changes concern this topic."""
    return "", name.tenant, name.namespace_name


@final
class _Check:
    """One look at everything that is open in one topic."""

    def __init__(self, authorizer: Authorizer, topic: Topic) -> None:
        self._authorizer = authorizer
        self._topic = topic
        self._known: dict[tuple[Caller, Right, str], bool] = {}
        """There may be a hundred thousand consumers of a few callers."""
        self._steps = 0

    async def run(self) -> None:
        """End what may not go on. Raises: MetadataError."""
        topic = self._topic
        for producer in [*topic.access.producers.values(), *topic.access.waiting]:
            caller = producer.session.caller
            if not await self._may(caller, Right.PRODUCE, ""):
                log.info("producer may not go on", topic=topic.name.full, caller=str(caller))
                topic.end_producer(
                    producer, AuthorizationError("Client is not authorized to Produce")
                )
        for subscription in list(topic.subscriptions.values()):
            for consumer in list(subscription.consumers):
                session = consumer.session
                if not await self._may(session.caller, Right.CONSUME, subscription.name):
                    log.info(
                        "consumer may not go on",
                        topic=topic.name.full,
                        subscription=subscription.name,
                        caller=str(session.caller),
                    )
                    subscription.remove_consumer(consumer)
                    session.closed(consumer)

    async def _may(self, caller: Caller, right: Right, subscription: str) -> bool:
        self._steps += 1
        if self._steps % STEPS_PER_SLICE == 0:
            await trio.lowlevel.checkpoint()
        key = caller, right, subscription
        if key not in self._known:
            name = self._topic.name
            scope = Scope(name.tenant, name.namespace_name, name, subscription)
            decision = await self._authorizer.decide(caller, right, scope)
            self._known[key] = decision.is_allowed
        return self._known[key]
