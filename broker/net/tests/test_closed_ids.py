"""Which producers a connection remembers as closed by the broker."""

from __future__ import annotations

from broker.net.closed_ids import REMEMBERED_MAX, ClosedIds


def test_the_ids_that_were_closed_last_are_remembered():
    closed = ClosedIds()
    for producer_id in range(REMEMBERED_MAX + 1):
        closed.add(producer_id)
    assert 0 not in closed
    assert all(producer_id in closed for producer_id in range(1, REMEMBERED_MAX + 1))


def test_an_id_that_is_closed_again_is_among_the_last():
    closed = ClosedIds()
    for producer_id in [*range(REMEMBERED_MAX), 0, REMEMBERED_MAX]:
        closed.add(producer_id)
    assert 0 in closed
    assert 1 not in closed


def test_an_id_that_the_client_opens_again_is_forgotten():
    closed = ClosedIds()
    closed.add(7)
    closed.discard(7)
    assert 7 not in closed
