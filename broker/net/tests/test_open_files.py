"""How many connections the limit of open files leaves."""

import resource

import pytest

from broker.net.open_files import (
    bookie_connections_max,
    bookie_connections_within,
    connections_within,
)


@pytest.mark.parametrize("limit", [64, 256, 1_024, 4_096, 20_000, 1_048_576])
def test_storage_keeps_most_of_its_files_whoever_connects(limit):
    kept = limit - connections_within(limit)
    left = kept - bookie_connections_within(limit)
    assert left >= kept * 3 // 4
    assert left >= min(limit // 8, 1_024)


def test_as_many_readers_of_the_bookie_as_configured_where_there_are_files():
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 1 <= bookie_connections_max(1) <= 1
    if soft == resource.RLIM_INFINITY or soft >= 8_192:
        assert bookie_connections_max(256) == 256
