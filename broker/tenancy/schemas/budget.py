"""Bounds the work of one check of a schema. Pure.

Work is counted in steps: one type, field or symbol examined. A count is the same on a busy and on
an idle machine, so a schema that is refused as too complex is always refused. The caller of the
check defines an action for every `STEPS_PER_PAUSE` steps: to yield to the event loop, or to end a
check whose result is no longer needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS_PER_PAUSE: Final = 500
STEPS_MAX_DEFAULT: Final = 1_000_000


class SchemaTooComplex(Exception):
    """The check needs more steps than allowed. The text gives the limit."""


@final
class Budget:
    """The remaining steps."""

    __slots__ = ("_next_pause", "_pause", "_steps_max", "steps")

    def __init__(
        self, steps_max: int = STEPS_MAX_DEFAULT, pause: Callable[[], None] | None = None
    ) -> None:
        self._steps_max = steps_max
        self._pause = pause
        self._next_pause = min(STEPS_PER_PAUSE, steps_max + 1)
        self.steps = 0
        """Steps taken so far."""

    def fresh(self) -> Budget:
        """A separate, equal and unspent budget, for the next of many definitions."""
        return Budget(self._steps_max, self._pause)

    def spend(self, steps: int = 1) -> None:
        """Take steps.

        Raises: SchemaTooComplex; any error of the pause.
        """
        self.steps += steps
        if self.steps < self._next_pause:
            return
        if self.steps > self._steps_max:
            raise SchemaTooComplex(
                "The schema is too complex: to check it takes more than "
                f"{self._steps_max} steps (schemaCheckMaxSteps)"
            )
        self._next_pause = min(self.steps + STEPS_PER_PAUSE, self._steps_max + 1)
        if self._pause is not None:
            self._pause()
