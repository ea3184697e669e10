"""The bundles of this broker, and the owners of all others: ephemeral nodes below `/namespace`.

A broker owns a bundle from the moment when its node exists under the broker's live session until
the node is deleted or the session may end. Invariants:

- `serves` is False while the session is not live, and for a bundle whose node was touched, until
  the node has been read again.
- A node is deleted by its broker only after the topics of the bundle are closed, or their time is
  over. Fencing of ledgers makes topics that hang harmless.
- A bundle is not acquired while topics of an earlier ownership of the same hashes are open here.
- A bundle is acquired only if it is one of the namespace's bundles *after* its node was created.
  Boundaries change before the node of the bundle that was split goes away, so two brokers cannot
  own a bundle and a part of it.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol, final

import structlog
import trio

from broker.cluster.bundles import BundlesOfBroker, overlapping, parse_bundle, topic_hash
from broker.cluster.records import OWNERS_PATH, Owner, encode, owner_path
from metadata.store import MetadataUnavailable, NodeNotFound, SessionState, VersionConflict
from protocol.errors import MetadataError, ServiceNotReady

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

    from broker.cluster.bundles import Bundle
    from broker.cluster.session import ClusterSession
    from broker.peers.broker_address import BrokerAddress
    from metadata.store import MetadataStore
    from protocol.topic_name import TopicName

log = structlog.get_logger()

_UNLOADING: Final = "its bundle is being unloaded"
_RETRY_SECONDS: Final = 1.0
_REMEMBERED_MAX: Final = 200_000
"""Owners in memory. Beyond, all are read again."""


class FormerSession(ServiceNotReady):
    """The bundle is still owned by an earlier session of this broker, which is about to end."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(f"{bundle.name} is still owned by an earlier session of this broker")


async def certain() -> bool:
    """For `BundleOwners.acquire`: the bundle is one whatever the store says."""
    await trio.lowlevel.checkpoint()
    return True


class OpenTopics(Protocol):
    """The topics of this broker. Thousands of bundles may be given up at once, so the topics of all
    of them are found in one go."""

    def stop_topics(
        self, group_of: Callable[[TopicName], Bundle | None], reason: str
    ) -> Mapping[Bundle, Sequence[TopicName]]:
        """The topics of each bundle, also those that are being loaded. They take no messages from
        now on."""

    async def close_stopped(self, names: Iterable[TopicName], reason: str) -> None:
        """Close topics that were stopped."""


@final
class _Held:
    """A bundle of this broker, or one that it is acquiring."""

    __slots__ = ("bundle", "is_active", "session", "was_touched")

    def __init__(self, bundle: Bundle, session: str) -> None:
        self.bundle = bundle
        self.session = session
        """The session whose node says so."""
        self.is_active = False
        """Whether topics are served."""
        self.was_touched = False
        """Whether the node may have changed since it was created or last read."""


