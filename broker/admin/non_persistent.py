"""Lists of non-persistent topics. Such a topic exists while its owner has it in memory, so in a
cluster every owner of a bundle is asked for its own.

GET_TOPICS_OF_NAMESPACE of the binary protocol does not use this. As on Pulsar 4.0.8, it names the
non-persistent topics of the broker that is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.admin.redirects import send_on
from broker.admin.router import Route
from broker.cluster.bundles import Boundaries, NotABundle, names_within
from broker.ownership import NoBundles
from broker.refusal import precondition_failed
from broker.slices import sorted_in_slices
from protocol.topic_name import NON_PERSISTENT, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.admin.context import AdminContext, AdminRequest
    from broker.cluster.bundles import Bundle


async def non_persistent_topics(
    context: AdminContext, namespace_name: str, *, with_system: bool
) -> Sequence[str]:
    """Full names, in order, of those that any broker has loaded; [] for an unknown namespace.

    Raises: BrokerError: the topics of a bundle are not known.
    """
    if context.cluster is None:
        return await context.service.topic_lists.existing(
            namespace_name, NON_PERSISTENT, with_system=with_system
        )
    if await context.namespaces.find(namespace_name) is None:
        return []
    names = await context.cluster.non_persistent_topics(namespace_name)
    if with_system:
        return names
    return await sorted_in_slices(None if is_system_topic(each) else each for each in names)


async def of_bundle(request: AdminRequest) -> list[str] | None:
    """Those of a bundle, given by its owner; None: no broker owns the bundle. As on Pulsar, names
    that are reserved for brokers are always included."""
    context = request.context
    bundle = await _bundle(request)
    if context.cluster is not None:
        owner = await context.cluster.owner_if_any(bundle.namespace_name, bundle.range_text)
        if owner is None:
            return None
        send_on(request, owner)
    names = await context.service.topic_lists.existing(
        bundle.namespace_name, NON_PERSISTENT, with_system=True
    )
    return await sorted_in_slices(names_within(bundle, names))


async def _bundle(request: AdminRequest) -> Bundle:
    """The bundle of the path. Raises: Refusal, BrokerError."""
    context, name = request.context, request.namespace_name
    namespace = await context.namespaces.get(name)
    if context.cluster is None:
        texts = namespace.bundles_given.get("boundaries") or []
    else:
        texts = await context.cluster.boundaries(name)
    try:
        boundaries = Boundaries.parse(name, texts)
    except ValueError as error:
        raise NoBundles(str(error)) from None
    try:
        return boundaries.find(request.names["bundle"])
    except NotABundle as error:
        raise precondition_failed(str(error)) from None


ROUTES: Final = (Route("GET", "/admin/v2/non-persistent/{tenant}/{namespace}/{bundle}", of_bundle),)
