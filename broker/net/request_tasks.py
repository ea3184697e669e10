"""The work that requests leave to tasks, and the handling of failures.

A handler that cannot answer at once returns a coroutine, which runs as a task of the session. Its
failures and those of handlers become an error answer in one place (`refuse`), or end the
connection.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import structlog

from broker.net.back_pressure import BackPressure
from broker.net.errors import ConnectionRefused, refusal_of
from protocol.connection import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    import trio

    from broker.limits.connection_limits import NetLimits
    from broker.limits.publish_budget import PendingPublishes
    from broker.net.outbox import Outbox
    from protocol import pulsar_api_pb2 as pb
    from protocol.plain_acks import PlainAck
    from protocol.request_frames import Frame
    from protocol.requests import Request

log = structlog.get_logger()


class RequestTasks(BackPressure):
    """The part of a session that runs its requests to their end."""

    _refused_silently: bool = False

    def __init__(
        self, outbox: Outbox, publishes: PendingPublishes, limits: NetLimits, peer: str
    ) -> None:
        super().__init__(outbox, publishes, limits)
        self.peer = peer
        self.close_reason = ""
        self.waits = 0
        """See `start_wait`."""
        self._frames: Iterator[Frame | None] = iter(())
        """The slice of the last receive that is being handled."""
        self._nursery: trio.Nursery | None = None
        """The nursery of the session; None: it does not run yet, or no more."""

    def close(self, reason: str) -> None:
        """End the connection now. The reason is logged."""
        if not self.close_reason:
            self.close_reason = reason
            log.warning("closing connection", peer=self.peer, reason=reason)
        self.outbox.fail(reason)

    def put_first(self, frames: Iterator[Frame | None]) -> None:
        """Handle these before the rest of the slice."""
        self._frames = chain(frames, self._frames)

    def hold(self, frame: Request | PlainAck, until: Coroutine[Any, Any, object]) -> None:
        """Handle nothing more until this has ended: reading pauses as with too many requests."""
        assert self._nursery is not None
        self._requests += self.limits.pending_requests_max + 1
        self._nursery.start_soon(self._end_hold, frame, until)

    async def _end_hold(
        self, frame: Request | PlainAck, until: Coroutine[Any, Any, object]
    ) -> None:
        try:
            await until
        except Exception as error:
            self.refuse(frame.command(), error)
        else:
            self.put_first(iter((frame,)))
        finally:
            self._requests -= self.limits.pending_requests_max + 1
            self.resume()

    def start_rest(self, command: pb.BaseCommand, rest: Coroutine[Any, Any, None]) -> None:
        """Run the rest of a command, which will answer it, as a task of this session."""
        assert self._nursery is not None
        self._requests += 1
        self._nursery.start_soon(self._finish_request, command, rest)

    def start_wait(self, command: pb.BaseCommand, rest: Coroutine[Any, Any, None]) -> None:
        """As `start_rest`, for what may wait for other clients as long as they like. It does not
        count as a request in progress, because the connection must be read meanwhile: it may be the
        one that ends the wait. The caller bounds `waits`."""
        assert self._nursery is not None
        self.waits += 1
        self._nursery.start_soon(self._finish_wait, command, rest)

    async def _finish_wait(self, command: pb.BaseCommand, rest: Coroutine[Any, Any, None]) -> None:
        try:
            await rest
        except Exception as error:
            self.refuse(command, error)
        finally:
            self.waits -= 1

    async def _finish_request(
        self, command: pb.BaseCommand, rest: Coroutine[Any, Any, None]
    ) -> None:
        try:
            await rest
        except Exception as error:
            self.refuse(command, error)
        finally:
            self.request_ends()

    def refuse(self, command: pb.BaseCommand, error: Exception) -> None:
        """Answer a command with an error, or end the connection with it."""
        if isinstance(error, ConnectionRefused):
            self.close(str(error))
            return
        answer, reason = refusal_of(command, error)
        if answer is not None:
            self.outbox.append(answer)
        elif not self._refused_silently:
            # Commands without an answer: one line per connection shows the problem.
            self._refused_silently = True
            name = COMMANDS[command.type].name
            log.warning("refused", peer=self.peer, command=name, reason=reason)
