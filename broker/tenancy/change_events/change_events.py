"""Reads and writes the logs of all namespaces.

The first use of a topic of a namespace starts the reading of its log, which continues while the log
exists. A namespace without topic policies has no log: the first change makes it, and the metadata
store notifies the brokers that have used the namespace.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, final

import trio

from broker.tenancy.change_events.namespace_log import NamespaceLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.tenancy.change_events.namespace_log import Owners
    from broker.tenancy.namespaces.topic_policies import TopicLevel
    from protocol.topic_name import TopicName
    from runtime.clock import Clock


@final
class ChangeEvents:
    """The `PolicyLog` of a broker. Run it with `nursery.start(run)`."""

    def __init__(self, owners: Owners, cluster: str, clock: Clock) -> None:
        self._owners = owners
        self._cluster = cluster
        self._clock = clock
        self._logs: dict[TopicLevel, NamespaceLog] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled, or stopped."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def stop(self) -> None:
        """Follow nothing any more: the broker is about to leave its topics."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    async def read(self, level: TopicLevel) -> None:
        """See PolicyLog."""
        while not level.is_current:
            log = self._logs.get(level)
            if log is None:
                exists = await level.log_exists(partial(self._start, level))
                if not exists and not level.nodes.found:
                    return
                log = self._start(level)
            await log.wait_live()
            if level.is_live and level.nodes.found:
                await log.take_over()

    async def change(
        self,
        level: TopicLevel,
        topic: TopicName,
        field: str,
        change: Callable[[Any], object],
        *,
        is_global: bool,
    ) -> None:
        """See PolicyLog."""
        await self.read(level)
        log = self._logs.get(level)
        if log is None:
            if change(None) is None:
                return
            log = self._start(level, create=True)
        await log.change(topic, field, change, is_global=is_global)

    async def delete(self, level: TopicLevel, topic: TopicName) -> None:
        """See PolicyLog."""
        if topic.is_system:
            return
        await self.read(level)
        log = self._logs.get(level)
        if log is not None:
            await log.delete(topic)

    def _start(self, level: TopicLevel, *, create: bool = False) -> NamespaceLog:
        log = self._logs.get(level)
        if log is None:
            assert self._nursery is not None
            log = self._logs[level] = NamespaceLog(
                level, self._owners, self._cluster, self._clock, partial(self._start, level)
            )
            log.create = create
            self._nursery.start_soon(self._run, level, log)
        return log

    async def _run(self, level: TopicLevel, log: NamespaceLog) -> None:
        try:
            await log.run()
        finally:
            del self._logs[level]
        if not level.is_absent:  # it was made while the log ended
            self._start(level)
