"""Whom the limits of a topic let in."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from broker.ground.config import DEFAULT_CONFIG
from broker.tenancy.policies.effective import resolve
from broker.tenancy.policies.record import Policies
from broker.topics.topic.admission import check_consumers, check_producers, host_of
from protocol.errors import BrokerError, ServerError

POLICIES = resolve(DEFAULT_CONFIG, Policies({}))
LIMITED = replace(
    DEFAULT_CONFIG, maxSameAddressProducersPerTopic=2, maxSameAddressConsumersPerTopic=2
)
HERE = "/10.0.0.1:1000"
OTHERS = ["/10.0.0.1:1001", "/10.0.0.2:1000", "/10.0.0.1:1002"]


@pytest.mark.parametrize(
    ("check", "code", "text"),
    [
        (
            partial(check_producers, "t"),
            ServerError.ProducerBusy,
            "Topic 't' reached max same address producers limit",
        ),
        (
            check_consumers,
            ServerError.ConsumerBusy,
            "Topic reached max same address consumers limit",
        ),
    ],
)
def test_an_address_may_have_so_many(check, code, text):
    check(POLICIES, LIMITED, HERE, 2, lambda: OTHERS[:2])
    check(POLICIES, LIMITED, "/10.0.0.3:1", 3, lambda: OTHERS)
    check(POLICIES, DEFAULT_CONFIG, HERE, 3, lambda: OTHERS)
    with pytest.raises(BrokerError, match=text) as refused:
        check(POLICIES, LIMITED, HERE, 3, lambda: OTHERS)
    assert refused.value.server_error == code


def test_without_such_a_limit_no_address_is_looked_at():
    def addresses():
        raise AssertionError

    check_producers("t", POLICIES, DEFAULT_CONFIG, HERE, 9, addresses)
    check_consumers(POLICIES, DEFAULT_CONFIG, HERE, 9, addresses)


def test_the_host_of_an_address_of_either_kind():
    assert host_of("/10.0.0.1:1000") == "/10.0.0.1"
    assert host_of("/::1:1000") == "/::1"
