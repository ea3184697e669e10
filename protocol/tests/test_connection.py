"""The handshake: what may come when, and what both sides then know of each other."""

from __future__ import annotations

import pytest

from protocol import connection
from protocol import pulsar_api_pb2 as pb
from protocol.connection import COMMANDS, Handshake, HandshakeState, Sender
from protocol.errors import LocalProtocolError, RemoteProtocolError

Type = pb.BaseCommand


def connect(version: int = 21, **flags: bool) -> pb.CommandConnect:
    return pb.CommandConnect(
        client_version="c", protocol_version=version, feature_flags=pb.FeatureFlags(**flags)
    )


def connected() -> Handshake:
    handshake = Handshake()
    handshake.on_connect(connect())
    handshake.accepted()
    return handshake


def test_the_table_has_every_command_and_its_field():
    assert len(COMMANDS) == 58
    for rule in COMMANDS.values():
        assert rule.field in pb.BaseCommand.DESCRIPTOR.fields_by_name
    assert COMMANDS[Type.PARTITIONED_METADATA].field == "partitionMetadata"
    for rule in COMMANDS.values():
        if rule.name.endswith(("_RESPONSE", "_SUCCESS")) and rule.name != "AUTH_RESPONSE":
            assert rule.sender is Sender.BROKER


def test_only_connect_comes_first():
    for kind, rule in COMMANDS.items():
        handshake = Handshake()
        if kind == Type.CONNECT:
            handshake.check(kind)
            continue
        with pytest.raises(RemoteProtocolError, match=rule.name):
            handshake.check(kind)
        assert handshake.state is HandshakeState.START


def test_after_connect_everything_a_client_may_send_and_no_second_connect():
    handshake = connected()
    for kind, rule in COMMANDS.items():
        if rule.sender is Sender.BROKER or kind == Type.CONNECT:
            with pytest.raises(RemoteProtocolError):
                handshake.check(kind)
        else:
            handshake.check(kind)
    assert handshake.connected


def test_a_challenge_waits_for_its_answer():
    handshake = Handshake()
    handshake.on_connect(connect())
    handshake.challenged()
    with pytest.raises(RemoteProtocolError, match="before AUTH_RESPONSE"):
        handshake.check(Type.PRODUCER)
    handshake.check(Type.AUTH_RESPONSE)
    handshake.accepted()
    handshake.check(Type.PRODUCER)
    with pytest.raises(LocalProtocolError):
        handshake.challenged()
    with pytest.raises(LocalProtocolError):
        handshake.accepted()


@pytest.mark.parametrize(("theirs", "spoken"), [(14, 14), (21, 21), (99, 21), (-1, 0)])
def test_the_smaller_version_is_spoken(theirs, spoken):
    handshake = Handshake()
    handshake.on_connect(connect(theirs))
    assert handshake.protocol_version == spoken


def test_features_of_the_client_are_remembered():
    handshake = Handshake()
    handshake.on_connect(connect(supports_auth_refresh=True, supports_topic_watchers=False))
    assert handshake.client_features == {"supports_auth_refresh"}


def test_only_implemented_features_are_claimed():
    assert connection.features_of(connection.broker_features()) == {
        "supports_get_partitioned_metadata_without_auto_creation"
    }
