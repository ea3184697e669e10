"""How many connections the limit of open files leaves."""

import resource

import pytest

from runtime.open_files import (
    bookie_connections_max,
    bookie_connections_within,
    client_connections_within,
    connections_within,
    http_connections_within,
    not_admitted_within,
)


@pytest.mark.parametrize("limit", [64, 256, 1_024, 4_096, 20_000, 1_048_576])
def test_storage_keeps_most_of_its_files_whoever_connects(limit):
    kept = limit - connections_within(limit)
    left = kept - bookie_connections_within(limit)
    assert left >= kept * 3 // 4
    assert left >= min(limit // 8, 1_024)


@pytest.mark.parametrize("limit", [64, 256, 512, 1_024, 4_096, 20_000, 1_048_576])
def test_connections_that_are_turned_away_leave_storage_half_of_its_files(limit):
    """Up to 228 were open at once beside those admitted. Under a limit of 512, of which 128 are
    kept for storage, a storm of connections ended the broker: it could not create a file."""
    kept = limit - connections_within(limit)
    not_admitted = not_admitted_within(limit)
    assert not_admitted >= 1
    # Of two protocols: accepted in one turn, and being told the reason.
    assert 4 * not_admitted <= max(4, kept // 4)
    assert kept - 4 * not_admitted - bookie_connections_within(limit) >= min(kept // 2, kept - 8)


@pytest.mark.parametrize("limit", [64, 256, 1_024, 4_096, 20_000, 1_048_576])
@pytest.mark.parametrize("configured", [0, 10, 2_048, 1_000_000])
def test_http_and_the_binary_protocol_together_leave_storage_its_files(limit, configured):
    http = http_connections_within(limit, configured)
    clients = client_connections_within(limit, configured)
    assert http >= 1
    assert clients >= connections_within(limit) * 7 // 8
    assert http + clients <= connections_within(limit)


def test_as_many_readers_of_the_bookie_as_configured_where_there_are_files():
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 1 <= bookie_connections_max(1) <= 1
    if soft == resource.RLIM_INFINITY or soft >= 8_192:
        assert bookie_connections_max(256) == 256
