"""The brokers of a cluster report to each other how they use the budgets of resource groups.

Each broker that uses one has an ephemeral node below `/vela/resource-usage`, a JSON object
`{budget: [used, held]}` (see `Usage`), of the publish and the dispatch budgets of each group. It is
written at most once a second, and only when a use has changed enough, so nothing is written at
rest. Real Pulsar reports by messages instead, to real brokers only.

Reports are a second old. A broker that begins to use a budget counts itself at once, the others
count it after its first report: until then the parts of all may exceed the budget.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Protocol, final

import structlog
import trio

from broker.limits.budget_shares import Usage, shares
from metadata.store import MetadataUnavailable, NodeNotFound, VersionConflict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from metadata.store import MetadataStore, SessionState

log = structlog.get_logger()

USAGE_PATH: Final = "/vela/resource-usage"
REPORT_SECONDS: Final = 1.0
_CHANGE: Final = 0.05
"""A use that differs by less is not reported."""


class Budgets(Protocol):
    """The budgets of groups on this broker."""

    def usage(self) -> dict[str, Usage]:
        """The use of budgets since the last call, without unused ones."""

    def use_shares(self, parts: Mapping[str, float]) -> None:
        """This broker's parts. It has all of a budget that is not there."""


@final
class GroupUsage:
    """Reports of this broker, and what follows from those of all."""

    def __init__(self, store: MetadataStore, broker_id: str, budgets: Budgets) -> None:
        self._store = store
        self._broker_id = broker_id
        self._budgets = budgets
        self._reported: dict[str, Usage] = {}
        self._version: int | None = None
        """The version of this broker's node; None: it may not exist."""
        self._others: dict[str, dict[str, Usage]] = {}
        self._changed = True

    async def run(self) -> None:
        """Until cancelled."""
        stops = (
            self._store.watch(USAGE_PATH, self._tell),
            self._store.watch_session(self._session_changed),
        )
        try:
            while True:
                try:
                    await self.step()
                except MetadataUnavailable as error:
                    self._changed = True
                    log.warning("use of resource groups is not reported", reason=str(error))
                await trio.sleep(REPORT_SECONDS)
        finally:
            for stop in stops:
                stop()

    async def step(self) -> None:
        """Report, read and divide once. Raises: MetadataUnavailable."""
        own = self._budgets.usage()
        if _tells_more(own, self._reported) or (own and self._version is None):
            await self._report(own)
        if self._changed:
            self._changed = False
            await self._read()
        groups = {*own, *(group for each in self._others.values() for group in each)}
        self._budgets.use_shares({group: self._part(group, own) for group in groups})

    def _part(self, group: str, own: Mapping[str, Usage]) -> float:
        usages = {name: each[group] for name, each in self._others.items() if group in each}
        usages[self._broker_id] = own.get(group, Usage())
        return shares(usages)[self._broker_id]

    def _tell(self, path: str) -> None:
        if path != f"{USAGE_PATH}/{self._broker_id}":
            self._changed = True

    def _session_changed(self, _state: SessionState) -> None:
        """The node may be gone with the former session."""
        self._version = None

    async def _report(self, usage: dict[str, Usage]) -> None:
        path = f"{USAGE_PATH}/{self._broker_id}"
        value = json.dumps(
            {group: [round(each.used, 3), each.is_held] for group, each in usage.items()}
        ).encode()
        try:
            if not usage:
                self._version = None
                await self._store.delete(path)
            elif self._version is None:
                await self._store.put_ephemeral(path, value)
                self._version = 0
            else:
                self._version = await self._store.put(path, value, self._version)
        except NodeNotFound:
            pass
        except VersionConflict:
            if self._version is None:  # of an earlier session of this broker
                await self._delete(path)
            self._version = None
            return
        self._reported = usage

    async def _delete(self, path: str) -> None:
        try:
            await self._store.delete(path)
        except NodeNotFound:
            pass

    async def _read(self) -> None:
        others: dict[str, dict[str, Usage]] = {}
        for name in await self._store.children(USAGE_PATH):
            if name != self._broker_id:
                found = await self._store.get(f"{USAGE_PATH}/{name}")
                if found is not None:
                    others[name] = parsed(found[0])
        self._others = others


def parsed(data: bytes) -> dict[str, Usage]:
    """A report; what cannot be read reports nothing."""
    try:
        return {
            group: Usage(float(used), bool(held))
            for group, (used, held) in json.loads(data).items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        log.warning("unreadable report of resource groups", reason=str(error))
        return {}


def _tells_more(now: Mapping[str, Usage], before: Mapping[str, Usage]) -> bool:
    if now.keys() != before.keys():
        return True
    return any(
        each.is_held != before[group].is_held or abs(each.used - before[group].used) > _CHANGE
        for group, each in now.items()
    )
