"""Patience: which readers wait a moment before their next call, and until when.

Small pieces of input that nobody waits for are read together: a call costs as much as a hundred of
the acknowledgements in it. A reader whose time is over is called together with all whose time is
nearly over. `Readers` has the sockets, and is the only user.

Pure: the time is an argument.

Invariants: `until` is when the first of those who wait is to be called, or earlier. A descriptor
that waits is unreported, and stays so until its next call has been made.
"""

from __future__ import annotations

from math import inf
from typing import final

TOGETHER_SECONDS = 0.005
"""Readers whose times are no further apart are called together."""


@final
class Patience:
    """See the module docstring."""

    __slots__ = ("_unreported", "_waiting", "until")

    def __init__(self) -> None:
        self._waiting: dict[int, float] = {}
        """Descriptors whose next call waits, and until when."""
        self._unreported: set[int] = set()
        """Descriptors whose input is not to be reported."""
        self.until = 0.0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def __bool__(self) -> bool:
        return len(self) > 0

    def is_unreported(self, descriptor: int) -> bool:
        """Whether its input is not to be reported."""
        return descriptor in self._unreported

    def begin(self, descriptor: int, until: float) -> bool:
        """Let its next call wait until then. Returns whether its input was reported until now."""
        if not self._waiting or until < self.until:
            self.until = until
        self._waiting[descriptor] = until
        if descriptor in self._unreported:
            return False
        self._unreported.add(descriptor)
        return True

    def end(self, descriptor: int) -> None:
        """It is called for another reason. Idempotent."""
        self._waiting.pop(descriptor, None)

    def ended(self, now: float) -> list[int]:
        """Those who are to be called, and wait no longer."""
        latest = now + TOGETHER_SECONDS
        first = inf
        found: list[int] = []
        for descriptor, until in self._waiting.items():
            if until <= latest:
                found.append(descriptor)
            else:
                first = min(first, until)
        for descriptor in found:
            del self._waiting[descriptor]
        self.until = first
        return found

    def was_ended(self, descriptor: int) -> bool:
        """Its call has been made. Returns whether its input is to be reported again."""
        if descriptor in self._unreported and descriptor not in self._waiting:
            self._unreported.discard(descriptor)
            return True
        return False

    def forget(self, descriptor: int) -> None:
        """It is read no more. Idempotent."""
        self._waiting.pop(descriptor, None)
        self._unreported.discard(descriptor)
