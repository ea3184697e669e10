"""The log of one namespace: kept read while it exists, and written.

A change is made to what this broker has read, and published. It is in force when the broker has
read it back. Requests about a topic go to its owner, which makes one change after another. Two
brokers therefore change the same topic at once only while its bundle moves. If another message of
the topic came in between, the change is repeated on that one, so that both are in force.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import structlog
import trio

from broker.ground.refusal import Refusal
from broker.peers.owner_connection import LinkLost
from broker.tenancy.change_events.log_part import LogPart
from broker.tenancy.namespaces.topic_policies import topic_in
from broker.tenancy.policies.topic_events import (
    Malformed,
    event_of,
    fields_in,
    message_key,
    topic_of,
    with_fields,
)
from protocol.errors import BrokerError, ServiceNotReady
from protocol.hashing import partition_by_java_string_hash

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from broker.peers.owner_connection import OwnerConnection
    from broker.tenancy.change_events.log_part import Event, Take
    from broker.tenancy.namespaces.topic_policies import TopicLevel
    from broker.tenancy.policies.topic_policy_map import Kept
    from protocol.position import Position
    from protocol.topic_name import TopicName
    from runtime.clock import Clock

RETRY_FIRST_SECONDS: Final = 0.05
RETRY_LAST_SECONDS: Final = 3.0
READ_SECONDS_MAX: Final = 20.0
"""How long a request waits for the log."""
MERGES_MAX: Final = 10
FLAWS_TOLD_MAX: Final = 100
"""Lines of the log about messages that cannot be used, for each reading of a namespace's."""
REASON_CHARS_MAX: Final = 500
"""The length of such a line: a message may have megabytes."""

log = structlog.get_logger()


class Owners(Protocol):
    """How the owner of a topic is reached."""

    async def connect(self, topic: TopicName, nursery: trio.Nursery, take: Take) -> OwnerConnection:
        """Raises: LinkLost, BrokerError."""


class _Gone(Exception):
    """There is no log."""


