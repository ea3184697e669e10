"""Runs checks of schemas beside the event loop: bounded in number, size, steps and time.

A check is pure Python, so it alternates with the loop in using the interpreter. It sleeps for a
moment every few hundred steps, so that a loop with work to do waits for one such stretch, not for
the whole check. It ends by itself at its bound of steps. If its time is over or its client has
gone, it ends at the next pause.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, final

import trio

from broker.tenancy.schemas.avro_schema import AvroError
from broker.tenancy.schemas.budget import Budget, SchemaTooComplex
from broker.tenancy.schemas.schema_info import InvalidSchema
from protocol.errors import BrokerError, IncompatibleSchema, ServiceNotReady

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.ground.config import BrokerConfig

Result = TypeVar("Result")

PAUSE_SECONDS: Final = 0.0002
PROPERTIES_MAX: Final = 4_000
"""About as many as a command may have. All of them are sent with each answer to GET_SCHEMA."""


class _Abandoned(Exception):
    """No caller waits for this check any more."""


@final
class _Raised:
    """The error of a check, as a value and without its tracebacks. These refer to the frames of the
    thread, which refer to the error: everything that the check made would be kept until the next
    full garbage collection."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


def _outcome(check: Callable[[Budget], Result], budget: Budget) -> Result | _Raised:
    try:
        return check(budget)
    except (AvroError, BrokerError, InvalidSchema, SchemaTooComplex, _Abandoned) as error:
        each: BaseException | None = error
        while each is not None:
            each.__traceback__ = None
            each = each.__cause__ or each.__context__
        return _Raised(error)


@final
class SchemaChecker:
    """One per broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._threads = trio.CapacityLimiter(config.schemaCheckThreads)
        self.pending = 0
        """Checks that run or wait for a thread."""

    def use(self, config: BrokerConfig) -> None:
        """Apply another configuration from the next check on."""
        self._config = config
        self._threads.total_tokens = config.schemaCheckThreads

    def check_size(self, size: int) -> None:
        """Raises: IncompatibleSchema: a definition of this many bytes is too large. Properties
        count as part of it: they are kept and sent with it."""
        limit = self._config.schemaMaxSizeBytes
        if size > limit:
            raise IncompatibleSchema(
                f"The schema definition has {size} bytes; schemaMaxSizeBytes allows {limit}"
            )

    def check_properties(self, count: int) -> None:
        """Raises: IncompatibleSchema: a schema with this many properties has too many."""
        if count > PROPERTIES_MAX:
            raise IncompatibleSchema(
                f"The schema has {count} properties, and {PROPERTIES_MAX} are allowed"
            )

    async def run(self, check: Callable[[Budget], Result]) -> Result:
        """The result of a check.

        Raises: the error of the check; IncompatibleSchema: it takes too many steps;
        ServiceNotReady: too many checks are pending, or it took too long.
        """
        if self.pending >= self._config.schemaCheckMaxPending:
            raise ServiceNotReady(
                f"{self.pending} schemas are being checked, which is the bound"
                " (schemaCheckMaxPending); try again"
            )
        self.pending += 1
        try:
            return await self._run(check)
        except SchemaTooComplex as error:
            raise IncompatibleSchema(str(error)) from None
        finally:
            self.pending -= 1

    async def _run(self, check: Callable[[Budget], Result]) -> Result:
        abandoned = [False]

        def pause() -> None:
            if abandoned[0]:
                raise _Abandoned
            time.sleep(PAUSE_SECONDS)

        budget = Budget(self._config.schemaCheckMaxSteps, pause)
        timeout_ms = self._config.schemaCheckTimeoutMillis
        try:
            with trio.move_on_after(timeout_ms / 1000):
                outcome = await trio.to_thread.run_sync(
                    partial(_outcome, check, budget), limiter=self._threads, abandon_on_cancel=True
                )
                if not isinstance(outcome, _Raised):
                    return outcome
                error = outcome.error
                try:
                    raise error
                finally:
                    del error, outcome  # its traceback refers to this frame
        finally:
            abandoned[0] = True
        raise ServiceNotReady(
            f"The schema could not be checked within {timeout_ms} ms"
            " (schemaCheckTimeoutMillis); try again"
        )
