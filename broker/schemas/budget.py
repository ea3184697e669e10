"""How much work one check of a schema may be. Pure.

Work is counted in steps: one type, field or symbol looked at. A count is the same on a busy and on
an idle machine, so a schema that is refused as too complex is always refused. Whoever runs the
check says what happens every `STEPS_PER_PAUSE` steps: to give way to the event loop, or to end a
check that nobody waits for any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS_PER_PAUSE: Final = 500
STEPS_MAX_DEFAULT: Final = 1_000_000


class SchemaTooComplex(Exception):
    """The check needs more steps than it may take; the text says how many it may."""


@final
class Budget:
    """The steps that are left."""

    __slots__ = ("_next_pause", "_pause", "_steps_max", "steps")

    def __init__(
        self, steps_max: int = STEPS_MAX_DEFAULT, pause: Callable[[], None] | None = None
    ) -> None:
        self._steps_max = steps_max
        self._pause = pause
        self._next_pause = min(STEPS_PER_PAUSE, steps_max + 1)
        self.steps = 0
        """Taken so far."""

    def fresh(self) -> Budget:
        """A budget of its own, equal and unspent, for the next of many definitions."""
        return Budget(self._steps_max, self._pause)

    def spend(self, steps: int = 1) -> None:
        """Take steps.

        Raises: SchemaTooComplex; and whatever the pause raises.
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
