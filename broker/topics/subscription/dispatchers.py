"""The dispatcher of each type of subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.topics.subscription.dispatch_key_shared import KeySharedDispatcher
from broker.topics.subscription.dispatch_shared import SharedDispatcher
from broker.topics.subscription.dispatch_single import SingleDispatcher
from broker.topics.subscription.sub_types import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED
from protocol.errors import BrokerError, ServerError

if TYPE_CHECKING:
    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.dispatcher import Dispatcher
    from broker.topics.subscription.factory import TopicContext
    from broker.topics.subscription.ports import CursorPort, LedgerPort
    from broker.topics.subscription.pump import Pump


def new_dispatcher(
    first: Consumer,
    context: TopicContext,
    ledger: LedgerPort,
    cursor: CursorPort,
    pump: Pump,
) -> Dispatcher:
    """One of the type that its first consumer asks for. Raises: BrokerError: there is none."""
    if first.sub_type == SHARED:
        return SharedDispatcher(context, ledger, cursor, pump)
    if first.sub_type == KEY_SHARED:
        return KeySharedDispatcher(context, ledger, cursor, pump, first)
    if first.sub_type in (EXCLUSIVE, FAILOVER):
        return SingleDispatcher(first.sub_type, context, ledger, cursor, pump)
    raise BrokerError(ServerError.NotAllowedError, f"unknown subscription type {first.sub_type}")
