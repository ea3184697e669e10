"""0 in a limit means what it means in Pulsar and BookKeeper: mostly no limit, never "nothing"."""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated, get_args, get_origin, get_type_hints

import pulsar
import trio

from bookie.config import BookieConfig
from bookie.reader import EntryReader
from broker.assembly.app import running_broker
from broker.configuration.config_file import build_config
from broker.ground.config import BrokerConfig
from broker.limits.connection_limits import limits_from
from broker.managed_ledger.config import ManagedLedgerConfig
from broker.topics.subscription.config import SubscriptionConfig
from settings.kinds import Limit
from settings.reading import ConfigError, Setting

PORTS = {"brokerServicePort", "webServicePort", "bookiePort"}
TAKES_NOTHING = {"backlogQuotaDefaultLimitBytes"}
"""A quota of 0 has no room for a message, in Pulsar as well: -1 is none."""


@cache
def keys_that_take(value: str) -> frozenset[str]:
    taken = set()
    for key in BrokerConfig.__dataclass_fields__:
        try:
            build_config([Setting(key, value, "test")], {})
        except ConfigError:
            continue
        if key not in PORTS | TAKES_NOTHING and isinstance(
            getattr(BrokerConfig(), key), int | float
        ):
            taken.add(key)
    return frozenset(taken) - {
        key for key, hint in get_type_hints(BrokerConfig).items() if hint is bool
    }


def all_zero() -> BrokerConfig:
    """Every number that may be 0 is 0."""
    settings = [Setting(key, "0", "test") for key in sorted(keys_that_take("0"))]
    return build_config(settings, {"brokerServicePort": 0, "webServicePort": 0}).config


def publish_and_receive(url: str) -> list[bytes]:
    client = pulsar.Client(url)
    try:
        consumer = client.subscribe(
            "zeros", "all", consumer_type=pulsar.ConsumerType.Shared, receiver_queue_size=10
        )
        producer = client.create_producer("zeros", producer_name="one")
        for number in range(50):
            producer.send_async(b"%d" % number, lambda *_: None)
        producer.flush()
        received = []
        for _ in range(50):
            message = consumer.receive(timeout_millis=60_000)
            consumer.acknowledge(message)
            received.append(message.data())
        return received
    finally:
        client.close()


async def test_a_broker_whose_numbers_are_all_zero_serves_its_clients(tmp_path):
    config = all_zero()
    assert config.maxMessagePublishBufferSizeInMB == 0
    assert config.maxPendingReadRequestsPerThread == 0
    for directory in (None, tmp_path):
        with trio.fail_after(120):
            async with running_broker(config, directory) as broker:
                url = broker.broker_service_url
                received = await trio.to_thread.run_sync(publish_and_receive, url)
        assert received == [b"%d" % number for number in range(50)]


def test_every_limit_takes_zero_and_less():
    hints = get_type_hints(BrokerConfig, include_extras=True)
    limits = {
        key
        for key, hint in hints.items()
        if get_origin(hint) is Annotated and isinstance(get_args(hint)[1], Limit)
    }
    assert limits <= keys_that_take("0")
    assert limits <= keys_that_take("-1")


def test_no_limit_of_connections_is_below_what_is_there():
    limits = limits_from(all_zero())
    assert limits.keep_alive_seconds == math.inf
    assert limits.pending_publishes_max > 10**9
    assert limits.broker_publish_bytes_max > 10**15


def test_managed_ledgers_of_a_broker_with_zeros():
    config = ManagedLedgerConfig.from_broker_config(all_zero())
    assert config.max_entries_per_ledger == 1, "a ledger is full after each entry"
    assert config.retention_check_interval_s == math.inf
    slow = BrokerConfig(
        managedLedgerMinLedgerRolloverTimeMinutes=10, managedLedgerMaxLedgerRolloverTimeMinutes=0
    )
    assert ManagedLedgerConfig.from_broker_config(slow).max_rollover_time_s == 600


def test_a_read_of_no_bytes_is_a_read_of_one_entry_and_minus_one_is_no_limit():
    assert SubscriptionConfig.from_broker_config(all_zero()).dispatcher_max_read_size_bytes == 1
    config = BrokerConfig(dispatcherMaxReadSizeBytes=-1)
    assert SubscriptionConfig.from_broker_config(config).dispatcher_max_read_size_bytes > 10**15


def test_reads_wait_without_limit_and_still_have_a_thread():
    reader = EntryReader(
        BookieConfig(maxPendingReadRequestsPerThread=0, numReadWorkerThreads=0), {}
    )
    assert reader.has_room
