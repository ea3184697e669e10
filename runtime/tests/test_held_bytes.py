"""Which connections are given up when all of them together hold too much."""

from __future__ import annotations

from runtime.held_bytes import HeldBytes


class Connection:
    def __init__(self, since=0.0, moved_at=0.0, *, reading_paused=False):
        self.held_bytes = 0
        self.held_since = since
        self.moved_at = moved_at
        self.reading_paused = reading_paused
        self.given_up = None
        """(bytes, seconds)"""

    def give_up(self, held_bytes, held_seconds):
        self.given_up = held_bytes, held_seconds


def test_the_silent_are_given_up_first_then_the_oldest_and_last_the_paused():
    held = HeldBytes(1000)
    silent = Connection(since=8.0, moved_at=8.5)
    paused = Connection(since=1.0, moved_at=1.0, reading_paused=True)
    old = Connection(since=2.0, moved_at=10.0)
    young = Connection(since=9.9, moved_at=10.0)
    named = {"silent": silent, "paused": paused, "old": old, "young": young}
    for each in named.values():
        held.holds(each, 250, 10.0)
    assert held.held_bytes == 1000
    order = []
    for _ in range(3):
        late = Connection(since=10.0, moved_at=10.0)
        held.holds(late, 250, 10.0)
        order += [name for name, each in named.items() if each.given_up and name not in order]
        held.holds(late, 0, 10.0)
    assert order == ["silent", "old"]
    assert silent.given_up == (250, 2.0)


def test_the_paused_are_given_up_if_nothing_else_is_enough():
    held = HeldBytes(1000)
    paused = [Connection(reading_paused=True) for _ in range(4)]
    for each in paused:
        held.holds(each, 250, 10.0)
    late = Connection(since=10.0, moved_at=10.0)
    held.holds(late, 250, 10.0)
    assert late.given_up
    assert sum(each.given_up is not None for each in paused) == 1
    assert held.held_bytes == 750


def test_among_the_silent_the_longest_is_given_up_first():
    held = HeldBytes(1000)
    long = Connection(since=5.0, moved_at=3.0)
    short = Connection(since=1.0, moved_at=8.0)
    for each in (long, short):
        held.holds(each, 300, 10.0)
    held.holds(Connection(since=10.0, moved_at=10.0), 500, 10.0)
    assert long.given_up
    assert not short.given_up


def test_small_pieces_are_not_given_up_for_large_ones():
    held = HeldBytes(10_000)
    small = [Connection() for _ in range(50)]
    for each in small:
        held.holds(each, 20, 0.0)
    large = [Connection(since=at, moved_at=100.0) for at in range(20)]
    for each in large:
        held.holds(each, 1000, 100.0)
        assert held.held_bytes <= 10_000
    assert not any(each.given_up for each in small)
    assert [bool(each.given_up) for each in large] == [True] * 12 + [False] * 8


def test_one_that_holds_less_than_before_gives_nobody_up():
    held = HeldBytes(1000)
    first, second = Connection(), Connection(since=5.0, moved_at=5.0)
    held.holds(first, 900, 0.0)
    held.bytes_max = 500
    held.holds(first, 800, 0.0)
    assert not first.given_up
    held.holds(second, 300, 5.0)
    assert first.given_up
    assert held.held_bytes == 300


def test_what_is_held_is_the_sum_also_after_the_end():
    held = HeldBytes(10_000)
    connections = [Connection() for _ in range(4)]
    for size in (100, 2000, 300, 0):
        for each in connections:
            held.holds(each, size, 1.0)
        assert held.held_bytes == 4 * size
