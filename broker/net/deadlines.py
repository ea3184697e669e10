"""The deadlines of a connection: to give signs of life, take its answers, renew its credential.

Called for each open connection, every few seconds. Pure but for what it puts into the outbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import trio

from broker.net.keep_alive import KeepAliveAction
from protocol import commands
from security.authentication.lease import LeaseAction

if TYPE_CHECKING:
    from broker.limits.connection_limits import NetLimits
    from broker.limits.connections import Connections
    from broker.net.keep_alive import KeepAlive, OutputStall
    from broker.net.outbox import Outbox
    from security.authentication.lease import Lease


class WatchedConnection(Protocol):
    """A session, as its deadlines see it."""

    connections: Connections
    limits: NetLimits
    outbox: Outbox
    keep_alive: KeepAlive
    output_stall: OutputStall
    lease: Lease | None
    was_held: bool
    """Whether a publish rate held it since the last look at its credential."""

    @property
    def is_held(self) -> bool:
        """Whether one holds it now."""

    @property
    def reading_paused(self) -> bool:
        """Whether the peer is not read for now."""

    @property
    def protocol_version(self) -> int:
        """The version agreed on in CONNECTED."""

    def close(self, reason: str) -> None:
        """End the connection now."""


def check_deadlines(session: WatchedConnection, now: float) -> None:
    """Check keep-alive, the handshake deadline and stalled output."""
    outbox, keep_alive = session.outbox, session.keep_alive
    if session.output_stall.check(outbox.pending_bytes, outbox.sent_bytes_total, now):
        session.close(
            f"the peer has taken nothing for {session.limits.output_stall_seconds_max:.0f} s"
            f" while {outbox.pending_bytes} bytes wait for it"
        )
        return
    if session.is_held:
        # The client's own PINGs are not read, and it must not give the broker up.
        if keep_alive.ping_due_while_unread(now):
            outbox.append(commands.ping())
        return
    if session.reading_paused:
        return
    action = keep_alive.check(now)
    if action is KeepAliveAction.SEND_PING:
        outbox.append(commands.ping())
    elif action is KeepAliveAction.CLOSE_SILENT:
        session.close("no sign of life: the keep-alive PING was not answered in time")
    elif action is KeepAliveAction.CLOSE_NO_HANDSHAKE:
        session.close("no CONNECT within the time allowed for the handshake")


def check_credential(session: WatchedConnection, wall_seconds: float, now: float) -> None:
    """Ask for a new credential if this one has expired, or end the connection. Called every
    `authenticationRefreshCheckSeconds`. `wall_seconds` is Unix time, `now` monotonic."""
    lease = session.lease
    if lease is None:
        return
    # While a publish rate holds it, an answer is not read.
    action = lease.check(wall_seconds, now, was_unread=session.was_held)
    session.was_held = session.is_held
    if action is LeaseAction.CHALLENGE:
        method = lease.identity.method
        session.outbox.append(commands.auth_challenge(session.protocol_version, method))
    elif action is LeaseAction.CLOSE_CANNOT_RENEW:
        session.close("the credential has expired, and the client cannot renew it")
    elif action is LeaseAction.CLOSE_NO_ANSWER:
        session.close("the credential has expired, and AUTH_CHALLENGE was not answered in time")


async def is_alive(session: WatchedConnection, timeout_seconds: float) -> bool:
    """Probe the peer, to find out whether the objects of its session are still in use."""
    outbox, keep_alive = session.outbox, session.keep_alive
    if outbox.failed:
        return False
    asked = session.connections.clock.now()
    outbox.append(commands.ping())
    keep_alive.ping_sent(asked)
    deadline = trio.current_time() + timeout_seconds
    while trio.current_time() < deadline:
        await trio.sleep(min(0.05, timeout_seconds))
        if outbox.failed:
            return False
        if session.is_held or keep_alive.received_since(asked):
            return True  # held, its answer is not read: all that can be seen is that it is up
    return False
