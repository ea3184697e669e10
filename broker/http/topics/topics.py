"""`/admin/v2/{domain}/{tenant}/{namespace}[/{topic}]`: lists, creation and deletion of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.ground.operations import run_owned
from broker.ground.refusal import Refusal, conflict, not_found, precondition_failed
from broker.http.router import Route
from broker.http.shadows import SHADOW_SOURCE, end_shadow, refuse_shadow, wanted_shadow
from broker.http.topics.non_persistent import non_persistent_topics, those_of_bundle
from broker.topics.topic.ledger_policies import ledger_policies_of
from broker.topics.topic.persistent import TOPIC_EPOCH_PROPERTY, PersistentTopic
from protocol.errors import TopicNotFound
from protocol.json_numbers import text_of
from protocol.metadata import is_batch
from protocol.position import EARLIEST
from protocol.topic_name import NON_PERSISTENT, PARTITION_SUFFIX, TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.http.context import AdminContext, AdminRequest
    from broker.topics.topic.topic import Topic

TOPIC: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"


# --- finding topics: for all resources below a topic ----------------------------------------


async def existing(request: AdminRequest) -> Topic:
    """The plain topic or partition of the path. Raises: BrokerError, Refusal."""
    context, topic = request.context, request.topic
    if await context.namespaces.partitions_of(topic):
        raise not_found(f"Topic {topic.full} not found")
    return await _found(context, topic)


async def existing_persistent(request: AdminRequest, refusal: str = "") -> PersistentTopic:
    """The same, when it must be a stored one. `refusal` is what another one is answered.

    Raises: BrokerError, Refusal.
    """
    topic = await existing(request)
    if not isinstance(topic, PersistentTopic):
        told = refusal or f"{topic.name.full} is a non-persistent topic: nothing is stored"
        raise Refusal(405, told)
    return topic


def _refuse_non_persistent(request: AdminRequest) -> None:
    if request.topic.domain == NON_PERSISTENT:
        raise Refusal(406, "Need to provide a persistent topic name")


async def every_part(context: AdminContext, topic: TopicName) -> list[Topic]:
    """The topic, or all partitions of a partitioned one. Raises: BrokerError."""
    count = await context.namespaces.partitions_of(topic)
    if not count:
        return [await _found(context, topic)]
    return [await _found(context, topic.partition(index)) for index in range(count)]


async def every_stored_part(context: AdminContext, topic: TopicName) -> list[PersistentTopic]:
    """The same, without topics that store nothing. Raises: BrokerError."""
    parts = await every_part(context, topic)
    return [part for part in parts if isinstance(part, PersistentTopic)]


async def _found(context: AdminContext, topic: TopicName) -> Topic:
    """The topic. A missing namespace, topic or partition is reported as in Pulsar."""
    try:
        return await context.service.find_topic(topic)
    except TopicNotFound:
        await context.namespaces.of_topic(topic)
        if not topic.is_partition:
            raise
        if await context.namespaces.partitions_of(topic.partitioned_base):
            raise not_found("Topic partitions were not yet created") from None
        raise not_found(f"Partitioned Topic not found: {topic.full} has zero partitions") from None


# --- lists ----------------------------------------------------------------------------------


async def topics(request: AdminRequest) -> Sequence[str]:
    """Topics that exist, at whichever broker; partitions one by one. With `includeSystemTopic` also
    those of brokers, with `bundle` those of one bundle. As on Pulsar, a blank one counts as none
    given for non-persistent topics only."""
    context, name, domain = request.context, request.namespace_name, request.domain
    await context.namespaces.get(name)
    with_system = request.flag("includeSystemTopic")
    bundle = request.query.get("bundle")
    if domain == NON_PERSISTENT:
        wanted = "" if bundle is None or bundle.isspace() else bundle
        return await non_persistent_topics(
            context, name, with_system=with_system, range_text=wanted
        )
    names = await context.service.topic_lists.existing(name, domain, with_system=with_system)
    return names if bundle is None else await those_of_bundle(context, name, bundle, names)


async def partitioned_topics(request: AdminRequest) -> list[str]:
    """Names of partitioned topics."""
    context, name = request.context, request.namespace_name
    await context.namespaces.get(name)
    with_system = request.flag("includeSystemTopic")
    return await context.namespaces.partitioned_topics(
        name, request.domain, with_system=with_system
    )


# --- life -----------------------------------------------------------------------------------


async def create(request: AdminRequest) -> None:
    """Create a plain topic, whatever the rules for topics of clients. Body: properties or null."""
    context, topic = request.context, request.topic
    properties = text_map(await request.json_object() or {})
    shadows = await wanted_shadow(request, properties)
    namespace = await context.namespaces.get(request.namespace_name)
    if topic.is_partition:
        base = topic.partitioned_base
        count = namespace.partitioned.count(base)
        if not count:
            raise precondition_failed(
                f'Can\'t create topic {topic.local_name} with "{PARTITION_SUFFIX}" followed by '
                f"numeric value if there isn't a partitioned topic {base.local_name} created."
            )
        if topic.partition_index >= count:
            raise precondition_failed(
                f'Can\'t create topic {topic.local_name} with "{PARTITION_SUFFIX}" followed by a '
                "number smaller than number of partition of partitioned topic "
                f"{base.local_name}"
            )
    if await context.namespaces.topic_exists(topic):
        raise conflict("This topic already exists")
    await context.namespaces.check_new_topic(topic)
    if shadows is not None:
        await shadows.create(topic, properties)
        return
    if topic.persistent:
        # The topic exists once its managed ledger does.
        policies = ledger_policies_of(namespace.policies.of_topic(topic).effective)
        await context.service.factory.open(topic.managed_ledger_name, policies)
    created = await context.service.get_or_load_topic(topic, create=True)
    if properties and isinstance(created, PersistentTopic):
        given = _without_epoch(properties)
        await created.ledger.change_properties(lambda old: {**old, **given})


async def delete(request: AdminRequest) -> None:
    """Delete a topic; with `force` also one in use."""
    context, topic = request.context, request.topic
    if await context.namespaces.partitions_of(topic):
        raise conflict(
            f"{topic.full} is a partitioned topic, instead of calling delete topic, please call "
            "delete-partitioned-topic."
        )
    await context.service.delete_topic(topic, force=request.flag("force"))


async def unload(request: AdminRequest) -> None:
    """Close the topic. Its clients look up again and reopen it."""
    context, topic = request.context, request.topic
    count = await context.namespaces.partitions_of(topic)
    if not count and not await context.namespaces.topic_exists(topic):
        raise not_found(f"Topic {topic.full} not found")
    for each in [topic.partition(index) for index in range(count)] or [topic]:
        await context.service.unload_topic(each)


async def terminate(request: AdminRequest) -> dict[str, int]:
    """Accept no more messages. Answers the id of the last one."""
    _refuse_non_persistent(request)
    if await request.context.namespaces.partitions_of(request.topic):
        raise Refusal(405, "Termination of a partitioned topic is not allowed")
    topic = await existing_persistent(request)
    return message_id_json(topic, await topic.terminate())


async def terminate_partitions(request: AdminRequest) -> dict[str, dict[str, int]]:
    """The same for every partition; ids by partition index."""
    await request.context.namespaces.of_topic(request.topic)
    if not await request.context.namespaces.partitions_of(request.topic):
        raise Refusal(
            405,
            "Termination of a non-partitioned topic is not allowed using partitioned-terminate, "
            "please use terminate commands",
        )
    ids: dict[str, dict[str, int]] = {}
    for topic in await every_stored_part(request.context, request.topic):
        ids[str(topic.name.partition_index)] = message_id_json(topic, await topic.terminate())
    return ids


async def trim(request: AdminRequest) -> str:
    """Delete ledgers that neither subscriptions nor retention need, of every partition."""
    context, name = request.context, request.topic
    if not name.persistent:
        raise Refusal(405, "Trim on a non-persistent topic is not allowed")
    if not (name.is_partition or await context.namespaces.topic_exists(name)):
        raise not_found(f"Topic {name.full} not found")  # also when its namespace is unknown
    for topic in await every_stored_part(context, name):
        await run_owned(context.service.nursery, topic.ledger.trim)
    return ""  # 200, where other endpoints answer 204


async def message_id_at(request: AdminRequest) -> dict[str, int]:
    """The first message published at or after a time."""
    if await request.context.namespaces.partitions_of(request.topic):
        raise Refusal(
            405,
            "Get message ID by timestamp on a partitioned topic is not allowed, please try do it "
            "on specific topic partition",
        )
    topic = await existing_persistent(
        request, "Get message ID by timestamp on a non-persistent topic is not allowed"
    )
    try:
        time_ms = int(request.names["timestamp"])
    except ValueError:
        raise not_found(f"There is nothing at {request.path}") from None
    before = await topic.ledger.find_by_publish_time(time_ms)
    return message_id_json(topic, topic.ledger.next_position(before))


async def last_message_id(request: AdminRequest) -> dict[str, int]:
    """The newest message; for a batch the last one in it."""
    name = request.topic
    if not (name.is_partition or await request.context.namespaces.topic_exists(name)):
        raise not_found(f"Topic {name.full} not found")  # also when its namespace is unknown
    topic = await existing_persistent(
        request, "GetLastMessageId on a non-persistent topic is not allowed"
    )
    entry = await topic.newest_entry()
    if entry is None:
        ledger_id, entry_id = topic.ledger.last_confirmed
        if entry_id >= 0:  # Deleted: Pulsar answers the earliest id, without partition.
            return message_id_json(topic, EARLIEST) | {"partitionIndex": -1}
        return message_id_json(topic, (ledger_id, -1))
    if not is_batch(entry.metadata):
        return message_id_json(topic, entry.position)
    return message_id_json(topic, entry.position, entry.messages() - 1)


def message_id_json(
    topic: Topic, position: tuple[int, int], batch_index: int = -1
) -> dict[str, int]:
    """A message id of this topic as Pulsar's admin API writes it."""
    fields = {
        "ledgerId": position[0],
        "entryId": position[1],
        "partitionIndex": topic.name.partition_index,
        "batchIndex": batch_index,
        "batchSize": 0,
    }
    if batch_index >= 0:
        fields |= {"outstandingAcksInSameBatch": 0, "originalBatchSize": 0}
    return fields


