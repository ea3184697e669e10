"""Which consumers a broadcast admits, and where each of them starts.

The rules are those of `members`. A hundred thousand consumers may arrive together, so that this
is compiled, and a refusal leaves nothing behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.topics.subscription.start import seek_mark_delete
from broker.topics.subscription.sub_types import KEY_SHARED
from protocol.errors import ConsumerBusy, NotAllowed
from protocol.left_out import NO_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.topics.broadcast.cursor_keeper import CursorKeeper
    from broker.topics.broadcast.fanout import Fanout
    from broker.topics.broadcast.ordinals import Ordinals
    from broker.topics.broadcast.virtual_cursors import VirtualCursors
    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.factory import TopicContext
    from broker.topics.subscription.ports import LedgerPort
    from broker.topics.subscription.request import SubscriptionRequest

NAME_LENGTH_MAX: Final = 1_000
"""Names are stored again and again, and kept after their consumers have left."""
DISTINCT_MAX: Final = 1_000
"""Sets of properties that are shared. Above this number they differ too much to be worth it."""


@final
class Admission:
    """See the module docstring. It adds to `attached`: consumers with their slots."""

    __slots__ = (
        "_attached",
        "_context",
        "_cursors",
        "_fanout",
        "_keeper",
        "_ledger",
        "_ordinals",
        "_shared_properties",
        "_unnamed",
    )

    def __init__(
        self,
        context: TopicContext,
        ledger: LedgerPort,
        attached: dict[Consumer, int],
        cursors: VirtualCursors,
        ordinals: Ordinals,
        fanout: Fanout,
        keeper: CursorKeeper,
    ) -> None:
        self._context = context
        self._ledger = ledger
        self._attached = attached
        self._cursors = cursors
        self._ordinals = ordinals
        self._fanout = fanout
        self._keeper = keeper
        self._shared_properties = SharedProperties()
        self._unnamed = 0

    def attach(self, consumer: Consumer, request: SubscriptionRequest) -> None:
        """Admit a consumer, or refuse with the reason.

        Raises: BrokerError.
        """
        if consumer.sub_type == KEY_SHARED:
            raise NotAllowed(
                "a broadcast subscription gives every message to every consumer, so Key_Shared has"
                " no meaning: subscribe as Shared, Failover or Exclusive"
            )
        consumers_max = self._context.limits.max_consumers_per_subscription
        if 0 < consumers_max <= len(self._attached):
            raise ConsumerBusy("Subscription reached max consumers limit")
        name = consumer.name
        if not name:
            self._unnamed += 1
            name = f"\0{self._unnamed}"
        slot = self._cursors.slot_of(name)
        if slot is None:
            if len(name) > NAME_LENGTH_MAX:
                raise NotAllowed(
                    f"the name of the consumer has {len(name)} characters; a broadcast subscription"
                    f" keeps the names of its consumers, of at most {NAME_LENGTH_MAX} characters"
                )
            slot = self._join(name, request, durable=consumer.durable and bool(consumer.name))
        elif self._fanout.consumer_at(slot) is not None:
            raise ConsumerBusy(
                f"a consumer named {name!r} is connected to this broadcast subscription:"
                " give every consumer a name of its own"
            )
        else:
            self._cursors.attach(slot)
        self._attached[consumer] = slot
        consumer.joined = slot
        self._shared_properties.share(consumer)
        self._fanout.attach(slot, consumer)

    def _join(self, name: str, request: SubscriptionRequest, *, durable: bool) -> int:
        keeper, cursors = self._keeper, self._cursors
        start = self._start_of(request)
        slot = cursors.join(name, start, durable=durable)
        keeper.follows_tail = True
        if durable or start < keeper.marked:
            keeper.changed()
        if cursors.minimum != keeper.marked:
            keeper.advance()
        return slot

    def _start_of(self, request: SubscriptionRequest) -> int:
        """The ordinal after which a new name starts."""
        keeper, ordinals = self._keeper, self._ordinals
        if request.start_after is not None:
            start = ordinals.of(request.start_after)
        elif request.start_message_id is not None:
            ledger_id, entry_id, _ = request.start_message_id
            start = ordinals.of(seek_mark_delete(self._ledger, (ledger_id, entry_id)))
        elif request.earliest:
            start = keeper.marked
        else:
            unknown = self._context.clock.now() < keeper.unknown_until
            return keeper.marked if unknown else ordinals.tail
        return min(max(start, ordinals.first - 1), ordinals.tail)


@final
class SharedProperties:
    """Stores properties that most of 100,000 consumers have in common only once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}

    def share(self, consumer: Consumer) -> None:
        """Replace its properties by the equal ones of another consumer."""
        consumer.metadata = self._shared(consumer.metadata)
        consumer.subscription_properties = self._shared(consumer.subscription_properties)

    def _shared(self, properties: Mapping[str, str]) -> Mapping[str, str]:
        if not properties:
            return NO_PROPERTIES
        key = tuple(properties.items())
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= DISTINCT_MAX:
                return properties
            known = self._known[key] = properties
        return known
