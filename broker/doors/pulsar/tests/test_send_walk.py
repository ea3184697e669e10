"""How many functions lead a message from the socket to the journal."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import broker
from broker.net import session
from broker.net.tests.harness import T, running

ROOT = f"{Path(broker.__file__).parent.parent}/"
OTHERS = ("/tests/", "/.venv/", "/native/")
FUNCTIONS_MAX = 27


class Calls:
    """The calls among functions of this project, in their order: the callers, and who is called."""

    def __init__(self):
        self.made = []

    def __call__(self, frame, event, _):
        name = _name(frame)
        if event == "call" and name:
            callers = []
            while frame := frame.f_back:
                callers.append(_name(frame))
            self.made.append((next(filter(None, callers), ""), name))

    def between(self, first, last):
        called = [name for _, name in self.made]
        end = called.index(last)
        begin = end - called[end::-1].index(first)
        return self.made[begin : end + 1]


def _name(frame):
    """Empty for what is not of this project, for tests, and for what native code may replace."""
    file, name = frame.f_code.co_filename, frame.f_code.co_qualname
    is_own = file.startswith(ROOT) and not any(part in file for part in OTHERS)
    return name if is_own and not frame.f_code.co_name.startswith("<") else ""


@pytest.mark.skipif(not session.__file__.endswith(".py"), reason="compiled code has no frames")
async def test_few_functions_lead_a_message_from_the_socket_to_the_journal():
    """Counted are those that call another one of this project: the others end the walk."""
    async with running() as world:
        connection = await world.connect()
        await connection.producer("t")
        await connection.subscribe("t", permits=10)
        for sequence_id in range(2):
            await connection.publish(sequence_id)
            await connection.expect(T.SEND_RECEIPT)
            await connection.expect(T.MESSAGE)
        calls, before = Calls(), sys.getprofile()
        sys.setprofile(calls)
        try:
            await connection.publish(2)
            await connection.expect(T.SEND_RECEIPT)
        finally:
            sys.setprofile(before)
    walk = calls.between("SocketTransport._on_readable", "Journal.kick")
    inside = {name for _, name in walk}
    callers = sorted(inside & {caller for caller, _ in walk})
    assert "PublishingTopic.publish" in callers
    assert len(callers) <= FUNCTIONS_MAX, "\n".join(callers)
