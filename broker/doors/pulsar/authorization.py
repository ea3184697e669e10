"""Authorization of commands: the right that each requires, and the handler that checks it before
the command.

With authorization off the plain handlers are used. Otherwise a command is handled only when its
decision is known: the connection is held while what is stored is read, so that commands still take
effect in the order of their arrival. PRODUCER and SUBSCRIBE may wait for their topic, and their
grant may be revoked meanwhile: they ask again in the turn in which they attach (`StillAllowed`).
Commands of open producers and consumers ask nothing: these end when their grant does
(`broker.topics.enforcement`).

Operations and texts as in ServerCnx of Pulsar 4.0.8.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, final

from broker.doors.pulsar.lookup import parse_topic
from broker.doors.pulsar.session import ClientSession
from broker.net.errors import Held
from broker.tenancy.authorization.decision import Scope
from broker.tenancy.authorization.operations import Right
from broker.tenancy.authorization.refusals import CommandTexts, command_refusal

if TYPE_CHECKING:
    from broker.tenancy.authorization.decision import Decision
    from protocol import pulsar_api_pb2 as pb
    from security.caller import Caller

Handler: TypeAlias = Callable[[ClientSession, Any], Coroutine[Any, Any, None] | None]
Question: TypeAlias = tuple[Right, Scope]


class Decisions(Protocol):
    """The authorizer of a broker."""

    def decide_now(self, caller: Caller, right: Right, scope: Scope) -> Decision | None:
        """The decision, if it is known without waiting."""

    async def decide(self, caller: Caller, right: Right, scope: Scope) -> Decision:
        """The decision. Raises: MetadataError."""


class StillAllowed(Protocol):
    """Asks again for a command that has waited. Nothing waits between the answer and what the
    caller does next, so what is attached then is either allowed or found by the enforcement."""

    def is_known(self, session: ClientSession, body: Any) -> bool:  # noqa: ANN401
        """Whether it may go on now; false: wait with `known`. Raises: BrokerError: it may not."""

    async def known(self, session: ClientSession, body: Any) -> None:  # noqa: ANN401
        """Return when it may go on. Raises: BrokerError: it may not."""


@final
@dataclass(frozen=True, slots=True)
class Asks:
    """The rights that one type of command requires."""

    questions: Callable[[Any], Iterable[Question]]
    """The questions about the command's own message: all of them must be answered with yes. Raises:
    BrokerError."""
    texts: CommandTexts


@final
class AlwaysAllowed:
    """StillAllowed without authorization."""

    def is_known(self, session: ClientSession, body: object) -> bool:
        """Always."""
        _ = session, body
        return True

    async def known(self, session: ClientSession, body: object) -> None:
        """At once."""


@final
class AskedAgain:
    """StillAllowed by the authorizer."""

    def __init__(self, decisions: Decisions, asks: Asks) -> None:
        self._decisions = decisions
        self._asks = asks

    def is_known(self, session: ClientSession, body: object) -> bool:
        """See StillAllowed."""
        return _is_allowed_now(self._decisions, session.caller, self._asks, body)

    async def known(self, session: ClientSession, body: object) -> None:
        """See StillAllowed."""
        while not self.is_known(session, body):
            await _ask(self._decisions, session.caller, self._asks, body)


def still_allowed(decisions: Decisions | None, asks: Asks) -> StillAllowed:
    """For a command that asks this."""
    return AlwaysAllowed() if decisions is None else AskedAgain(decisions, asks)


NOTHING: Final = None
"""For a command that needs no right: part of the handshake, or about objects that are open
already."""


class Command(NamedTuple):
    """One type of command: its handler, and what it asks."""

    handler: Handler
    asks: Asks | None


def _of_topic(topic: str, right: Right, subscription: str = "") -> Question:
    """Raises: BrokerError InvalidTopicName."""
    name = parse_topic(topic)
    return right, Scope(name.tenant, name.namespace_name, name, subscription)


def _about_topic(body: Any) -> Iterable[Question]:  # noqa: ANN401 - of several commands
    yield _of_topic(body.topic, Right.LOOKUP)


def _about_new_schema(body: pb.CommandGetOrCreateSchema) -> Iterable[Question]:
    yield _of_topic(body.topic, Right.PRODUCE)


def _about_producer(body: pb.CommandProducer) -> Iterable[Question]:
    yield _of_topic(body.topic, Right.PRODUCE)
    if body.initial_subscription_name:
        yield _of_topic(body.topic, Right.CONSUME, body.initial_subscription_name)


def _about_consumer(body: pb.CommandSubscribe) -> Iterable[Question]:
    yield _of_topic(body.topic, Right.CONSUME, body.subscription)


def _about_namespace(body: Any) -> Iterable[Question]:  # noqa: ANN401 - of two commands
    name: str = body.namespace
    yield Right.LOOKUP_IN_NAMESPACE, Scope(name.partition("/")[0], name)


_TRYING: Final = "Exception occurred while trying to authorize "
_NOT: Final = "Client is not authorized to "
LOOKUP: Final = Asks(_about_topic, CommandTexts(f"{_NOT}Lookup", f"{_TRYING}lookup"))
PARTITIONS: Final = Asks(
    _about_topic,
    CommandTexts(
        f"{_NOT}Get Partition Metadata",
        f"{_TRYING}get Partition Metadata",
        "Tenant or namespace or topic does not exist: ",
    ),
)
SCHEMA: Final = Asks(_about_topic, CommandTexts(f"{_NOT}Get Schema"))
NEW_SCHEMA: Final = Asks(_about_new_schema, CommandTexts(f"{_NOT}Get Or Create Schema"))
"""Pulsar lets everyone read and register schemas by these commands, and registering creates the
topic. They ask here what the same requests ask over HTTP."""
PRODUCE: Final = Asks(_about_producer, CommandTexts(f"{_NOT}Produce"))
SUBSCRIBE: Final = Asks(_about_consumer, CommandTexts(f"{_NOT}subscribe"))
TOPICS: Final = Asks(
    _about_namespace,
    CommandTexts(f"{_NOT}GetTopicsOfNamespace", f"{_TRYING}GetTopicsOfNamespace"),
)
WATCH: Final = Asks(
    _about_namespace,
    CommandTexts(
        "Proxy Client is not authorized to watchTopicList",
        "Exception occurred while trying to handle command WatchTopicList",
    ),
)


def asking(decisions: Decisions, command: Command) -> Handler:
    """The handler of a command that asks first."""
    handler, asks = command
    if asks is None:
        return handler

    def handle(session: ClientSession, body: Any) -> Coroutine[Any, Any, None] | None:  # noqa: ANN401
        if not _is_allowed_now(decisions, session.caller, asks, body):
            raise Held(_ask(decisions, session.caller, asks, body))
        return handler(session, body)

    return handle


def _is_allowed_now(decisions: Decisions, caller: Caller, asks: Asks, body: object) -> bool:
    """False: it takes waiting to know. Raises: BrokerError: no."""
    for right, scope in asks.questions(body):
        decision = decisions.decide_now(caller, right, scope)
        if decision is None:
            return False
        if not decision.is_allowed:
            raise command_refusal(decision, scope, asks.texts)
    return True


async def _ask(decisions: Decisions, caller: Caller, asks: Asks, body: object) -> None:
    """Raises: BrokerError: no, or what is stored cannot be read."""
    for right, scope in asks.questions(body):
        decision = await decisions.decide(caller, right, scope)
        if not decision.is_allowed:
            raise command_refusal(decision, scope, asks.texts)
