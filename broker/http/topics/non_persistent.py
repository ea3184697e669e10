"""Lists of non-persistent topics. Such a topic exists while its owner has it in memory, so in a
cluster every owner of a bundle is asked for its own.

GET_TOPICS_OF_NAMESPACE of the binary protocol does not use this. As on Pulsar 4.0.8, it names the
non-persistent topics of the broker that is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.cluster.bundles import Boundaries, NotABundle, names_within
from broker.ground.refusal import precondition_failed
from broker.ground.slices import sorted_in_slices
from broker.http.redirects import send_on
from broker.http.router import Route
from broker.peers.ownership import NoBundles
from protocol.topic_name import NON_PERSISTENT, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.cluster.bundles import Bundle
    from broker.http.context import AdminContext, AdminRequest


async def non_persistent_topics(
    context: AdminContext, namespace_name: str, *, with_system: bool, range_text: str = ""
) -> Sequence[str]:
    """Full names, in order, of those that any broker has loaded; [] for an unknown namespace. With
    `range_text` those of this bundle, [] if it is none.

    Raises: BrokerError: the topics of a bundle are not known.
    """
    if context.cluster is None:
        names = await context.service.topic_lists.existing(
            namespace_name, NON_PERSISTENT, with_system=with_system
        )
        if not range_text:
            return names
        return await those_of_bundle(context, namespace_name, range_text, names)
    if await context.namespaces.find(namespace_name) is None:
        return []
    names = await context.cluster.non_persistent_topics(namespace_name, range_text)
    if with_system:
        return names
    return await sorted_in_slices(None if is_system_topic(each) else each for each in names)


async def those_of_bundle(
    context: AdminContext, namespace_name: str, range_text: str, names: Sequence[str]
) -> list[str]:
    """The names that belong to the bundle, out of full names of topics of its namespace; [] if it
    is no bundle of it. As on Pulsar, the range has to be written as in the names of bundles.

    Raises: BrokerError.
    """
    try:
        boundaries = await boundaries_of(context, namespace_name)
    except NoBundles:
        return []
    for bundle in boundaries.bundles:
        if bundle.range_text == range_text:
            return await sorted_in_slices(names_within(bundle, names))
    return []


async def of_bundle(request: AdminRequest) -> list[str] | None:
    """The topics of a bundle, as its owner gives them; None: no broker owns the bundle. As on
    Pulsar, names that are reserved for brokers are always included."""
    context = request.context
    bundle = await bundle_of(request)
    if context.cluster is not None:
        owner = await context.cluster.owner_if_any(bundle.namespace_name, bundle.range_text)
        if owner is None:
            return None
        send_on(request, owner)
    names = await context.service.topic_lists.existing(
        bundle.namespace_name, NON_PERSISTENT, with_system=True
    )
    return await sorted_in_slices(names_within(bundle, names))


async def bundle_of(request: AdminRequest) -> Bundle:
    """The bundle of the path. Raises: Refusal, BrokerError."""
    boundaries = await boundaries_of(request.context, request.namespace_name)
    try:
        return boundaries.find(request.names["bundle"])
    except NotABundle as error:
        raise precondition_failed(str(error)) from None


async def boundaries_of(context: AdminContext, namespace_name: str) -> Boundaries:
    """Raises: BrokerError: no namespace; NoBundles."""
    namespace = await context.namespaces.get(namespace_name)
    if context.cluster is None:
        texts = namespace.bundles_given.get("boundaries") or []
    else:
        texts = await context.cluster.boundaries(namespace_name)
    try:
        return Boundaries.parse(namespace_name, texts)
    except ValueError as error:
        raise NoBundles(str(error)) from None


ROUTES: Final = (Route("GET", "/admin/v2/non-persistent/{tenant}/{namespace}/{bundle}", of_bundle),)
