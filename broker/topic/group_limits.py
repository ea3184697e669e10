"""The budgets of resource groups on this broker: one limit for all topics of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.net.publish_limit import PublishLimit
from broker.policies.budget_shares import Usage
from broker.policies.resource_groups import ResourceGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import trio

    from broker.policies.resource_groups import Budget
    from runtime.clock import Clock

CALM_SECONDS: Final = 5.0
"""A budget that was not used for so long is not used by this broker."""


@final
class _Metered:
    """A limit, and how much passed it between two readings."""

    __slots__ = ("_bytes", "_held", "_messages", "_read_at", "_used_at", "limit")

    def __init__(self, limit: PublishLimit, now: float) -> None:
        self.limit = limit
        self._read_at = now
        self._used_at = now - CALM_SECONDS
        self._messages = self._bytes = self._held = 0

    def read(self, budget: Budget, now: float) -> Usage | None:
        """None: it is not used."""
        limit, seconds = self.limit, max(now - self._read_at, 1e-3)
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
    """The topics of a group share its limit also while it has no budget, so that a budget that is
    set, changed or removed needs no word to them."""

    def __init__(self, clock: Clock, nursery: Callable[[], trio.Nursery]) -> None:
        self._clock = clock
        self._nursery = nursery
        self._groups: Mapping[str, ResourceGroup] = {}
        self.shares: Mapping[str, float] = {}
        """This broker's parts of the budgets, by group; 1 where there is none."""
        self._publish: dict[str, _Metered] = {}

    def use(self, groups: Mapping[str, ResourceGroup]) -> None:
        """These are the groups now."""
        self._groups = groups
        self._apply()

    def use_shares(self, parts: Mapping[str, float]) -> None:
        """So much of each budget is this broker's; all of a group that is not there."""
        if parts != self.shares:
            self.shares = dict(parts)
            self._apply()

    def usage(self) -> dict[str, Usage]:
        """Of the groups with a budget that are used here, since the last call."""
        now = self._clock.now()
        read = {
            name: each.read(self._whole(name), now)
            for name, each in self._publish.items()
            if self._whole(name)
        }
        return {name: usage for name, usage in read.items() if usage is not None}

    def publish(self, name: str) -> PublishLimit | None:
        """The publish budget of a group; None: an empty name is no group."""
        if not name:
            return None
        if name not in self._publish:
            budget = self._part(name)
            limit = PublishLimit(
                budget.messages_per_second, budget.bytes_per_second, self._clock, self._nursery
            )
            self._publish[name] = _Metered(limit, self._clock.now())
        return self._publish[name].limit

    def _whole(self, name: str) -> Budget:
        return self._groups.get(name, _NO_GROUP).publish

    def _part(self, name: str) -> Budget:
        return self._whole(name).times(self.shares.get(name, 1.0))

    def _apply(self) -> None:
        for name, each in self._publish.items():
            budget = self._part(name)
            each.limit.use(budget.messages_per_second, budget.bytes_per_second)


_NO_GROUP: Final = ResourceGroup()
