"""The non-persistent topics of a namespace. They exist in the memory of brokers only, so the owner
of each bundle is asked for those of the bundle.

The request is the one with which brokers of Pulsar 4.0.8 ask each other:
`GET /admin/v2/non-persistent/{tenant}/{namespace}/{bundle}`. The answer is 204 if no broker owns
the bundle; no topic of it is loaded then. If an owner gives any other answer than a list, the
whole request is refused with the name of the bundle: a list without its topics would look complete.

Answers are in memory until the list is complete, so their sizes are bounded. Large ones are parsed
in a thread. Callers that wait for the same list share it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Protocol, final
from urllib.parse import quote

import trio

from broker.ground.slices import SharedReadings, for_each, sorted_in_slices
from broker.peers.ownership import NoBundles
from protocol.errors import ServiceNotReady
from protocol.topic_name import NON_PERSISTENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.cluster.bundles import Bundle
    from broker.cluster.namespace_bundles import NamespaceBundles

ASKED_AT_ONCE: Final = 16
BYTES_MAX: Final = 64 * 1024 * 1024
"""The size of the answers for one list: about a million topics."""
_IN_EVENT_LOOP_BYTES_MAX: Final = 64 * 1024
_REASON_CHARACTERS_MAX: Final = 300


class Ask(Protocol):
    """As `Cluster.ask`."""

    async def __call__(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body. Raises: ServiceNotReady."""


@final
class NonPersistentTopics:
    """See the module docstring."""

    def __init__(self, bundles: NamespaceBundles, ask: Ask) -> None:
        self._bundles = bundles
        self._ask = ask
        self._readings: SharedReadings[tuple[str, str], Sequence[str]] = SharedReadings()

    async def of(self, namespace_name: str, range_text: str = "") -> Sequence[str]:
        """Full names, in order. With `range_text` those of this bundle, [] if it is none.

        Raises: BrokerError: TopicNotFound, MetadataError, ServiceNotReady.
        """
        return await self._readings.get((namespace_name, range_text), self._read)

    async def _read(self, wanted: tuple[str, str]) -> Sequence[str]:
        namespace_name, range_text = wanted
        try:
            boundaries = await self._bundles.of(namespace_name)
        except NoBundles:
            return []
        bundles = boundaries.bundles
        if range_text:
            bundles = [each for each in bundles if each.range_text == range_text]
        reading = _Reading(self._ask)
        await for_each(bundles, reading.take, ASKED_AT_ONCE)
        if reading.failure is not None:
            raise reading.failure
        return await sorted_in_slices(reading.names)


@final
class _Reading:
    """A list in the making. After a failure no further owner is asked."""

    def __init__(self, ask: Ask) -> None:
        self.names: list[str] = []
        self.failure: ServiceNotReady | None = None
        self._ask = ask
        self._received_bytes = 0

    async def take(self, bundle: Bundle) -> None:
        """Add the topics of a bundle, or note the failure."""
        if self.failure is not None:
            return
        try:
            self.names += await self._names_of(bundle)
        except ServiceNotReady as error:
            self.failure = error

    async def _names_of(self, bundle: Bundle) -> list[str]:
        """Raises: ServiceNotReady."""
        path = f"/admin/v2/{NON_PERSISTENT}/{quote(bundle.name, safe='/:=')}"
        try:
            status, body = await self._ask("GET", path, b"")
        except ServiceNotReady as error:
            raise _unknown(bundle, error.message) from None
        if status == 204:
            return []
        if status != 200:
            raise _unknown(bundle, f"the answer was {status}{_reason_in(body)}")
        self._received_bytes += len(body)
        if self._received_bytes > BYTES_MAX:
            raise _unknown(
                bundle,
                f"the lists of all bundles have more than {BYTES_MAX} bytes. Ask for the topics of "
                "single bundles",
            )
        if len(body) <= _IN_EVENT_LOOP_BYTES_MAX:
            return _parsed(bundle, body)
        return await trio.to_thread.run_sync(_parsed, bundle, body)


def _unknown(bundle: Bundle, reason: str) -> ServiceNotReady:
    return ServiceNotReady(
        f"The non-persistent topics of bundle {bundle.name} are not known: {reason}"
    )


def _parsed(bundle: Bundle, body: bytes) -> list[str]:
    """The topics in an answer. Raises: ServiceNotReady: it is no list of names."""
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise _unknown(bundle, "the answer of its owner is no list of names")
    prefix = f"{NON_PERSISTENT}://{bundle.namespace_name}/"
    return [each for each in found if each.startswith(prefix)]


def _reason_in(body: bytes) -> str:
    """The reason in a refusal, to be added to a sentence; empty: it has none."""
    try:
        reason: Any = json.loads(body)["reason"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return f" ({str(reason)[:_REASON_CHARACTERS_MAX]})"