# --- properties -----------------------------------------------------------------------------


async def properties(request: AdminRequest) -> dict[str, str]:
    """The properties of the topic."""
    _refuse_non_persistent(request)
    context, topic = request.context, request.topic
    namespace = await context.namespaces.of_topic(topic)
    metadata = namespace.partitioned.metadata(topic)
    if metadata is not None:
        return dict(metadata.get("properties") or {})
    return dict((await existing_persistent(request)).ledger.properties)


async def change_properties(request: AdminRequest) -> None:
    """Add or replace properties. One that makes a shadow takes effect when the topic is opened
    again."""
    given = _without_epoch(text_map(await request.json_object() or {}))
    if SHADOW_SOURCE in given:
        await _check_shadow(request, given)
    await _change_properties(request, lambda old: {**old, **given})


async def delete_property(request: AdminRequest) -> None:
    """Remove one property. Without that which makes a shadow the topic is an ordinary one, also if
    it could not be opened as a shadow."""
    if request.query.get("key") == SHADOW_SOURCE:
        _refuse_non_persistent(request)
        if not await request.context.namespaces.partitions_of(request.topic) and await end_shadow(
            request
        ):
            return
    gone = _without_epoch({request.query.get("key", ""): ""})
    await _change_properties(
        request, lambda old: {key: value for key, value in old.items() if key not in gone}
    )


