"""Producer names and access modes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from broker.topics.topic.producer_access import ProducerAccess
from broker.topics.topic.producer_request import (
    EXCLUSIVE,
    EXCLUSIVE_WITH_FENCING,
    SHARED,
    WAIT_FOR_EXCLUSIVE,
    ProducerRequest,
)
from protocol.errors import ProducerBusy, ProducerFenced


@dataclass(eq=False)
class Producer:
    """The attributes used here. A compiled `Producer` accepts only a real session."""

    session: str
    request: ProducerRequest

    @property
    def name(self):
        return self.request.name

    @property
    def producer_id(self):
        return self.request.producer_id


def producer(name="p", session="s1", **fields):
    request = ProducerRequest(
        producer_id=fields.pop("producer_id", 1), name=name, user_provided_name=True, **fields
    )
    return Producer(session, request)


def nobody(producer, error):
    raise AssertionError(producer, error)


def test_a_name_is_taken_by_one_producer():
    access = ProducerAccess()
    access.admit(producer())
    with pytest.raises(ProducerBusy, match="'p' is already connected"):
        access.admit(producer(session="s2"))
    with pytest.raises(ProducerBusy):
        access.admit(producer(producer_id=2, epoch=1))
    assert list(access.producers) == ["p"]


def test_the_same_producer_with_a_higher_epoch_replaces_itself():
    access = ProducerAccess()
    old, new = producer(epoch=0), producer(epoch=1)
    access.admit(old)
    access.admit(new)
    assert access.producers["p"] is new
    assert not access.remove(old)
    with pytest.raises(ProducerBusy):
        access.admit(producer(epoch=1))


def test_exclusive_needs_an_empty_topic_and_keeps_others_out():
    access = ProducerAccess()
    shared = producer("shared")
    access.admit(shared)
    with pytest.raises(ProducerFenced, match="existing shared producers"):
        access.admit(producer("e", access_mode=EXCLUSIVE))
    access.remove(shared)
    granted = access.admit(producer("e", access_mode=EXCLUSIVE))
    assert granted.granted
    assert granted.new_epoch == 0
    with pytest.raises(ProducerBusy, match="existing exclusive producer: e"):
        access.admit(producer("other"))
    with pytest.raises(ProducerFenced):
        access.admit(producer("f", access_mode=EXCLUSIVE))


def test_waiting_producers_get_the_topic_in_order():
    access = ProducerAccess()
    holder = producer("h", access_mode=EXCLUSIVE)
    first = producer("w1", access_mode=WAIT_FOR_EXCLUSIVE)
    second = producer("w2", access_mode=WAIT_FOR_EXCLUSIVE)
    access.admit(holder)
    assert not access.admit(first).granted
    assert not access.admit(second).granted
    with pytest.raises(ProducerBusy):
        access.admit(producer("shared", access_mode=SHARED))
    access.remove(holder)
    assert access.promote(nobody) is first
    assert access.promote(nobody) is None
    assert access.epoch == 1
    access.remove(first)
    assert access.promote(nobody) is second


def test_fencing_ends_the_holder_and_everybody_waiting():
    access = ProducerAccess()
    holder = producer("h", access_mode=EXCLUSIVE)
    waiting = producer("w", access_mode=WAIT_FOR_EXCLUSIVE)
    access.admit(holder)
    access.admit(waiting)
    taker = producer("t", access_mode=EXCLUSIVE_WITH_FENCING)
    admission = access.admit(taker)
    assert admission.fenced == (holder,)
    assert admission.fenced_waiting == (waiting,)
    assert admission.new_epoch == 1
    assert access.exclusive is taker
    assert not access.remove(holder)
    with pytest.raises(ProducerFenced):
        access.admit(producer("h", access_mode=EXCLUSIVE, topic_epoch=0))


def test_a_fenced_producer_does_not_come_back_even_when_the_topic_is_free():
    access = ProducerAccess()
    access.admit(producer("h", access_mode=EXCLUSIVE))
    taker = producer("t", access_mode=EXCLUSIVE_WITH_FENCING)
    access.admit(taker)
    access.remove(taker)
    with pytest.raises(ProducerFenced, match="epoch has already moved"):
        access.admit(producer("h", access_mode=EXCLUSIVE, topic_epoch=0))
    again = access.admit(producer("t", access_mode=EXCLUSIVE, topic_epoch=1))
    assert again.new_epoch == 1


@pytest.mark.parametrize("claimed", [2**62 + 1, 2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("mode", [EXCLUSIVE, EXCLUSIVE_WITH_FENCING])
def test_a_claimed_epoch_cannot_make_the_topics_epoch_too_large_to_send(claimed, mode):
    access = ProducerAccess()
    with pytest.raises(ProducerFenced, match="already moved"):
        access.admit(producer(access_mode=mode, topic_epoch=claimed))
    assert access.admit(producer(access_mode=mode)).new_epoch == 0


@pytest.mark.parametrize("epoch", [2**62, 2**63 - 1])
@pytest.mark.parametrize("mode", [EXCLUSIVE, EXCLUSIVE_WITH_FENCING])
def test_producers_after_the_largest_claimed_epoch_keep_the_topic_when_they_return(mode, epoch):
    """2**63 - 1 may be stored: an earlier version granted it."""
    access = ProducerAccess()
    access.admit(producer("first", access_mode=mode, topic_epoch=2**62))
    access.remove(access.exclusive)
    access.epoch = epoch
    for _ in range(3):
        granted = access.admit(producer("p", access_mode=mode)).new_epoch
        assert granted == epoch + 1
        epoch = granted
        access.remove(access.exclusive)
        assert access.admit(producer("p", access_mode=mode, topic_epoch=granted)).granted
        access.remove(access.exclusive)
