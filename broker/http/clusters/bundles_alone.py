"""The bundles of a namespace where one broker has all topics.

They decide nothing there. They are kept for tools that show or change them, and for the cluster
that the broker may become part of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.cluster.bundles import Boundaries, middle_of_range, middle_of_topics, topic_hash
from broker.cluster.choosing import HOT, LARGEST, largest
from broker.cluster.splitter import ALGORITHMS, RANGE_EQUALLY
from broker.ground.refusal import not_found, precondition_failed
from broker.tenancy.namespaces.json_nodes import change_json, create_json
from broker.tenancy.namespaces.names import local_policies_path
from protocol.topic_name import PERSISTENT

if TYPE_CHECKING:
    from broker.cluster.bundles import Bundle
    from broker.http.context import AdminContext
    from broker.tenancy.policies.record import Json


async def unload(context: AdminContext, bundle: Bundle) -> None:
    """Close the loaded topics of a bundle. Clients look up again and reopen them."""
    await context.service.close_topics(bundle.contains, "it is being unloaded")


async def chosen_range(context: AdminContext, boundaries: Boundaries, text: str) -> str:
    """The range that `LARGEST` stands for, or the text. Loads are not stored, so no bundle is HOT.

    Raises: Refusal: there is none.
    """
    if text not in (LARGEST, HOT):
        return text
    names = await context.namespaces.topics(boundaries.namespace_name, PERSISTENT)
    bundle = await largest(boundaries, names) if text == LARGEST else None
    if bundle is None:
        raise not_found(f"Bundle range {text} not found")
    return bundle.range_text


async def split(
    context: AdminContext, boundaries: Boundaries, bundle: Bundle, algorithm: str
) -> None:
    """Cut a bundle in two. Raises: Refusal."""
    if algorithm not in ("", *ALGORITHMS):
        raise precondition_failed(
            "Unsupported namespace bundle split algorithm, supported algorithms are "
            f"[{', '.join(ALGORITHMS)}]"
        )
    if algorithm in ("", RANGE_EQUALLY):
        place = middle_of_range(bundle)
    else:
        loaded = (topic.name for topic in context.service.topics.values())
        place = middle_of_topics(bundle, [topic_hash(t) for t in loaded if bundle.contains(t)])
    if place is None:
        raise precondition_failed(f"Bundle {bundle.name} cannot be split by {algorithm}")
    texts = boundaries.split(bundle, [place]).texts
    bundles: Json = {"boundaries": texts, "numBundles": len(texts) - 1}
    name = bundle.namespace_name
    await context.namespaces.change_policies(name, lambda old: old.with_fields(bundles=bundles))
    await change_json(
        context.store, local_policies_path(name), lambda record: {**record, "bundles": bundles}
    )


async def make_local_record(context: AdminContext, namespace_name: str) -> None:
    """Make the namespace's local policies if there are none. Raises: Refusal."""
    namespace = await context.namespaces.get(namespace_name)
    record = {"bundles": namespace.bundles_given}
    await create_json(context.store, local_policies_path(namespace_name), record)
