"""A publish rate, held by back-pressure: a connection over it is not read until its turn comes.

No message is refused. The next message of a connection is looked at before it is handled. If there
are no tokens for it, the connection waits in line, first come, first served. When the tokens are
there they are taken for that message, and the connection is notified.

A connection that waits is not read at all, so its other producers wait with it, as in Pulsar
(PIP-322). At rest a limit costs no task and no timer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

from runtime.token_bucket import TokenBucket
from runtime.turn_line import TurnLine

if TYPE_CHECKING:
    from collections.abc import Callable

    import trio

    from runtime.clock import Clock

BURST_SECONDS: Final = 1.0
"""The tokens of this time may be used at once, as in Pulsar."""


class PublishingConnection(Protocol):
    """A connection with a message."""

    def publish_admitted(self) -> None:
        """The tokens for its next message have been taken."""


@final
class PublishLimit:
    """The connections that publish under one rate: of a topic, or of the whole broker."""

    __slots__ = ("_buckets", "_clock", "_line", "bytes_taken", "messages_taken")

    def __init__(
        self,
        messages_per_second: float,
        bytes_per_second: float,
        clock: Clock,
        nursery: Callable[[], trio.Nursery],
    ) -> None:
        """0: no limit of this kind. `nursery` runs the timer."""
        self._buckets: tuple[TokenBucket | None, TokenBucket | None] = (None, None)
        self._clock = clock
        self._line: TurnLine[PublishingConnection, tuple[int, int]] = TurnLine(
            self._seconds_until, self._admit, nursery
        )
        """With messages and bytes of what each of them publishes next."""
        self.messages_taken = 0
        """Messages that passed since the limit was made; `bytes_taken` likewise."""
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
        self._line.look_again()

    @property
    def is_holding(self) -> bool:
        """Whether a connection waits."""
        return bool(self._line)

    @property
    def times_held(self) -> int:
        """How often a connection had to wait."""
        return self._line.joined

    def admits(self, connection: PublishingConnection, messages: int, size_bytes: int) -> bool:
        """Whether a message (or a batch) may be published now; its tokens are then taken. If not,
        the connection is notified when they have been."""
        amounts = (messages, size_bytes)
        if not self._line and self._seconds_until(amounts) == 0:
            self._take(amounts)
            return True
        self._line.join(connection, amounts)
        return False

    def forget(self, connection: PublishingConnection) -> None:
        """It publishes no more under this rate."""
        self._line.forget(connection)

    def _seconds_until(self, amounts: tuple[int, int]) -> float:
        now = self._clock.now()
        longest = 0.0
        for bucket, amount in zip(self._buckets, amounts, strict=True):
            if bucket is not None:
                longest = max(longest, bucket.seconds_until(amount, now))
        return longest

    def _take(self, amounts: tuple[int, int]) -> None:
        now = self._clock.now()
        self.messages_taken += amounts[0]
        self.bytes_taken += amounts[1]
        for bucket, amount in zip(self._buckets, amounts, strict=True):
            if bucket is not None:
                bucket.take(amount, now)

    def _admit(self, connection: PublishingConnection, amounts: tuple[int, int]) -> None:
        self._take(amounts)
        connection.publish_admitted()


def _bucket(before: TokenBucket | None, rate: float, now: float) -> TokenBucket | None:
    if rate <= 0:
        return None
    if before is None:
        return TokenBucket(rate, rate * BURST_SECONDS, now)
    before.use(rate, rate * BURST_SECONDS, now)
    return before
