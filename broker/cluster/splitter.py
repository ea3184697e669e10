"""Cuts a bundle of this broker in two.

The parts are owned before the boundaries are stored, and the whole is given up last, so that no
other broker can own a part before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.cluster.bundle_owners import certain
from broker.cluster.bundles import (
    Bundle,
    NotABundle,
    middle_of_range,
    middle_of_topics,
    topic_hash,
)
from broker.ground.refusal import precondition_failed
from metadata.store import VersionConflict
from protocol.errors import ServiceNotReady

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.cluster.bundle_owners import BundleOwners
    from broker.cluster.load import LoadSource
    from broker.cluster.namespace_bundles import NamespaceBundles, StoredBoundaries
    from broker.cluster.session import ClusterSession

_ATTEMPTS_MAX: Final = 10
RANGE_EQUALLY: Final = "range_equally_divide"
TOPIC_COUNT_EQUALLY: Final = "topic_count_equally_divide"
ALGORITHMS: Final = (RANGE_EQUALLY, TOPIC_COUNT_EQUALLY)


@final
class Splitter:
    """One split of a namespace at a time: the caller sees to that."""

    def __init__(
        self,
        bundles: NamespaceBundles,
        owners: BundleOwners,
        session: ClusterSession,
        load: LoadSource,
        on_unknown: Callable[[str], None],
    ) -> None:
        """`on_unknown` is called with a namespace whose boundaries may have changed or not."""
        self._bundles = bundles
        self._owners = owners
        self._session = session
        self._load = load
        self._on_unknown = on_unknown

    async def split(self, namespace_name: str, range_text: str, algorithm: str) -> list[Bundle]:
        """The parts, which this broker owns. Raises: Refusal, BrokerError."""
        for _attempt in range(_ATTEMPTS_MAX):
            stored = await self._bundles.read(namespace_name)
            try:
                bundle = stored.boundaries.find(range_text)
            except NotABundle as error:
                raise precondition_failed(str(error)) from None
            place = self._place_of_split(bundle, algorithm)
            if place is None:
                raise precondition_failed(f"Bundle {bundle.name} cannot be split by {algorithm}")
            parts = [
                Bundle(namespace_name, bundle.lower, place),
                Bundle(namespace_name, place, bundle.upper),
            ]
            if await self._split_at(stored, bundle, parts, place):
                return parts
        raise ServiceNotReady(f"The bundles of {namespace_name} change all the time")

    def _place_of_split(self, bundle: Bundle, algorithm: str) -> int | None:
        if algorithm == RANGE_EQUALLY:
            return middle_of_range(bundle)
        inside = [
            topic_hash(topic) for topic, _load in self._load.topics() if bundle.contains(topic)
        ]
        return middle_of_topics(bundle, inside)

    async def _split_at(
        self, stored: StoredBoundaries, bundle: Bundle, parts: list[Bundle], place: int
    ) -> bool:
        """False: the boundaries have changed meanwhile.

        Raises: BrokerError: the outcome is unknown.
        """
        session = self._session.check_live()
        if not self._owners.holds(bundle):
            raise ServiceNotReady(f"{bundle.name} is not owned by this broker; look up again")
        try:
            for part in parts:
                owner = await self._owners.acquire(part, certain)
                if owner.session != session:
                    raise ServiceNotReady(f"{part.name} is owned by another broker; try again")
            # From here to the request no other task runs: the request belongs to this session.
            if not (self._session.is_still(session) and self._owners.holds(bundle)):
                raise ServiceNotReady(f"{bundle.name} is not owned by this broker any more")
            await self._bundles.replace(stored, stored.boundaries.split(bundle, [place]))
        except VersionConflict:
            for part in parts:
                await self._owners.release(part, close=False)
            return False
        except BaseException:
            self._on_unknown(bundle.namespace_name)
            raise
        await self._owners.release(bundle, close=False)
        return True
