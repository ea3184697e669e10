"""The budgets of resource groups on this broker: for each group one limit for what all its topics
publish, and one for what is sent to all their subscriptions."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final, Protocol, final

from broker.limits.budget_shares import Usage
from broker.limits.dispatch_budget import GROUP
from broker.limits.dispatch_limit import DispatchLimit
from broker.limits.publish_limit import PublishLimit
from broker.tenancy.policies.delivery_rates import DispatchRate
from broker.tenancy.policies.resource_groups import ResourceGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import trio

    from broker.tenancy.policies.resource_groups import Budget
    from runtime.clock import Clock

CALM_SECONDS: Final = 5.0
"""A budget that was not used for so long is not used by this broker."""
_NO_GROUP: Final = ResourceGroup()


class Counting(Protocol):
    """A limit that counts what passes."""

    messages_taken: int
    bytes_taken: int

    @property
    def times_held(self) -> int:
        """How often a connection or subscription had to wait."""

    @property
    def is_holding(self) -> bool:
        """Whether a connection or subscription waits."""


@final
class _Meter:
    """How much passed a limit between two readings."""

    __slots__ = ("_bytes", "_held", "_limit", "_messages", "_read_at", "_used_at")

    def __init__(self, limit: Counting, now: float) -> None:
        self._limit = limit
        self._read_at = now
        self._used_at = now - CALM_SECONDS
        self._messages = self._bytes = self._held = 0

    def read(self, budget: Budget, now: float) -> Usage | None:
        """None: it is not used."""
        limit, seconds = self._limit, max(now - self._read_at, 1e-3)
        messages = limit.messages_taken - self._messages
        size_bytes = limit.bytes_taken - self._bytes
        is_held = limit.is_holding or limit.times_held > self._held
        self._read_at = now
        self._messages, self._bytes = limit.messages_taken, limit.bytes_taken
        self._held = limit.times_held
        if messages or is_held:
            self._used_at = now
        elif now - self._used_at >= CALM_SECONDS:
            return None
        used = max(
            amount / seconds / rate if rate > 0 else 0.0
            for amount, rate in (
                (messages, budget.messages_per_second),
                (size_bytes, budget.bytes_per_second),
            )
        )
        return Usage(used, is_held)


@final
class GroupLimits:
    """The topics of a group share its limits also while it has no budget, so that a budget that is
    set, changed or removed needs no word to them."""

    def __init__(self, clock: Clock, nursery: Callable[[], trio.Nursery]) -> None:
        self._clock = clock
        self._nursery = nursery
        self._groups: Mapping[str, ResourceGroup] = {}
        self.shares: Mapping[str, float] = {}
        """This broker's parts of the budgets, by `GROUP/publish` and `GROUP/dispatch`; 1 where
        there is none."""
        self._publish: dict[str, PublishLimit] = {}
        self._dispatch: dict[str, DispatchLimit] = {}
        self._meters: dict[str, _Meter] = {}
        """By the same names."""

    def use(self, groups: Mapping[str, ResourceGroup]) -> None:
        """These are the groups now."""
        self._groups = groups
        self._apply()

    def use_shares(self, parts: Mapping[str, float]) -> None:
        """Use these shares of the budgets as this broker's; a budget without a share is all its
        own."""
        if parts != self.shares:
            self.shares = dict(parts)
            self._apply()

    def usage(self) -> dict[str, Usage]:
        """The use of each used budget here, since the last call."""
        now = self._clock.now()
        used: dict[str, Usage] = {}
        for name, meter in self._meters.items():
            budget = self._whole(name)
            usage = meter.read(budget, now) if budget else None
            if usage is not None:
                used[name] = usage
        return used

    def publish(self, group: str) -> PublishLimit | None:
        """The publish budget of a group; None: an empty name is no group."""
        if not group:
            return None
        limit = self._publish.get(group)
        if limit is None:
            budget = self._part(_publish(group))
            limit = self._publish[group] = PublishLimit(
                budget.messages_per_second, budget.bytes_per_second, self._clock, self._nursery
            )
            self._meters[_publish(group)] = _Meter(limit, self._clock.now())
        return limit

    def dispatch(self, group: str) -> DispatchLimit | None:
        """The dispatch budget of a group; None: an empty name is no group."""
        if not group:
            return None
        limit = self._dispatch.get(group)
        if limit is None:
            rate = _rate(self._part(_dispatch(group)))
            limit = self._dispatch[group] = DispatchLimit(rate, GROUP, self._clock, self._nursery)
            self._meters[_dispatch(group)] = _Meter(limit, self._clock.now())
        return limit

    def _whole(self, name: str) -> Budget:
        group, _, kind = name.rpartition("/")
        found = self._groups.get(group, _NO_GROUP)
        return found.publish if kind == "publish" else found.dispatch

    def _part(self, name: str) -> Budget:
        return self._whole(name).times(self.shares.get(name, 1.0))

    def _apply(self) -> None:
        for group, publishing in self._publish.items():
            budget = self._part(_publish(group))
            publishing.use(budget.messages_per_second, budget.bytes_per_second)
        for group, sending in self._dispatch.items():
            sending.use(_rate(self._part(_dispatch(group))))


def _publish(group: str) -> str:
    return f"{group}/publish"


def _dispatch(group: str) -> str:
    return f"{group}/dispatch"


def _rate(budget: Budget) -> DispatchRate:
    """A small part of a budget must not become no limit."""
    return DispatchRate(ceil(budget.messages_per_second), ceil(budget.bytes_per_second))
