"""`.../{topic}/subscription[s]`: creates, removes and moves subscriptions.

On a partitioned topic an operation applies to every partition if that is meaningful, and is
otherwise refused with Pulsar's text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.ground.refusal import Refusal, conflict, not_found, precondition_failed
from broker.http.router import Route
from broker.http.topics.topics import TOPIC, every_part, existing_persistent, text_map
from broker.tenancy.policies.bodies import flag, flag_in
from broker.topics.subscription.request import SubscriptionRequest
from broker.topics.topic.admission import check_strictly
from protocol.ack_set import all_unacked, to_words
from protocol.errors import NotAllowed, ProducerBusy, SubscriptionNotFound, TopicNotFound
from protocol.message_id import MessageId, from_json
from protocol.metadata import is_batch
from protocol.position import EARLIEST, LATEST, Position
from protocol.topic_name import NON_PERSISTENT

if TYPE_CHECKING:
    from broker.http.context import AdminRequest
    from broker.topics.subscription.api import Subscription
    from broker.topics.topic.persistent import PersistentTopic
    from broker.topics.topic.topic import Topic


async def names(request: AdminRequest) -> list[str]:
    """Subscriptions of the topic, including those of connected readers."""
    found: dict[str, None] = {}
    for topic in await every_part(request.context, request.topic):
        found.update(dict.fromkeys(topic.subscriptions))
    return list(found)


async def create(request: AdminRequest) -> None:
    """Body: a message id, with `properties` beside its fields if need be, or nothing (Latest). The
    message id may also stand in a field `messageId`. `replicated` of the query is kept and shown.

    On a partitioned topic it is created on the partitions that lack it; 409 if none does.
    """
    context, name = request.context, request.names["subscription"]
    if request.topic.domain == NON_PERSISTENT:
        raise Refusal(
            400, "Create subscription on non-persistent topic can only be done through client"
        )
    if context.config.strictlyVerifySubscriptionName:
        try:
            check_strictly(name)
        except ProducerBusy as error:
            raise Refusal(400, error.message) from None
    body = await request.json_object() or {}
    properties = text_map(body.pop("properties", None) or {})
    flag_in(body, "excluded")  # without an effect in Pulsar, which refuses what is no boolean
    start = body.pop("messageId", body) or {}
    position = _position(start) if start else LATEST
    count = await context.namespaces.partitions_of(request.topic)
    parts = [request.topic.partition(index) for index in range(count)] or [request.topic]
    try:
        topics = [await context.service.get_or_load_topic(part, create=True) for part in parts]
    except TopicNotFound:
        await context.namespaces.of_topic(request.topic)
        raise precondition_failed("Topic does not exist and cannot be auto-created") from None
    lacking = [topic for topic in topics if name not in topic.subscriptions]
    if not lacking:
        raise conflict("Subscription already exists for topic")
    for topic in lacking:
        topic.check_subscription_name(name)
        wanted = SubscriptionRequest(
            name=name,
            earliest=position == EARLIEST,
            properties=properties,
            replicated=request.flag("replicated"),
        )
        try:
            subscription = await topic.open_subscription(wanted)
        except NotAllowed as error:
            raise conflict(error.message) from None
        if position not in (EARLIEST, LATEST):
            await subscription.seek(position)


async def delete(request: AdminRequest) -> None:
    """Remove a subscription; with `force` its consumers are disconnected."""
    name, force = request.names["subscription"], request.flag("force")
    topics = await every_part(request.context, request.topic)
    if await request.context.namespaces.partitions_of(request.topic):
        topics = [topic for topic in topics if name in topic.subscriptions]
        if not topics:
            raise not_found("Subscription not found")
    for topic in topics:
        await topic.delete_subscription(name, force=force)


async def reset_to_id(request: AdminRequest) -> None:
    """Make a message the next one to be delivered."""
    if await request.context.namespaces.partitions_of(request.topic):
        raise Refusal(405, "Reset-cursor at position is not allowed for partitioned-topic")
    body = await request.json_object()
    topic = await existing_persistent(request)
    subscription = topic.subscription(request.names["subscription"])
    if not body:
        raise Refusal(400, "The body must be a message id: {ledgerId, entryId}")
    await subscription.seek(*await _first_unacked(topic, body))


async def _first_unacked(
    topic: PersistentTopic, body: dict[str, Any]
) -> tuple[Position, tuple[int, ...]]:
    """Where a subscription continues that is reset to the message id of the body: the entry, and
    which messages of it come if it is a batch. With `excluded` it continues after the message. An
    index beyond the batch is the whole batch, as in Pulsar.

    Raises: Refusal: that is no message id. BrokerError: the batch cannot be read now.
    """
    wanted = _message_id(body)
    position = wanted.position
    is_excluded = flag_in(body, "excluded")
    if position in (EARLIEST, LATEST):
        return position, ()
    next_entry = position[0], position[1] + 1
    count = 0
    if wanted.batch_index >= 0 and topic.ledger.holds(position):
        entries = await topic.ledger.read(position, 1, 1)
        if entries and entries[0].position == position and is_batch(entries[0].metadata):
            count = entries[0].messages()
    if count <= 1:
        return (next_entry if is_excluded else position), ()
    first = wanted.batch_index + is_excluded
    if is_excluded and first >= count:
        return next_entry, ()
    return position, to_words(all_unacked(count) >> first << first) if 0 < first < count else ()


async def reset_to_time(request: AdminRequest) -> None:
    """Continue with the first message published at or after a time.

    Done on every partition that has the subscription, even if another one lacks it: 404 then.
    """
    time_ms, name = _number(request, "timestamp"), request.names["subscription"]
    topics = await every_part(request.context, request.topic)
    for topic in topics:
        if name in topic.subscriptions:
            await topic.subscription(name).seek_to_time(time_ms)
    for topic in topics:
        topic.subscription(name)


async def skip(request: AdminRequest) -> None:
    """Acknowledge the next n messages."""
    if await request.context.namespaces.partitions_of(request.topic):
        raise Refusal(405, "Skip messages on a partitioned topic is not allowed")
    count = _number(request, "count")
    topic = await existing_persistent(request)
    await topic.subscription(request.names["subscription"]).skip(count)


async def skip_all(request: AdminRequest) -> None:
    """Acknowledge everything. Closed ledgers are deleted even without a new ack, as in Pulsar."""
    for topic, subscription in await _everywhere(request):
        await subscription.clear_backlog()
        topic.request_trim()


async def expire(request: AdminRequest) -> None:
    """Acknowledge messages published more than n seconds ago."""
    seconds = _number(request, "seconds")
    await _refuse_non_persistent(request, "Expire messages on a non-persistent topic")
    await _expire_each(request, await _everywhere(request), seconds)


async def expire_all(request: AdminRequest) -> None:
    """The same for every subscription."""
    seconds = _number(request, "seconds")
    what = "Expire messages for all subscriptions on a non-persistent topic"
    await _refuse_non_persistent(request, what)
    topics = await every_part(request.context, request.topic)
    found = [(topic, each) for topic in topics for each in topic.subscriptions.values()]
    await _expire_each(request, found, seconds)


async def _expire_each(
    request: AdminRequest, found: list[tuple[Topic, Subscription]], seconds: int
) -> None:
    """Expire on all, then report the first one that had nothing to expire, as Pulsar does."""
    before_ms = request.context.clock.wall_ms() - seconds * 1000
    idle = [each for each in found if not await each[1].expire(before_ms)]
    if idle:
        raise _nothing_to_expire(*idle[0])


async def _refuse_non_persistent(request: AdminRequest, what: str) -> None:
    if request.topic.domain == NON_PERSISTENT:
        await every_part(request.context, request.topic)  # raises if the topic does not exist
        raise Refusal(405, f"{what} is not allowed")


def _nothing_to_expire(topic: Topic, subscription: Subscription) -> Refusal:
    return conflict(
        f"Expire message by timestamp not issued on topic {topic.name.full} for subscription "
        f"{subscription.name} due to ongoing message expiration not finished or subscription "
        "almost catch  up. If it's performed on a partitioned topic operation might succeeded on "
        "other partitions, please check stats of individual partition."
    )


async def _everywhere(request: AdminRequest) -> list[tuple[Topic, Subscription]]:
    """The subscription of the path on the topic or on every partition that has it."""
    name = request.names["subscription"]
    topics = await every_part(request.context, request.topic)
    found = [(topic, topic.subscriptions[name]) for topic in topics if name in topic.subscriptions]
    if not found:
        raise SubscriptionNotFound(f"Subscription {name} not found for topic {request.topic.full}")
    return found


async def replicated_status(request: AdminRequest) -> dict[str, bool]:
    """Whether other clusters are to know its position, by the full name of topic or partition."""
    _refuse_replicated(request, "get replicated subscriptions")
    topics = await every_part(request.context, request.topic)
    found = {topic.name.full: topic.subscription(_name(request)) for topic in topics}
    return {topic: subscription.is_replicated for topic, subscription in found.items()}


async def set_replicated_status(request: AdminRequest) -> None:
    """Body: a boolean. Stored with the subscription, and shown; Vela does not replicate, so it has
    no other effect.

    Done on every partition that has the subscription, even if another one lacks it: 404 then.
    """
    is_wanted = flag("The body", await request.json())
    _refuse_replicated(request, "enable/disable replicated subscriptions")
    topics = await every_part(request.context, request.topic)
    name = _name(request)
    for topic in topics:
        if name in topic.subscriptions:
            await topic.subscription(name).set_replicated(is_wanted)
    for topic in topics:
        topic.subscription(name)


def _refuse_replicated(request: AdminRequest, what: str) -> None:
    if request.topic.domain == NON_PERSISTENT:
        raise Refusal(405, f"Cannot {what} on non-persistent topics")


def _name(request: AdminRequest) -> str:
    return request.names["subscription"]


def _number(request: AdminRequest, name: str) -> int:
    try:
        return int(request.names[name])
    except ValueError:
        raise not_found(f"There is nothing at {request.path}") from None


def _position(body: dict[str, Any]) -> Position:
    return _message_id(body).position


def _message_id(body: dict[str, Any]) -> MessageId:
    """Raises: Refusal: it is none."""
    try:
        return from_json(body)
    except ValueError as error:
        raise Refusal(400, str(error)) from None


_SUBSCRIPTION: Final = f"{TOPIC}/subscription/{{subscription}}"
ROUTES: Final = (
    Route("GET", f"{TOPIC}/subscriptions", names),
    Route("PUT", _SUBSCRIPTION, create),
    Route("DELETE", _SUBSCRIPTION, delete),
    Route("POST", f"{_SUBSCRIPTION}/resetcursor", reset_to_id),
    Route("POST", f"{_SUBSCRIPTION}/resetcursor/{{timestamp}}", reset_to_time),
    Route("POST", f"{_SUBSCRIPTION}/skip/{{count}}", skip),
    Route("POST", f"{_SUBSCRIPTION}/skip_all", skip_all),
    Route("POST", f"{_SUBSCRIPTION}/expireMessages/{{seconds}}", expire),
    Route("GET", f"{_SUBSCRIPTION}/replicatedSubscriptionStatus", replicated_status),
    Route("POST", f"{_SUBSCRIPTION}/replicatedSubscriptionStatus", set_replicated_status),
    Route("POST", f"{TOPIC}/all_subscription/expireMessages/{{seconds}}", expire_all),
)