async def _check_shadow(request: AdminRequest, given: dict[str, str]) -> None:
    """A property that is put back unchanged makes no shadow.

    Raises: Refusal, BrokerError: the properties would make one that may not be made.
    """
    if given[SHADOW_SOURCE] == (await properties(request)).get(SHADOW_SOURCE):
        return
    if await request.context.namespaces.partitions_of(request.topic):
        refuse_shadow(given)
    await wanted_shadow(request, given)


def _without_epoch(values: dict[str, str]) -> dict[str, str]:
    """The topic epoch is the broker's alone. It is ignored, not refused: a tool may put back
    everything that it got."""
    return {key: value for key, value in values.items() if key != TOPIC_EPOCH_PROPERTY}


async def _change_properties(
    request: AdminRequest, change: Callable[[dict[str, str]], dict[str, str]]
) -> None:
    _refuse_non_persistent(request)
    namespace = await request.context.namespaces.of_topic(request.topic)
    if namespace.partitioned.count(request.topic):
        await namespace.partitioned.change_properties(request.topic, change)
    else:
        await (await existing_persistent(request)).ledger.change_properties(change)


def text_map(values: object) -> dict[str, str]:
    """Properties of a request; numbers and booleans as texts. Raises: Refusal."""
    if not isinstance(values, dict):
        raise Refusal(400, "Properties must be text")
    texts: dict[str, str] = {}
    for key, value in values.items():
        text = text_of(value)
        if text is None:
            raise Refusal(400, "Properties must be text")
        texts[key] = text
    return texts


_NAMESPACE: Final = "/admin/v2/{domain}/{tenant}/{namespace}"
ROUTES: Final = (
    Route("GET", _NAMESPACE, topics),
    Route("GET", f"{_NAMESPACE}/partitioned", partitioned_topics),
    Route("PUT", TOPIC, create),
    Route("DELETE", TOPIC, delete),
    Route("PUT", f"{TOPIC}/unload", unload),
    Route("POST", f"{TOPIC}/terminate", terminate),
    Route("POST", f"{TOPIC}/terminate/partitions", terminate_partitions),
    Route("POST", f"{TOPIC}/trim", trim),
    Route("GET", f"{TOPIC}/lastMessageId", last_message_id),
    Route("GET", f"{TOPIC}/messageid/{{timestamp}}", message_id_at),
    Route("GET", f"{TOPIC}/properties", properties),
    Route("PUT", f"{TOPIC}/properties", change_properties),
    Route("DELETE", f"{TOPIC}/properties", delete_property),
)
