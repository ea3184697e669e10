"""Lost, duplicated and out of order, against a model that remembers everything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cli.perf.deliveries import Deliveries

CONSUMERS = 4
arrivals = st.lists(st.tuples(st.integers(0, CONSUMERS - 1), st.integers(0, 6)), max_size=60)


@given(arrivals)
def test_counts_agree_with_remembering_everything(seen):
    deliveries = Deliveries(CONSUMERS)
    history = [[] for _ in range(CONSUMERS)]
    duplicated = out_of_order = 0
    for consumer, sequence in seen:
        before = history[consumer]
        again = sequence in before
        duplicated += again
        out_of_order += not again and any(other > sequence for other in before)
        before.append(sequence)

        assert deliveries.take([consumer], sequence) == ([consumer] if again else [])

    assert deliveries.duplicated == duplicated
    assert deliveries.out_of_order == out_of_order
    assert deliveries.received == sum(len(set(before)) for before in history)
    assert deliveries.lost(7) == sum(7 - len(set(before)) for before in history)
    assert deliveries.lost(7, frozenset({0, 2})) == sum(
        7 - len(set(history[consumer])) for consumer in (1, 3)
    )


def test_a_consumer_twice_in_one_run_has_a_duplicate():
    deliveries = Deliveries(2)

    assert deliveries.take([0, 1, 0], 0) == [0]
    assert (deliveries.received, deliveries.duplicated) == (2, 1)