@final
class BundleOwners:
    """See the module docstring. Run it with `nursery.start(run)`."""

    def __init__(
        self,
        store: MetadataStore,
        session: ClusterSession,
        this_broker: BrokerAddress,
        topics: OpenTopics,
        *,
        doubt_seconds_max: float,
        close_seconds_max: float,
        on_change: Callable[[Bundle], None],
    ) -> None:
        """`on_change` is called with a bundle that may have another owner."""
        self._on_change = on_change
        self._store = store
        self._session = session
        self._this_broker = this_broker
        self._topics = topics
        self._doubt_seconds_max = doubt_seconds_max
        self._close_seconds_max = close_seconds_max
        self._held: dict[Bundle, _Held] = {}
        self._acquiring: dict[Bundle, _Held] = {}
        self._leaving: dict[Bundle, trio.Event] = {}
        """Bundles whose topics are being closed; set when they are, and the node is deleted."""
        self._of_namespace: dict[str, list[_Held]] = {}
        self._locks: dict[Bundle, tuple[trio.Lock, list[None]]] = {}
        self._known: dict[str, Owner | None] = {}
        """Owners by the path of their nodes."""
        self._changes = 0
        self._awaited: dict[str, trio.Event] = {}
        """By path: set when the node may have changed."""
        self._suspects: dict[Bundle, _Held] = {}
        """Held bundles whose nodes are to be read again."""
        self._touched = trio.Event()
        self._session_moved = trio.Event()
        """Replaced, after it is set, whenever the state of the session changes."""
        self._is_leaving = False
        self._nursery: trio.Nursery | None = None
        session.watch(self._session_changed)
        self._end_watch = store.watch(OWNERS_PATH, self._node_changed)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the nodes and the session until cancelled. `leave` comes first for a clean end."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._check_touched)
                nursery.start_soon(self._give_up_in_doubt)
                task_status.started()
                try:
                    await trio.sleep_forever()
                finally:
                    self._nursery = None
        finally:
            self._end_watch()

    # --- what is owned now --------------------------------------------------------------

    def serves(self, topic: TopicName) -> bool:
        """Whether topics of its bundle are served here now."""
        mine = self._of_namespace.get(topic.namespace_name)
        if not mine or not self._session.is_live:
            return False
        place = topic_hash(topic)
        return any(held.is_active and held.bundle.covers(place) for held in mine)

    def holds(self, bundle: Bundle) -> bool:
        """Whether exactly this bundle is served here now."""
        held = self._held.get(bundle)
        return held is not None and held.is_active and self._session.is_live

    @property
    def bundles(self) -> dict[Bundle, bool]:
        """The bundles of this broker, and whether it serves them now."""
        return {bundle: self.holds(bundle) for bundle in self._held}

    def of_namespace(self, namespace_name: str) -> list[Bundle]:
        """The bundles of this broker in a namespace."""
        return [held.bundle for held in self._of_namespace.get(namespace_name, ())]

    @property
    def namespaces(self) -> list[str]:
        """Namespaces in which this broker has bundles."""
        return list(self._of_namespace)

    # --- owners -------------------------------------------------------------------------

    async def find(self, bundle: Bundle) -> Owner | None:
        """The owner that the bundle's node names, None when there is no node. The node may name
        this broker and another session of it. No await when in memory.

        Raises: MetadataUnavailable.
        """
        path = owner_path(bundle)
        if path in self._known:
            return self._known[path]
        changes = self._changes
        owner = await self._read(bundle)
        if changes == self._changes:
            if len(self._known) >= _REMEMBERED_MAX:
                self._known.clear()
            self._known[path] = owner
        return owner

    async def wait_for_change(self, bundle: Bundle, seen: Owner) -> None:
        """Return when the bundle's node may be another one than `find` gave."""
        path = owner_path(bundle)
        while self._known.get(path) == seen:
            await self._awaited.setdefault(path, trio.Event()).wait()
        await trio.lowlevel.checkpoint()

    def _tell_waiting(self, path: str | None) -> None:
        """None: all of them."""
        for each in (path,) if path is not None else tuple(self._awaited):
            waiting = self._awaited.pop(each, None)
            if waiting is not None:
                waiting.set()

    async def _read(self, bundle: Bundle) -> Owner | None:
        found = await self._store.get(owner_path(bundle))
        if found is None:
            return None
        owner = Owner.parse(found[0])
        if owner is None:
            raise MetadataError(f"The record at {owner_path(bundle)} is damaged")
        return owner

    async def acquire(
        self, bundle: Bundle, is_one_of_the_bundles: Callable[[], Awaitable[bool]]
    ) -> Owner:
        """Own the bundle unless another broker does. Returns its owner.

        `is_one_of_the_bundles` reads the boundaries from the store. It is called after the node was
        created.

        Raises: ServiceNotReady: not at the moment. MetadataError.
        """
        async with self._alone(bundle):
            session = self._session.check_live()
            ours = Owner(self._this_broker, session=session)
            if self.holds(bundle):
                return ours
            self._check_free(bundle)
            held = _Held(bundle, session)
            self._acquiring[bundle] = held
            try:
                other = await self._create_node(held, ours)
                if other is not None:
                    return other
                await self._check_acquired(held, is_one_of_the_bundles)
            except BaseException:
                # The node may have been created. Others would send clients here for ever.
                self._free_later(bundle, session, ())
                raise
            finally:
                del self._acquiring[bundle]
            self._add(held)
            return ours

    def _check_free(self, bundle: Bundle) -> None:
        """Raises: ServiceNotReady: the bundle is not free for this broker."""
        if self._is_leaving:
            raise ServiceNotReady("The broker is shutting down; look up again")
        held = self._held.get(bundle)
        if held is not None or any(bundle.overlaps(other) for other in self._leaving):
            raise ServiceNotReady(f"Namespace bundle {bundle.name} is being unloaded")

    async def _create_node(self, held: _Held, ours: Owner) -> Owner | None:
        """Create the node. Returns another owner, if there is one; None: the node is ours."""
        bundle = held.bundle
        try:
            await self._store.put_ephemeral(owner_path(bundle), encode(ours.record))
        except VersionConflict:
            owner = await self._read(bundle)
            if owner is None:
                raise ServiceNotReady(f"The owner of {bundle.name} is changing") from None
            if owner.session == ours.session:
                held.was_touched = False
                return None  # made by an attempt that did not learn of it
            if owner.address.broker_id == self._this_broker.broker_id:
                raise FormerSession(bundle) from None
            return owner
        held.was_touched = False
        return None

    async def _check_acquired(
        self, held: _Held, is_one_of_the_bundles: Callable[[], Awaitable[bool]]
    ) -> None:
        """Raises: ServiceNotReady: the bundle is not ours after all."""
        bundle = held.bundle
        is_one = await is_one_of_the_bundles()
        if not self._session.is_still(held.session) or held.was_touched:
            raise ServiceNotReady(f"{bundle.name} could not be acquired; try again")
        if not is_one or self._is_leaving:
            raise ServiceNotReady(f"{bundle.name} is not a bundle any more; look up again")

    def _add(self, held: _Held) -> None:
        held.is_active = True
        self._held[held.bundle] = held
        self._of_namespace.setdefault(held.bundle.namespace_name, []).append(held)

    def _remove(self, held: _Held) -> None:
        held.is_active = False
        del self._held[held.bundle]
        namespace_name = held.bundle.namespace_name
        others = self._of_namespace[namespace_name]
        others.remove(held)
        if not others:
            del self._of_namespace[namespace_name]

    @asynccontextmanager
    async def _alone(self, bundle: Bundle) -> AsyncIterator[None]:
        """One acquisition of a bundle at a time."""
        lock, waiting = self._locks.setdefault(bundle, (trio.Lock(), []))
        waiting.append(None)
        try:
            async with lock:
                yield
        finally:
            waiting.pop()
            if not waiting:
                del self._locks[bundle]

    # --- giving up ----------------------------------------------------------------------

    async def release(self, bundle: Bundle, *, close: bool = True) -> None:
        """Give a bundle up: serve it no more, close its topics, delete the node. Without `close`
        the topics stay open; they belong to another bundle of this broker.

        A bundle that this broker does not own is left alone. The release goes on if the caller is
        cancelled.
        """
        held = self._held.get(bundle)
        if held is not None:
            self._remove(held)
            names = self._stopped(bundle) if close else ()
            self._free_later(bundle, held.session, names)
        leaving = self._leaving.get(bundle)
        if leaving is not None:
            await leaving.wait()
        else:
            await trio.lowlevel.checkpoint()

    async def leave(self) -> None:
        """Give up all bundles, and acquire none any more. Nothing to do if it does not run."""
        self._is_leaving = True
        if self._nursery is None:
            return
        self._give_up_all("the broker is shutting down")
        while self._leaving:
            await next(iter(self._leaving.values())).wait()

    def _give_up_all(self, reason: str) -> None:
        given_up = list(self._held.values())
        if given_up:
            log.info("giving up all bundles", count=len(given_up), reason=reason)
        for held in given_up:
            self._remove(held)
        bundles = [held.bundle for held in given_up]
        shared = overlapping(bundles)  # a bundle that is being split, and its parts
        others = BundlesOfBroker(bundle for bundle in bundles if bundle not in shared)
        stopped = self._topics.stop_topics(others.of, _UNLOADING)
        for held in given_up:
            bundle = held.bundle
            names = self._stopped(bundle) if bundle in shared else stopped.get(bundle, ())
            self._free_later(bundle, held.session, names)

    def _stopped(self, bundle: Bundle) -> Sequence[TopicName]:
        """The topics of one bundle, which take no messages from now on."""

        def group_of(topic: TopicName) -> Bundle | None:
            return bundle if bundle.contains(topic) else None

        return self._topics.stop_topics(group_of, _UNLOADING).get(bundle, ())

    def _free_later(self, bundle: Bundle, session: str, names: Sequence[TopicName]) -> None:
        if self._nursery is not None and bundle not in self._leaving:
            self._leaving[bundle] = trio.Event()
            self._nursery.start_soon(self._free, bundle, session, names)

    async def _free(self, bundle: Bundle, session: str, names: Sequence[TopicName]) -> None:
        """Close the topics, then delete the node, however long the store takes."""
        try:
            await self._close(bundle, names)
            is_first = True
            while self._session.name == session:
                try:
                    if not is_first:
                        await self._store.sync()  # what is read shows whether it took effect
                    is_first = False
                    await self._delete_node(bundle, session)
                    break
                except MetadataUnavailable as error:
                    log.warning("cannot free bundle yet", bundle=bundle.name, reason=str(error))
                    await trio.sleep(_RETRY_SECONDS)
        finally:
            self._leaving.pop(bundle).set()

    async def _close(self, bundle: Bundle, names: Sequence[TopicName]) -> None:
        if not names:
            return
        with trio.move_on_after(self._close_seconds_max) as scope:
            await self._topics.close_stopped(names, _UNLOADING)
        if scope.cancelled_caught:
            log.error("topics of a bundle were not closed in time", bundle=bundle.name)

    async def _delete_node(self, bundle: Bundle, session: str) -> None:
        """Delete the node if it is of this session. It is read first, because an earlier attempt
        may have deleted it, and another broker may have created it since."""
        found = await self._store.get(owner_path(bundle))
        owner = None if found is None else Owner.parse(found[0])
        if owner is None or owner.session != session or self._session.name != session:
            return
        try:
            await self._store.delete(owner_path(bundle))
        except NodeNotFound:
            return

    # --- the session --------------------------------------------------------------------

    def _session_changed(self, state: SessionState) -> None:
        self._known.clear()
        self._changes += 1
        self._tell_waiting(None)
        if state is SessionState.LOST:
            self._give_up_all("the session with the metadata store is lost")
        moved, self._session_moved = self._session_moved, trio.Event()
        moved.set()

    async def _give_up_in_doubt(self) -> None:
        """Close all topics before the store gives the bundles to others."""
        while True:
            moved = self._session_moved
            if self._session.is_live or not self._held:
                await moved.wait()
                continue
            with trio.move_on_after(self._doubt_seconds_max):
                await moved.wait()
                continue
            self._give_up_all("the metadata store has been out of reach for too long")

    # --- the nodes ----------------------------------------------------------------------

    def _node_changed(self, path: str) -> None:
        self._changes += 1
        if path == OWNERS_PATH:
            # Anything may have changed, most likely nothing.
            self._known.clear()
            self._tell_waiting(None)
            for held in (*self._held.values(), *self._acquiring.values()):
                self._suspect(held)
            return
        self._known.pop(path, None)
        self._tell_waiting(path)
        bundle = parse_bundle(path.removeprefix(f"{OWNERS_PATH}/"))
        if bundle is None:
            return
        self._on_change(bundle)
        for mine in (self._held.get(bundle), self._acquiring.get(bundle)):
            if mine is not None:
                mine.is_active = False
                self._suspect(mine)

    def _suspect(self, held: _Held) -> None:
        held.was_touched = True
        if held.bundle in self._held:
            self._suspects[held.bundle] = held
            self._touched.set()

    async def _check_touched(self) -> None:
        """Read the nodes again that may have changed."""
        while True:
            await self._touched.wait()
            self._touched = trio.Event()
            suspects, self._suspects = self._suspects, {}
            for held in suspects.values():
                await self._check_node(held)

    async def _check_node(self, held: _Held) -> None:
        bundle = held.bundle
        held.was_touched = False
        try:
            owner = await self._read(bundle)
        except MetadataError as error:
            log.warning("cannot read the owner of a bundle", bundle=bundle.name, reason=str(error))
            await trio.sleep(_RETRY_SECONDS)
            self._suspect(held)
            return
        if held.was_touched or self._held.get(bundle) is not held:
            return
        if owner is not None and owner.session == held.session:
            held.is_active = True
            return
        log.warning("bundle lost: its node is gone", bundle=bundle.name)
        self._remove(held)
        self._free_later(bundle, held.session, self._stopped(bundle))
        self._on_change(bundle)
