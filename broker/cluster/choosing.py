"""Bundles that requests name by a property, not by their range: LARGEST and HOT, as in Pulsar
4.0.8.

LARGEST has the most persistent topics, partitions and system topics counted, and HOT the highest
throughput over time, as the leader stored it last.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from broker.cluster.load_history import BundleHistory
from broker.cluster.records import BUNDLE_DATA_PATH
from broker.ground.slices import in_slices

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from broker.cluster.bundles import Boundaries, Bundle
    from metadata.store import MetadataStore

LARGEST: Final = "LARGEST"
HOT: Final = "HOT"


async def largest(boundaries: Boundaries, full_names: Iterable[str]) -> Bundle | None:
    """The bundle with most of these topics of its namespace; None: there are none."""
    counts: Counter[Bundle] = Counter()
    await in_slices(_counted(boundaries, full_names, counts))
    return max(counts, key=lambda bundle: (counts[bundle], -bundle.lower), default=None)


def _counted(
    boundaries: Boundaries, full_names: Iterable[str], counts: Counter[Bundle]
) -> Iterator[None]:
    for full in full_names:
        counts[boundaries.bundle_of_name(full)] += 1
        yield


async def hottest(boundaries: Boundaries, store: MetadataStore) -> Bundle | None:
    """The bundle with the highest stored throughput; None: nothing is stored of one with topics.

    Raises: MetadataUnavailable.
    """
    found: tuple[float, Bundle] | None = None
    for bundle in boundaries.bundles:
        stored = await store.get(f"{BUNDLE_DATA_PATH}/{bundle.name}")
        if stored is None:
            continue
        history = BundleHistory.parse(stored[0])
        throughput = history.long_term.traffic.throughput
        if history.topics and (found is None or throughput > found[0]):
            found = throughput, bundle
    return found and found[1]
