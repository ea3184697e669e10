"""Handles each kind of frame that a client sends.

`ON_FRAME` has a function for each kind that `RequestDecoder` makes, except for SENDs: the owner of
the commands adds their handlers (`broker.net.attached.Commands`). Those for requests look up the
handler of the request's type, and all of them call it in one place (`_handle`): there its failure
becomes an answer, and the rest of its work a task of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.net.errors import ConnectionRefused, Held
from protocol import pulsar_api_pb2 as pb
from protocol.connection import COMMANDS
from protocol.long_commands import LongCommand
from protocol.plain_acks import PlainAck
from protocol.requests import (
    CloseConsumer,
    Flow,
    Lookup,
    ParsedRequest,
    Partitions,
    Ping,
    Subscribe,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from broker.net.session import AnySession
    from protocol.requests import Request

_ACK: Final = int(pb.BaseCommand.ACK)


def _on_long_command(session: AnySession, command: LongCommand) -> bool:
    session.put_first(command.parts())
    return True


def _on_part_done(session: AnySession, _: None) -> bool:
    del session
    return True


def _on_parsed(session: AnySession, request: ParsedRequest) -> bool:
    kind = request.kind
    _handle(session, kind, session.handlers.get(kind), request, request.body)
    return False


def _on_request(session: AnySession, request: Request) -> bool:
    kind = request.kind
    _handle(session, kind, session.handlers.get(kind), request, request)
    return False


def _on_plain_ack(session: AnySession, ack: PlainAck) -> bool:
    _handle(session, _ACK, session.handle_plain_ack, ack, ack)
    return False


def _handle(
    session: AnySession,
    kind: int,
    handler: Callable[[Any, Any], Coroutine[Any, Any, None] | None] | None,
    frame: Request | PlainAck,
    body: Any,  # noqa: ANN401 - what the handler of this kind takes
) -> None:
    session.last_kind = kind
    if kind not in session.handshake.legal:
        session.handshake.check(kind)
    if handler is None:
        raise ConnectionRefused(f"{COMMANDS[kind].name} cannot be served")
    try:
        rest = handler(session, body)
    except ConnectionRefused:
        raise
    except Held as held:
        session.hold(frame, held.until)
        raise
    except Exception as error:
        session.refuse(frame.command(), error)
        return
    if rest is not None:
        session.start_rest(frame.command(), rest)


ON_FRAME: Final[Mapping[type, Callable[[Any, Any], bool]]] = {
    PlainAck: _on_plain_ack,
    LongCommand: _on_long_command,
    type(None): _on_part_done,
    ParsedRequest: _on_parsed,
    CloseConsumer: _on_request,
    Flow: _on_request,
    Lookup: _on_request,
    Partitions: _on_request,
    Ping: _on_request,
    Subscribe: _on_request,
}
"""By kind of frame; None follows a part of a long command. Each is called with the session and the
frame, and returns whether the turn ends after it.

Raises: ConnectionRefused, RemoteProtocolError: the connection ends. Held: so does the turn.
"""
