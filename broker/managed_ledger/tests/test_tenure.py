"""Nothing is stored or acknowledged after the session, whether its end was reported or only the
clock says so."""

from __future__ import annotations

import pytest

from broker.managed_ledger.tests.world import World, append, append_and_wait, open_ledger, settle
from metadata.store import SessionState
from protocol.errors import ServerError


def ended(store):
    """The session is reported lost, and the store begins another."""
    store.become(SessionState.LOST)
    store.become(SessionState.LIVE)


def unreported(store):
    """The clock says that the session is over."""
    store.session_state = SessionState.LOST


@pytest.mark.parametrize("end", [ended, unreported])
async def test_what_became_durable_after_the_session_is_not_acknowledged(end, autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await append_and_wait(ledger, b"in time")
        world.bookie.is_holding = True
        append(ledger, b"late")
        await settle()
        end(world.store)
        world.bookie.is_holding = False
        world.bookie.release()
        await settle()
        listener = ledger.listener
        assert listener.contexts == [b"in time"]
        [(context, error)] = listener.failed
        assert context == b"late"
        assert error.server_error == ServerError.ServiceNotReady
        assert listener.fences == 1
        assert ledger.last_confirmed == listener.positions[-1]


@pytest.mark.parametrize("end", [ended, unreported])
async def test_what_arrives_after_the_session_is_not_sent_to_bookies(end, autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        world.bookie.is_holding = True
        end(world.store)
        append(ledger, b"too late")
        await settle()
        assert world.bookie.waiting == 0
        assert [context for context, _ in ledger.listener.failed] == [b"too late"]


async def test_a_doubtful_session_is_still_good_for_what_is_under_way(autojump_clock):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        world.store.become(SessionState.IN_DOUBT)
        await append_and_wait(ledger, b"in time")
        assert not ledger.fenced


async def test_a_topic_opened_under_the_next_session_takes_entries(autojump_clock):
    world = World()
    async with world.broker() as factory:
        await open_ledger(factory)
        ended(world.store)
        other = await open_ledger(factory, "public/default/persistent/other")
        await append_and_wait(other, b"of the next session")
