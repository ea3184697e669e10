"""`/lookup/v2`: the broker that serves a topic, for clients with an http:// service URL."""

from __future__ import annotations

from binascii import crc32
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from broker.ground.refusal import Refusal, not_found
from broker.http.redirects import flag_text, redirect
from broker.http.router import Route
from protocol.topic_name import encode_name

if TYPE_CHECKING:
    from broker.http.context import AdminRequest


async def lookup(request: AdminRequest) -> dict[str, str]:
    """The owner, for every topic that exists or may be created."""
    context, topic = request.context, request.topic
    namespace = await context.namespaces.find(topic.namespace_name)
    if namespace is None:
        raise not_found("Namespace not found")
    listener = request.query.get("listenerName", "")
    if not context.service.ownership.this_broker.has_listener(listener):
        raise Refusal(500, f"the broker do not have {listener} listener")
    base = topic.partitioned_base
    known = await context.namespaces.topic_exists(topic)
    outside = topic.is_partition and namespace.partitioned.count(base) > 0
    if not known and (outside or not namespace.policies.effective.auto_topic_creation):
        raise not_found(f"Topic not found {topic.full}")
    authoritative = request.flag("authoritative")
    found = await context.service.ownership.owner_of(topic, authoritative=authoritative)
    owner = found.address
    if found.is_redirect:
        # Pulsar writes the path again, so nothing else of the request's query is kept.
        query = f"authoritative={flag_text(found.authoritative)}"
        if "listenerName" in request.query:
            query += f"&listenerName={quote(listener)}"
        path = f"{topic.domain}/{topic.namespace_name}/{encode_name(topic.local_name)}"
        raise redirect(request, owner, f"/lookup/v2/topic/{path}?{query}")
    url, url_tls = owner.url(listener), owner.url_tls(listener)
    return {
        "brokerUrl": url,
        "brokerUrlTls": url_tls,
        "httpUrl": owner.web_service_url,
        "httpUrlTls": owner.web_service_url_tls,
        "nativeUrl": url,
        "brokerUrlSsl": "",
    }


async def bundle(request: AdminRequest) -> str:
    """The hash range of the namespace to which the topic belongs (CRC-32 of its name)."""
    namespace = await request.context.namespaces.find(request.namespace_name)
    if namespace is None:
        raise not_found("Namespace not found")
    cluster = request.context.cluster
    if cluster is None:
        texts = namespace.policies.record.bundles["boundaries"]
    else:
        texts = await cluster.boundaries(request.namespace_name)
    boundaries = [int(text, 16) for text in texts]
    position = crc32(request.topic.full.encode())
    for start, end in pairwise(boundaries):
        if start <= position < end or end == boundaries[-1]:
            return f"0x{start:08x}_0x{end:08x}"
    raise AssertionError("the bundles do not cover the hash range")


_TOPIC: Final = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"
ROUTES: Final = (Route("GET", _TOPIC, lookup), Route("GET", f"{_TOPIC}/bundle", bundle))
