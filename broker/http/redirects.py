"""307 to the broker that owns a topic or a bundle, or that knows the owner.

A client repeats the whole request there. `authoritative=true` informs the next broker that the
leader chose it: it becomes the owner if there is none. Location and query are as on Pulsar 4.0.8:
those of the request, with `authoritative` at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final
from urllib.parse import parse_qsl, urlencode

from broker.ground.refusal import Refusal, precondition_failed
from protocol.errors import ServiceNotReady, TopicNotFound

if TYPE_CHECKING:
    from broker.http.context import AdminRequest
    from broker.peers.broker_address import BrokerAddress
    from broker.peers.ownership import Whereabouts


@final
class Redirect(Exception):
    """The request belongs elsewhere: 307 with this location."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


def flag_text(value: bool) -> str:
    """As in a query."""
    return "true" if value else "false"


def redirect(request: AdminRequest, to: BrokerAddress, path: str) -> Redirect:
    """To the same port of another broker, with or without TLS.

    Raises: Refusal: that broker has no such port.
    """
    url = to.web_url(request.scheme)
    if not url:
        raise Refusal(
            500,
            "Redirected cluster's service url is not configured: "
            f"broker {to.broker_id} has no port for {request.scheme}",
        )
    return Redirect(f"{url}{path}")


def send_on(request: AdminRequest, found: Whereabouts) -> None:
    """Raises: Redirect: another broker is to answer this request."""
    ownership = request.context.service.ownership
    if not found.is_redirect and found.address == ownership.this_broker:
        return
    given = parse_qsl(request.query_text, keep_blank_values=True)
    query = [(name, value) for name, value in given if name != "authoritative"]
    query.append(("authoritative", flag_text(found.authoritative)))
    raise redirect(request, found.address, f"{request.raw_path}?{urlencode(query)}")


async def send_to_owner(request: AdminRequest) -> None:
    """Let the owner of the topic in the path answer. The partitions of a partitioned topic may have
    several owners: its requests stay here, and so do those that name nothing that exists.

    Raises: Redirect. Refusal: there is no owner at the moment.
    """
    context, topic = request.context, request.topic
    ownership = context.service.ownership
    if ownership.serves(topic) or await context.namespaces.partitions_of(topic):
        return
    try:
        found = await ownership.owner_of(topic, authoritative=request.flag("authoritative"))
    except TopicNotFound:
        return
    except ServiceNotReady as error:
        raise precondition_failed(
            f"Can't find owner for topic {topic.full}: {error.message}"
        ) from None
    send_on(request, found)
