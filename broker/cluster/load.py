"""This broker's load report: what its process uses, and what its bundles hold and move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import trio

from broker.cluster.bundles import BundlesOfBroker
from broker.cluster.records import UNKNOWN, BrokerReport, BundleLoad, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.cluster.bundles import Bundle
    from broker.peers.broker_address import BrokerAddress
    from protocol.topic_name import TopicName

TOPICS_PER_SLICE: Final = 500


class Resources(NamedTuple):
    """The resources of its machine that a process uses."""

    cpu: Usage = UNKNOWN
    """Percent of one core."""
    memory: Usage = UNKNOWN
    """Megabytes."""
    bandwidth_in: Usage = UNKNOWN
    """Kilobits per second."""
    bandwidth_out: Usage = UNKNOWN


class LoadSource(Protocol):
    """Where the numbers come from."""

    def resources(self) -> Resources:
        """The use by the process, since the last call or over a short time."""

    def topics(self) -> Iterable[tuple[TopicName, BundleLoad]]:
        """The loaded topics, each with its own load and `topics` = 1. Other tasks run between the
        steps of an iteration."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The part of a report that does not change."""

    address: BrokerAddress
    started_ms: int
    version: str


async def report_of(
    identity: Identity, source: LoadSource, owned: Iterable[Bundle], session: str, wall_ms: int
) -> BrokerReport:
    """The report as of now. Topics are counted in slices."""
    owned = list(owned)
    bundles = BundlesOfBroker(owned)
    loads = {bundle: BundleLoad() for bundle in owned}
    for number, (topic, load) in enumerate(source.topics(), 1):
        bundle = bundles.of(topic)
        if bundle is not None:
            loads[bundle] += load
        if number % TOPICS_PER_SLICE == 0:
            await trio.lowlevel.checkpoint()
    resources = source.resources()
    return BrokerReport(
        address=identity.address,
        cpu=resources.cpu,
        memory=resources.memory,
        bandwidth_in=resources.bandwidth_in,
        bandwidth_out=resources.bandwidth_out,
        bundles={bundle.name: load for bundle, load in loads.items()},
        updated_ms=wall_ms,
        started_ms=identity.started_ms,
        version=identity.version,
        session=session,
    )
