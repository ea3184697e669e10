"""When a connection is read, and when it is not.

Reading pauses while too many publishes or requests of the connection are in progress, while all
connections together exceed the publish budget, while the peer does not take its answers, and in
front of a message for which a publish rate has no tokens yet (`broker.limits.publish_limit`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from broker.limits.connection_limits import NetLimits
    from broker.limits.publish_budget import PendingPublishes
    from broker.limits.publish_limit import PublishLimit
    from broker.net.outbox import Outbox


class BackPressure:
    """The part of a session that decides whether its peer is read."""

    _limits_passed: int = 0
    """How many limits have admitted the message that waits for the next one."""
    _requests: int = 0
    was_held: bool = False
    """Whether a publish rate held a message since the last look at the credential."""

    def __init__(self, outbox: Outbox, publishes: PendingPublishes, limits: NetLimits) -> None:
        self.outbox = outbox
        self.publishes = publishes
        self.limits = limits
        self._held_by: PublishLimit | None = None
        self._paused: trio.Event | None = None

    def request_begins(self) -> None:
        """A request is in progress outside of this session's tasks; `request_ends` follows."""
        self._requests += 1

    def request_ends(self) -> None:
        """The request no longer waits for anything."""
        self._requests -= 1
        self.resume()

    @property
    def is_held(self) -> bool:
        """Whether a publish rate holds its next message."""
        return self._held_by is not None

    @property
    def reading_paused(self) -> bool:
        """Whether the peer is not read for now (Holder)."""
        return self._paused is not None

    def must_pause(self) -> bool:
        """Whether nothing more may be read for now."""
        limits = self.limits
        return (
            self.publishes.too_many
            or self._requests > limits.pending_requests_max
            or self.outbox.pending_bytes > limits.output_pause_reading_bytes
            or self.outbox.is_too_full_to_read
            or self._held_by is not None
        )

    def _may_resume(self) -> bool:
        limits = self.limits
        return (
            self.publishes.few
            and self._requests <= limits.pending_requests_max // 2
            and self.outbox.pending_bytes <= limits.output_pause_reading_bytes // 2
            and not self.outbox.is_too_full_to_read
            and self._held_by is None
        )

    def admitted_by(self, limits: tuple[PublishLimit, ...], messages: int, size_bytes: int) -> bool:
        """Whether all limits admit the next message. If not, the connection is not read until they
        do, and then asks again for the same message."""
        while self._limits_passed < len(limits):
            limit = limits[self._limits_passed]
            if not limit.admits(self, messages, size_bytes):
                self._held_by = limit
                self.was_held = True
                return False
            self._limits_passed += 1
        self._limits_passed = 0
        return True

    def publish_admitted(self) -> None:
        """The limit that held the next message admits it (PublishingConnection)."""
        self._limits_passed += 1
        self._held_by = None
        self.resume()

    def limits_changed(self) -> None:
        """The limits of a producer are others now: ask them again."""
        if self._held_by is not None:
            self._held_by.forget(self)
            self._held_by = None
            self._limits_passed = 0
            self.resume()

    async def wait_resumed(self) -> None:
        """Return when reading may go on: with room for half of each bound, so that it does not stop
        and go with every answer."""
        self._paused = trio.Event()
        self.publishes.call_when_free(self.resume)
        await self._paused.wait()

    def resume(self) -> None:
        """Some work has finished: resume reading if there is room again."""
        paused = self._paused
        if paused is not None and (self.outbox.failed or self._may_resume()):
            self._paused = None
            paused.set()

    def publish_done(self, count: int, size_bytes: int) -> None:
        """Count messages that have been answered."""
        self.publishes.answered(count, size_bytes)
        if self._paused is not None:
            self.resume()
