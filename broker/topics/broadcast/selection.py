"""Decides which subscriptions are broadcasts, and opens them.

A subscription is a broadcast when the property `vela.broadcast=true` is in the metadata of the
consumer that creates it or in its subscription properties, or when its name matches
`broadcastSubscriptionNamePattern`. The property is kept with the cursor, so a subscription keeps
its kind even if the pattern changes. A request cannot change the kind of an existing subscription:
it is refused, and so is a value that is neither true nor false.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast, final

from broker.managed_ledger.owner_of_ledger import broadcast_custom_metadata
from broker.topics.broadcast.broadcast_subscription import BroadcastSubscription
from broker.topics.broadcast.snapshot_store import SnapshotStore
from broker.topics.subscription.request import InvalidProperty
from broker.topics.subscription.start import initial_mark_delete
from protocol.errors import NotAllowed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.topics.broadcast.snapshot_store import SnapshotCursor
    from broker.topics.broadcast.window_memory import WindowMemory
    from broker.topics.subscription.api import Subscription
    from broker.topics.subscription.factory import TopicContext
    from broker.topics.subscription.request import SubscriptionRequest

PROPERTY: Final = "vela.broadcast"
_VALUES: Final = {"true": True, "false": False}


def stated(properties: Mapping[str, str], metadata: Mapping[str, str]) -> bool | None:
    """The value of the property; None if it is absent.

    Raises: InvalidProperty: its value is neither true nor false, or the two disagree.
    """
    if PROPERTY not in properties:
        value = _VALUES.get(metadata.get(PROPERTY, ""))
        if value is not None or PROPERTY not in metadata:
            return value  # nearly always
    answers = set()
    for where in (properties, metadata):
        text = where.get(PROPERTY)
        if text is None:
            continue
        value = _VALUES.get(text.strip().lower())
        if value is None:
            raise InvalidProperty(
                f"the property {PROPERTY} must be true or false, got {text[:40]!r}"
            )
        answers.add(value)
    if len(answers) > 1:
        raise InvalidProperty(
            f"the consumer's metadata and its subscription properties disagree about {PROPERTY}"
        )
    return answers.pop() if answers else None


def _check_same(name: str, wanted: bool, is_broadcast: bool) -> None:
    if wanted == is_broadcast:
        return
    exists = "a broadcast subscription" if is_broadcast else "an ordinary subscription"
    raise NotAllowed(
        f"{name} exists as {exists} and {PROPERTY}={str(wanted).lower()} cannot change that:"
        " use another subscription name, or delete it first"
    )


@lru_cache(maxsize=16)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@final
class BroadcastKind:
    """See the module docstring. One object for all broadcasts of a broker."""

    def __init__(self, memory: WindowMemory) -> None:
        self._memory = memory

    def claims(self, request: SubscriptionRequest, context: TopicContext) -> bool:
        """Whether the existing cursor, else the request, is a broadcast.

        Raises: BrokerError.
        """
        wanted = stated(request.properties, request.metadata)
        ledger = context.ledger
        if ledger is None:
            if wanted:
                raise NotAllowed(
                    f"{PROPERTY} needs a persistent topic: a non-persistent one keeps no positions"
                )
            return False
        cursor = ledger.cursors.get(request.name)
        if cursor is not None:
            is_broadcast = cursor.properties.get(PROPERTY) == "true"
            if wanted is not None:
                _check_same(request.name, wanted, is_broadcast)
            return is_broadcast
        if wanted is not None:
            return wanted
        pattern = context.config.broadcast_subscription_name_pattern
        return bool(pattern) and _compiled(pattern).fullmatch(request.name) is not None

    def check(self, subscription: Subscription, request: SubscriptionRequest) -> None:
        """Whether a consumer may attach to an existing subscription.

        Raises: BrokerError: it requests the other kind, or its property is invalid.
        """
        if not request.metadata and not request.properties:
            return
        wanted = stated(request.properties, request.metadata)
        if wanted is not None:
            _check_same(request.name, wanted, isinstance(subscription, BroadcastSubscription))

    async def open(self, request: SubscriptionRequest, context: TopicContext) -> Subscription:
        """Find the main cursor, or create it, and load the stored virtual cursors.

        Raises: BrokerError.
        """
        ledger = context.ledger
        assert ledger is not None
        start = request.start_message_id
        initial = initial_mark_delete(
            ledger,
            earliest=request.earliest,
            start=None if start is None else (start[0], start[1]),
            durable=False,
        )
        if request.start_rollback_seconds > 0 and request.name not in ledger.cursors:
            since_ms = context.clock.wall_ms() - 1000 * request.start_rollback_seconds
            initial = await ledger.find_by_publish_time(since_ms)
        cursor = await ledger.open_cursor(
            request.name,
            initial,
            {**request.properties, PROPERTY: "true"},
            durable=request.durable,
        )
        store = None
        client = ledger.client
        if request.durable and client is not None:
            store = SnapshotStore(
                client,
                cast("SnapshotCursor", cursor),
                broadcast_custom_metadata(context.topic_name, request.name),
                force_recovery=context.config.force_recovery,
            )
        subscription = BroadcastSubscription(
            context, cursor, store, self._memory, durable=request.durable
        )
        await subscription.start()
        return subscription
