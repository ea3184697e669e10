"""The budgets of resource groups on this broker: one limit for all topics of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.net.publish_limit import PublishLimit
from broker.policies.resource_groups import ResourceGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import trio

    from runtime.clock import Clock


@final
class GroupLimits:
    """The topics of a group share its limit also while it has no budget, so that a budget that is
    set, changed or removed needs no word to them."""

    def __init__(self, clock: Clock, nursery: Callable[[], trio.Nursery]) -> None:
        self._clock = clock
        self._nursery = nursery
        self._groups: Mapping[str, ResourceGroup] = {}
        self._publish: dict[str, PublishLimit] = {}

    def use(self, groups: Mapping[str, ResourceGroup]) -> None:
        """These are the groups now."""
        self._groups = groups
        for name, limit in self._publish.items():
            budget = groups.get(name, ResourceGroup()).publish
            limit.use(budget.messages_per_second, budget.bytes_per_second)

    def publish(self, name: str) -> PublishLimit | None:
        """The publish budget of a group; None: an empty name is no group."""
        if not name:
            return None
        limit = self._publish.get(name)
        if limit is None:
            budget = self._groups.get(name, ResourceGroup()).publish
            limit = self._publish[name] = PublishLimit(
                budget.messages_per_second, budget.bytes_per_second, self._clock, self._nursery
            )
        return limit
