"""A publish rate, held by back-pressure: a connection over it is not read until its turn comes.

No message is refused. The next message of a connection is looked at before it is handled. If there
are no tokens for it, the connection waits in line, first come, first served. When the tokens are
there they are taken for that message, and the connection is told.

A connection that waits is not read at all, so its other producers wait with it, as in Pulsar
(PIP-322). At rest a limit costs no task and no timer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from runtime.token_bucket import TokenBucket

if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime.clock import Clock

BURST_SECONDS: Final = 1.0
"""The tokens of this time may be used at once, as in Pulsar."""
WAIT_SECONDS_MIN: Final = 0.01
"""With a high rate a connection is woken for the tokens of this time, and not for each message."""
WOKEN_AT_ONCE_MAX: Final = 100
"""Connections told before other work has a turn."""


class PublishingConnection(Protocol):
    """A connection with a message."""

    def publish_admitted(self) -> None:
        """The tokens for its next message have been taken."""


@final
class PublishLimit:
    """The connections that publish under one rate: of a topic, or of the whole broker."""

    __slots__ = (
        "_buckets",
        "_clock",
        "_nursery",
        "_pause",
        "_serving",
        "_waiting",
        "bytes_taken",
        "messages_taken",
        "times_held",
    )

    def __init__(
        self,
        messages_per_second: float,
        bytes_per_second: float,
        clock: Clock,
        nursery: Callable[[], trio.Nursery],
    ) -> None:
        """0: no limit of this kind. `nursery` runs the timer."""
        self._buckets: tuple[TokenBucket | None, TokenBucket | None] = (None, None)
        self._pause: trio.CancelScope | None = None
        self._clock = clock
        self._nursery = nursery
        self._waiting: dict[PublishingConnection, tuple[int, int]] = {}
        """With messages and bytes of what each of them publishes next."""
        self._serving = False
        self.times_held = 0
        """How often a connection had to wait."""
        self.messages_taken = 0
        """What passed since the limit was made, as `bytes_taken`."""
        self.bytes_taken = 0
        self.use(messages_per_second, bytes_per_second)

    def use(self, messages_per_second: float, bytes_per_second: float) -> None:
        """Other rates from now on. Those that wait keep their places."""
        now = self._clock.now()
        messages, size_bytes = self._buckets
        self._buckets = (
            _bucket(messages, messages_per_second, now),
            _bucket(size_bytes, bytes_per_second, now),
        )
        if self._pause is not None:
            self._pause.cancel()

    def admits(self, connection: PublishingConnection, messages: int, size_bytes: int) -> bool:
        """Whether a message (or a batch) may be published now; its tokens are then taken. If not,
        the connection is told when they have been."""
        now = self._clock.now()
        amounts = (messages, size_bytes)
        if not self._waiting and self._seconds_until(amounts, now) == 0:
            self._take(amounts, now)
            return True
        self.times_held += 1
        self._waiting[connection] = amounts
        if not self._serving:
            self._serving = True
            self._nursery().start_soon(self._serve)
        return False

    def forget(self, connection: PublishingConnection) -> None:
        """It publishes no more under this rate."""
        self._waiting.pop(connection, None)

    def _seconds_until(self, amounts: tuple[int, int], now: float) -> float:
        longest = 0.0
        for bucket, amount in zip(self._buckets, amounts, strict=True):
            if bucket is not None:
                longest = max(longest, bucket.seconds_until(amount, now))
        return longest

    @property
    def is_holding(self) -> bool:
        """Whether a connection waits."""
        return bool(self._waiting)

    def _take(self, amounts: tuple[int, int], now: float) -> None:
        self.messages_taken += amounts[0]
        self.bytes_taken += amounts[1]
        for bucket, amount in zip(self._buckets, amounts, strict=True):
            if bucket is not None:
                bucket.take(amount, now)

    async def _serve(self) -> None:
        """Tell those that wait, one after the other, until none does."""
        try:
            while self._waiting:
                now = self._clock.now()
                seconds = self._tell(now)
                if self._waiting:
                    with trio.CancelScope() as self._pause:
                        await trio.sleep(max(seconds, WAIT_SECONDS_MIN) if seconds else 0)
        finally:
            self._serving = False
            self._pause = None

    def _tell(self, now: float) -> float:
        """Returns the time until the first of those that are left may be told."""
        for _ in range(WOKEN_AT_ONCE_MAX):
            if not self._waiting:
                break
            connection, amounts = next(iter(self._waiting.items()))
            seconds = self._seconds_until(amounts, now)
            if seconds > 0:
                return seconds
            del self._waiting[connection]
            self._take(amounts, now)
            connection.publish_admitted()
        return 0.0


def _bucket(before: TokenBucket | None, rate: float, now: float) -> TokenBucket | None:
    if rate <= 0:
        return None
    if before is None:
        return TokenBucket(rate, rate * BURST_SECONDS, now)
    before.use(rate, rate * BURST_SECONDS, now)
    return before
