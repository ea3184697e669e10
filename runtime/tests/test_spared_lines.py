"""Lines about peers are bounded, and it is said how many are missing."""

from __future__ import annotations

import pytest
import structlog

from runtime.spared_lines import LEFT_OUT, LINES_PER_SECOND_MAX, PEER, SparedLines


def written(tested, text="connection refused", count=1, **fields):
    """What is left of so many lines."""
    found = []
    for _ in range(count):
        try:
            found.append(tested(None, "warning", {"event": text, **fields}))
        except structlog.DropEvent:
            continue
    return found


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def tested(clock):
    return SparedLines(lambda: clock[0])


def test_lines_about_peers_are_bounded_in_a_second_and_the_next_says_how_many_are_missing(
    tested, clock
):
    assert len(written(tested, count=1000, peer="a:1")) == LINES_PER_SECOND_MAX
    clock[0] += 0.5
    assert not written(tested, peer="a:1")
    clock[0] += 1
    (line,) = written(tested, peer="a:1")
    assert line == {"event": "connection refused", PEER: "a:1", LEFT_OUT: 981}
    (line,) = written(tested, peer="a:1")
    assert LEFT_OUT not in line


def test_lines_of_other_texts_do_not_count(tested):
    written(tested, count=1000, peer="a:1")
    assert written(tested, "TLS handshake failed", peer="a:1")


def test_what_names_no_peer_is_always_written(tested):
    assert len(written(tested, count=1000, reason="x")) == 1000
