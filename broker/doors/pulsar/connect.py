"""CONNECT, PING, PONG: the handshake and signs of life.

The version agreed on is the smaller of both sides'. Only existing features are announced, because
clients change their requests according to the flags.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import structlog

from broker.net.errors import ConnectionRefused
from protocol import commands
from protocol.connection import PROTOCOL_VERSION, broker_features

if TYPE_CHECKING:
    from broker.doors.pulsar.session import ClientSession
    from protocol import pulsar_api_pb2 as pb
    from protocol.requests import Ping

log = structlog.get_logger()

SERVER_VERSION = "Pulsar Server4.0.8-vela"
"""Clients and tools search this text for Pulsar's name and version."""


def handle_connect(session: ClientSession, body: pb.CommandConnect) -> None:
    """Agree on a version and open the session for all other commands."""
    session.handshake.on_connect(body)
    open_session(session)


def open_session(session: ClientSession) -> None:
    """Answer with CONNECTED."""
    handshake = session.handshake
    handshake.accepted()
    session.connected = True
    session.keep_alive.handshake_done()
    session.send(_connected(handshake.protocol_version, session.limits.message_size_max))
    log.debug(
        "client connected",
        peer=session.peer,
        client=handshake.client_version,
        protocol_version=handshake.protocol_version,
    )


@lru_cache(maxsize=2 * (PROTOCOL_VERSION + 1))
def _connected(protocol_version: int, message_size_max: int) -> bytes:
    """CONNECTED, which is the same for all clients of a version: these often come together."""
    return commands.connected(SERVER_VERSION, protocol_version, message_size_max, broker_features())


def handle_auth_response(session: ClientSession, body: pb.CommandAuthResponse) -> None:
    """No client was challenged, because authentication is off."""
    del session, body
    raise ConnectionRefused("AUTH_RESPONSE without a challenge")


def handle_ping(session: ClientSession, request: Ping) -> None:
    """Answer with PONG."""
    del request
    session.send(commands.pong())


def handle_pong(session: ClientSession, body: pb.CommandPong) -> None:
    """Any byte is a sign of life, and the session has noted it already."""
    del session, body
