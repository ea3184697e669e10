"""Finding topics: PARTITIONED_METADATA, LOOKUP, GET_TOPICS_OF_NAMESPACE, WATCH_TOPIC_LIST.

Every client sends these first, and many clients do so when they connect at the same time. They are
therefore answered from memory, at once and without a task of their own. A look-up never creates a
plain topic: the following producer or consumer does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol import commands
from protocol import pulsar_api_pb2 as pb
from protocol.errors import InvalidTopicName, NotAllowed, ServiceNotReady
from protocol.topic_name import NON_PERSISTENT, PERSISTENT, TopicName

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from broker.doors.pulsar.broker import Broker
    from broker.doors.pulsar.session import ClientSession
    from broker.peers.ownership import Whereabouts
    from protocol.requests import Lookup, Partitions

Mode = pb.CommandGetTopicsOfNamespace
_DOMAINS: Final = {
    Mode.PERSISTENT: (PERSISTENT,),
    Mode.NON_PERSISTENT: (NON_PERSISTENT,),
    Mode.ALL: (PERSISTENT, NON_PERSISTENT),
}


def parse_topic(text: str) -> TopicName:
    """Raises: BrokerError InvalidTopicName."""
    try:
        return TopicName.parse(text)
    except ValueError as error:
        raise InvalidTopicName(f"{text!r} is not the name of a topic: {error}") from None


def handle_partitioned_metadata(
    broker: Broker, session: ClientSession, request: Partitions
) -> Coroutine[Any, Any, None] | None:
    """The number of partitions: 0 for a plain topic, also for one that does not exist yet."""
    topic = parse_topic(request.topic)
    partitions = broker.namespaces.partitions_in_memory(topic)
    if partitions is None:
        return _resolve_partitions(broker, session, topic, request)
    session.send(commands.partitioned_metadata(request.request_id, partitions))
    return None


async def _resolve_partitions(
    broker: Broker,
    session: ClientSession,
    topic: TopicName,
    request: Partitions,
) -> None:
    partitions = await broker.namespaces.resolve_for_lookup(topic, request.may_create)
    session.send(commands.partitioned_metadata(request.request_id, partitions))


def handle_lookup(
    broker: Broker, session: ClientSession, request: Lookup
) -> Coroutine[Any, Any, None] | None:
    """The broker that serves a topic."""
    topic = parse_topic(request.topic)
    listener = request.listener
    ownership = broker.ownership
    if not ownership.this_broker.has_listener(listener):
        raise ServiceNotReady(f"the broker do not have {listener} listener")
    if not (broker.namespaces.is_loaded(topic.namespace_name) and ownership.serves(topic)):
        return _lookup_after_loading(broker, session, topic, request)
    _answer_lookup(session, ownership.here, request)
    return None


async def _lookup_after_loading(
    broker: Broker, session: ClientSession, topic: TopicName, request: Lookup
) -> None:
    await broker.namespaces.of_lookup(topic)
    found = await broker.ownership.owner_of(topic, authoritative=request.authoritative)
    _answer_lookup(session, found, request)


def _answer_lookup(session: ClientSession, found: Whereabouts, request: Lookup) -> None:
    listener = request.listener
    url = found.address.url(listener) or None
    url_tls = found.address.url_tls(listener) or None
    if found.is_redirect:
        answer = commands.lookup_redirect(
            request.request_id, url, url_tls, authoritative=found.authoritative
        )
    else:
        answer = commands.lookup_connect(
            request.request_id,
            url,
            url_tls,
            authoritative=True,
            proxy_through_service_url=found.through_service_url,
        )
    session.send(answer)


async def handle_topics_of_namespace(
    broker: Broker, session: ClientSession, body: pb.CommandGetTopicsOfNamespace
) -> None:
    """All topics of a namespace. Non-persistent ones are those that this broker has loaded, also in
    a cluster, as on Pulsar 4.0.8. The answer says that the client has to filter by pattern."""
    domains = _DOMAINS[body.mode]
    names = await broker.topic_lists.encoded(body.namespace, domains, commands.names_of_topics)
    session.send_many(commands.topics_of_namespace(body.request_id, names))


def handle_watch_topic_list(session: ClientSession, body: pb.CommandWatchTopicList) -> None:
    """Refuse it: CONNECTED does not offer it. A client that sends it nevertheless falls back to
    polling."""
    del session, body
    raise NotAllowed("Unable to watch topic list: this broker does not offer it, poll instead")


def handle_watch_topic_list_close(
    session: ClientSession, body: pb.CommandWatchTopicListClose
) -> None:
    """There is never a watch to close."""
    session.send(commands.success(body.request_id))