@final
class NamespaceLog:
    """See the module docstring."""

    def __init__(
        self,
        level: TopicLevel,
        owners: Owners,
        cluster: str,
        clock: Clock,
        on_created: Callable[[], object],
    ) -> None:
        """`on_created` is called once when there is a log after there was none."""
        self._on_created = on_created
        self._level = level
        self._owners = owners
        self._cluster = cluster
        self._clock = clock
        self._map = level.map
        self._parts: list[LogPart] = []
        self._live = trio.Event()
        self._failure: LinkLost | BrokerError | None = None
        self._has_ended = False
        self._writing = trio.Lock()
        self._flaws_told = 0
        self._not_applied: dict[str, Exception] = {}
        """By key: why a loaded topic does not have these policies."""
        self._problem = "its owner has not answered yet"
        self.create = False
        """Whether the log is to be made if there is none."""

    # --- reading ------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled, or until there is no log."""
        try:
            await self._run()
        finally:
            self._has_ended = True
            self._live.set()

    async def _run(self) -> None:
        pause_seconds = RETRY_FIRST_SECONDS
        while True:
            try:
                await self._serve()
            except _Gone:
                await self._end()
                return
            except (LinkLost, BrokerError) as error:
                problem = error.message if isinstance(error, BrokerError) else str(error)
            if self._live.is_set():  # it may just have moved to another broker
                pause_seconds = RETRY_FIRST_SECONDS
                self._live = trio.Event()
                self._problem = problem
            self._note(problem)
            self._level.is_live = False
            await trio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, RETRY_LAST_SECONDS)

    def _note(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            log.warning(
                "policies of topics not followed, trying again",
                namespace=self._level.namespace_name,
                reason=problem,
            )

    async def _end(self) -> None:
        try:
            await self._level.gone()
        except Exception as error:
            log.error("policies not applied", namespace=self._level.namespace_name, exc_info=error)

    async def _serve(self) -> None:
        """Raises: LinkLost, BrokerError, _Gone."""
        level = self._level
        exists = await level.log_exists(self._on_created)
        if not (exists or self.create or level.nodes.found):
            raise _Gone
        self._map = level.empty_map()
        self._flaws_told = 0
        self._failure = None
        async with trio.open_nursery() as nursery:
            self._parts = [
                LogPart(topic, self._cluster, self._clock, self) for topic in level.log_parts()
            ]
            for part in self._parts:
                nursery.start_soon(self._run_part, part, nursery)
            for part in self._parts:
                await part.caught_up.wait()
            try:
                await self._take_over()
            except (LinkLost, BrokerError) as error:
                self._failure = error
                nursery.cancel_scope.cancel()
            await self._go_live()
            await trio.sleep_forever()
        raise self._failure or LinkLost("the log has ended")

    async def _run_part(self, part: LogPart, nursery: trio.Nursery) -> None:
        try:
            connect = partial(self._owners.connect, part.topic, nursery)
            await part.run(connect, create=self.create or bool(self._level.nodes.found))
        except (LinkLost, BrokerError) as error:
            self._failure = error
            nursery.cancel_scope.cancel()

    async def _go_live(self) -> None:
        level = self._level
        try:
            await level.use(self._map)
        except Exception as error:
            log.error("policies not applied", namespace=level.namespace_name, exc_info=error)
        if self._problem:
            self._problem = ""
        self.create = False
        self._live.set()

    async def _take_over(self) -> None:
        """Move policies that earlier versions kept in the metadata store into the log, if the topic
        has none there. Another broker that does the same at the same time writes the same."""
        level = self._level
        for domain, local_name in list(level.nodes.found):
            topic = topic_in(level.namespace_name, domain, local_name)
            fields = level.nodes.found[domain, local_name]
            key = message_key(topic, is_global=False)
            try:
                if self._map.of(key) is None and fields:
                    await self._publish(key, with_fields({}, fields, self._cluster), None)
            except (Malformed, KeyError) as error:
                level.not_taken_over(topic, str(error))
            else:
                await level.taken_over(topic)

    async def take_over(self) -> None:
        """The same, of nodes that another broker has made since. Raises: BrokerError."""
        await self._write(self._take_over)

    async def take(self, event: Event) -> None:
        """See EventTaker."""
        level = self._level
        try:
            if topic_of(event.key).namespace_name != level.namespace_name:
                raise Malformed("it is about a topic of another namespace")
            key = self._map.apply(event.key, event.kept)
        except Malformed as malformed:
            self._tell("a message in the policies of topics is ignored", event, str(malformed))
            return
        if key in self._map.damage:
            reason = self._map.damage[key].message
            self._tell("policies of a topic are damaged", event, reason)
        if self._map is not level.map:
            return
        self._not_applied.pop(event.key, None)
        try:
            await level.policies.topic_changed(key)
        except Exception as error:
            self._not_applied[event.key] = error
            log.error("policies not applied", topic=event.key, exc_info=error)

    def _tell(self, text: str, event: Event, reason: str) -> None:
        self._flaws_told += 1
        if self._flaws_told > FLAWS_TOLD_MAX:
            return
        log.error(
            text,
            namespace=self._level.namespace_name,
            position=event.kept.position,
            reason=reason[:REASON_CHARS_MAX],
        )
        if self._flaws_told == FLAWS_TOLD_MAX:
            log.error(
                "further messages of this kind are not logged: check who may produce to the log",
                namespace=self._level.namespace_name,
                log=self._level.log_topic.full,
            )

    async def wait_live(self) -> None:
        """Return when the policies are as they are written. Raises: ServiceNotReady."""
        with trio.move_on_after(READ_SECONDS_MAX):
            await self._live.wait()
            if not self._has_ended or self._level.is_absent:
                return
        raise ServiceNotReady(
            f"The policies of the topics of {self._level.namespace_name} cannot be read now: "
            f"{self._problem or 'they are being read'}"
        )

    # --- writing ------------------------------------------------------------------------

    async def change(
        self, topic: TopicName, field: str, change: Callable[[Any], object], *, is_global: bool
    ) -> None:
        """See PolicyLog."""
        key = message_key(topic.partitioned_base, is_global=is_global)
        await self._write(lambda: self._change(key, field, change))
        self._raise_not_applied(key)

    async def _write(self, make: Callable[[], Awaitable[None]]) -> None:
        """Make a change, again if the connection was lost: it starts from what has been read, and
        so finds whether it had been made. Raises: BrokerError, Refusal."""
        async with self._writing:
            pause_seconds = RETRY_FIRST_SECONDS
            lost: LinkLost | None = None
            while True:
                try:
                    await self.wait_live()
                except ServiceNotReady:
                    if lost is None:
                        raise
                    raise self._in_doubt(lost) from None
                try:
                    await make()
                except LinkLost as error:
                    lost = error
                    if pause_seconds > RETRY_LAST_SECONDS:
                        raise self._in_doubt(lost) from None
                except Malformed as malformed:
                    raise Refusal(400, f"The policy cannot be stored: {malformed}") from None
                else:
                    return
                await trio.sleep(pause_seconds)
                pause_seconds *= 2

    async def _change(self, key: str, field: str, change: Callable[[Any], object]) -> None:
        base = self._map.of(key)
        last = None if base is None else base.position
        for _ in range(MERGES_MAX):
            before = {} if base is None or self._is_damaged(key) else base.policies or {}
            value = change(fields_in(before, self._cluster).get(field))
            after = with_fields(before, {field: value}, self._cluster)
            if after == before and not self._is_damaged(key):
                return
            position = await self._publish(key, after, base)
            kept = self._map.of(key)
            if kept is None or kept.position != position:
                return
            found = None if kept.before is None else kept.before.position
            if found == last:
                return
            base, last = kept.before, position
        raise ServiceNotReady("The policies of the topic keep being changed by others; try again")

    def _is_damaged(self, key: str) -> bool:
        """Whether the next change replaces everything that is said of the topic."""
        topic = topic_of(key)
        return (topic.domain, topic.local_name) in self._map.damage

    async def _publish(self, key: str, policies: Mapping[str, Any], base: Kept | None) -> Position:
        """Returns the place of the message, which has been read back."""
        parts = self._parts
        part = parts[partition_by_java_string_hash(key, len(parts)) if len(parts) > 1 else 0]
        event = event_of(key, policies, self._cluster) if policies else None
        position = await part.publish(key, event, base)
        await part.wait_read(position)
        return position

    async def delete(self, topic: TopicName) -> None:
        """See PolicyLog."""
        await self._write(lambda: self._delete(topic))

    async def _delete(self, topic: TopicName) -> None:
        for is_global in (False, True):
            key = message_key(topic.partitioned_base, is_global=is_global)
            if self._map.of(key) is not None:
                await self._publish(key, {}, None)

    def _in_doubt(self, lost: LinkLost) -> ServiceNotReady:
        return ServiceNotReady(
            f"The policies of the topics of {self._level.namespace_name} cannot be written now: "
            f"{lost}. The change may have been made: look before you repeat it"
        )

    def _raise_not_applied(self, key: str) -> None:
        error = self._not_applied.get(key)
        if error is not None:
            raise error
