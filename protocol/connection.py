"""The commands that may come in each state, and the results of CONNECT.

`COMMANDS` is the one table of the protocol's commands: the field each belongs to, who may send it,
and whether it belongs to the handshake. `Handshake` is the state of one connection as the broker
sees it; everything not allowed by table and state is a `RemoteProtocolError`, without a change of
state:

    START --CONNECT--> CONNECTED                    (credentials are enough, or none are needed)
    START --CONNECT--> CHALLENGED --AUTH_RESPONSE--> CONNECTED
    START --CONNECT--> VERIFYING -----------------> CONNECTED   (looking at credentials takes time)
    CONNECTED --AUTH_RESPONSE--> CONNECTED          (a credential is renewed)
    any --credentials are refused--> REFUSED

Both sides speak the smaller of the two protocol versions. A feature flag is claimed only when the
feature is there: a client that sees `supports_topic_watchers` stops polling for topics.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple, final

from protocol import pulsar_api_pb2 as pb
from protocol.decoding import COMMAND_FIELDS
from protocol.errors import LocalProtocolError, RemoteProtocolError

PROTOCOL_VERSION: Final = 21

_Type = pb.BaseCommand


class Sender(Enum):
    """The sides that may send a command."""

    CLIENT = auto()
    BROKER = auto()
    BOTH = auto()


class CommandRule(NamedTuple):
    """The rules of the protocol for one type of command."""

    kind: int
    name: str
    """The name of the type, for messages and metrics: PARTITIONED_METADATA."""
    field: str
    """The field of BaseCommand with its content: partitionMetadata."""
    sender: Sender


_FROM_BOTH: Final = frozenset({_Type.PING, _Type.PONG, _Type.CLOSE_PRODUCER, _Type.CLOSE_CONSUMER})

_FROM_BROKER: Final = frozenset(
    {
        _Type.CONNECTED,
        _Type.AUTH_CHALLENGE,
        _Type.SUCCESS,
        _Type.ERROR,
        _Type.PARTITIONED_METADATA_RESPONSE,
        _Type.LOOKUP_RESPONSE,
        _Type.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        _Type.WATCH_TOPIC_LIST_SUCCESS,
        _Type.WATCH_TOPIC_UPDATE,
        _Type.TOPIC_MIGRATED,
        _Type.PRODUCER_SUCCESS,
        _Type.SEND_RECEIPT,
        _Type.SEND_ERROR,
        _Type.MESSAGE,
        _Type.ACK_RESPONSE,
        _Type.GET_LAST_MESSAGE_ID_RESPONSE,
        _Type.ACTIVE_CONSUMER_CHANGE,
        _Type.REACHED_END_OF_TOPIC,
        _Type.CONSUMER_STATS_RESPONSE,
        _Type.GET_SCHEMA_RESPONSE,
        _Type.GET_OR_CREATE_SCHEMA_RESPONSE,
        _Type.TC_CLIENT_CONNECT_RESPONSE,
        _Type.NEW_TXN_RESPONSE,
        _Type.ADD_PARTITION_TO_TXN_RESPONSE,
        _Type.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
        _Type.END_TXN_RESPONSE,
        _Type.END_TXN_ON_PARTITION_RESPONSE,
        _Type.END_TXN_ON_SUBSCRIPTION_RESPONSE,
    }
)


def _rule(kind: int) -> CommandRule:
    sender = Sender.CLIENT
    if kind in _FROM_BOTH:
        sender = Sender.BOTH
    elif kind in _FROM_BROKER:
        sender = Sender.BROKER
    name = pb.BaseCommand.Type.Name(kind)
    return CommandRule(kind, name, COMMAND_FIELDS[kind], sender)


COMMANDS: Final[dict[int, CommandRule]] = {kind: _rule(kind) for kind in COMMAND_FIELDS}
"""Every command of the protocol by its type."""

CLIENT_COMMANDS: Final = frozenset(
    kind for kind, rule in COMMANDS.items() if rule.sender is not Sender.BROKER
)
"""The commands that a broker may receive."""


def features_of(flags: pb.FeatureFlags) -> frozenset[str]:
    """The names of the flags that are set."""
    return frozenset(field.name for field, value in flags.ListFields() if value)


def broker_features() -> pb.FeatureFlags:
    """The feature flags of CONNECTED: only implemented features."""
    return pb.FeatureFlags(supports_get_partitioned_metadata_without_auto_creation=True)


class HandshakeState(Enum):
    """How far a connection has come."""

    START = auto()
    VERIFYING = auto()
    CHALLENGED = auto()
    CONNECTED = auto()
    REFUSED = auto()


_LEGAL: Final[dict[HandshakeState, frozenset[int]]] = {
    HandshakeState.START: frozenset({_Type.CONNECT}),
    HandshakeState.VERIFYING: frozenset(),
    HandshakeState.CHALLENGED: frozenset({_Type.AUTH_RESPONSE}),
    HandshakeState.CONNECTED: CLIENT_COMMANDS - {_Type.CONNECT},
    HandshakeState.REFUSED: frozenset(),
}


@final
class Handshake:
    """The handshake of one connection, broker side."""

    __slots__ = (
        "_state",
        "client_features",
        "client_version",
        "legal",
        "protocol_version",
    )

    def __init__(self) -> None:
        self._enter(HandshakeState.START)
        self.client_version = ""
        self.client_features: frozenset[str] = frozenset()
        self.protocol_version = 0

    def _enter(self, state: HandshakeState) -> None:
        self._state = state
        self.legal = _LEGAL[state]
        """The commands that `check` passes, for the hot path."""

    @property
    def state(self) -> HandshakeState:
        """How far the connection has come."""
        return self._state

    @property
    def connected(self) -> bool:
        """Whether requests are welcome."""
        return self._state is HandshakeState.CONNECTED

    def check(self, kind: int) -> None:
        """Whether a command of this type may come now.

        Raises: RemoteProtocolError: it may not; the state is unchanged.
        """
        if kind in self.legal:
            return
        rule = COMMANDS[kind]
        if rule.sender is Sender.BROKER:
            raise RemoteProtocolError(f"{rule.name} is for brokers to send, and came from a client")
        if self._state is HandshakeState.CONNECTED:
            raise RemoteProtocolError("CONNECT was sent twice")
        if self._state is HandshakeState.CHALLENGED:
            raise RemoteProtocolError(f"{rule.name} was sent before AUTH_RESPONSE")
        if self._state is HandshakeState.VERIFYING:
            raise RemoteProtocolError(f"{rule.name} was sent before the answer to CONNECT")
        if self._state is HandshakeState.REFUSED:
            raise RemoteProtocolError(f"{rule.name} was sent after the credentials were refused")
        raise RemoteProtocolError(f"{rule.name} was sent before CONNECT")

    def on_connect(self, connect: pb.CommandConnect) -> None:
        """Remember what the client says of itself. `accepted`, `verifying` or `challenged` has to
        follow."""
        self.check(_Type.CONNECT)
        self.client_version = connect.client_version
        self.protocol_version = min(max(connect.protocol_version, 0), PROTOCOL_VERSION)
        self.client_features = features_of(connect.feature_flags)

    def verifying(self) -> None:
        """The credentials of CONNECT are looked at. Nothing else may come meanwhile."""
        if self._state is not HandshakeState.START:
            raise LocalProtocolError("credentials are verified once, before CONNECTED")
        self._enter(HandshakeState.VERIFYING)

    def refused(self) -> None:
        """The credentials are refused: nothing more may come."""
        self._enter(HandshakeState.REFUSED)

    def challenged(self) -> None:
        """AUTH_CHALLENGE is sent, and the handshake waits for its answer."""
        if self._state is HandshakeState.CONNECTED:
            raise LocalProtocolError("renewing a credential does not reopen the handshake")
        self._enter(HandshakeState.CHALLENGED)

    def accepted(self) -> None:
        """CONNECTED is sent."""
        if self._state is HandshakeState.CONNECTED:
            raise LocalProtocolError("CONNECTED was sent already")
        self._enter(HandshakeState.CONNECTED)
