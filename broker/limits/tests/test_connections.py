"""The state shared by all connections."""

from __future__ import annotations

import trio

from broker.ground.slices import STEPS_PER_SLICE
from broker.ground.turn import Turns
from broker.limits.connection_limits import NetLimits
from broker.limits.connections import DEADLINE_CHECK_SECONDS_MAX, Connections
from runtime.clock import SystemClock


class Steps(trio.abc.Instrument):
    """Counts the checks in each step of a task."""

    def __init__(self):
        self.checks = 0
        self.most = 0

    def before_task_step(self, task):
        self.checks = 0

    def after_task_step(self, task):
        self.most = max(self.most, self.checks)


class Connection:
    remote_address = "/127.0.0.1:1"

    def __init__(self, steps, checked):
        self.steps = steps
        self.checked = checked

    def check_deadlines(self, now):
        self.steps.checks += 1
        self.checked.append(self)


async def test_deadlines_of_many_connections_are_checked_in_slices(autojump_clock):
    connections = Connections(NetLimits(), SystemClock(), Turns())
    steps, checked = Steps(), []
    connections.open.update(Connection(steps, checked) for _ in range(1_000))
    trio.lowlevel.add_instrument(steps)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connections.run)
        await trio.sleep(1.5 * DEADLINE_CHECK_SECONDS_MAX)
        nursery.cancel_scope.cancel()
    assert set(checked) == connections.open
    assert steps.most == STEPS_PER_SLICE
