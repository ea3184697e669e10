"""Deduplication: nothing lost, nothing stored twice."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.topics.topic.dedup import NAMES_BYTES_MAX, Deduplication, Verdict


def deduplication(snapshot=None, names_max=10_000, live=()):
    return Deduplication(snapshot or {}, 0.0, names_max, live)


def publish(dedup, name, number, now):
    """A message that is stored at once."""
    assert dedup.judge(name, number, now) is Verdict.NEW
    dedup.persisted(name, number)


def test_a_message_seen_before_is_a_duplicate_once_durable():
    dedup = deduplication()
    assert dedup.judge("p", 1, 0.0) is Verdict.NEW
    assert dedup.judge("p", 1, 0.0) is Verdict.IN_FLIGHT
    dedup.persisted("p", 1)
    assert dedup.judge("p", 1, 0.0) is Verdict.DUPLICATE
    assert dedup.last_sequence_id("p") == 1
    assert dedup.last_sequence_id("other") == -1


def test_ids_that_cannot_be_stored_take_no_part():
    dedup = deduplication()
    for number in (2**63, 2**64 - 1):
        assert dedup.judge("p", number, 0.0) is Verdict.NEW
        assert dedup.persisted("p", number) == []
        dedup.replay("p", number, 0.0)
    assert dedup.judge("p", 1, 0.0) is Verdict.NEW
    assert dedup.judge("p", 2**63 - 1, 0.0) is Verdict.NEW
    assert max(dedup.snapshot().values()) < 2**63


def names_bytes(dedup):
    return sum(len(name.encode()) for name in dedup._by_name)


def test_names_are_bounded_in_number_and_those_seen_longest_ago_are_forgotten():
    dedup = deduplication(names_max=100, live={"live"})
    publish(dedup, "live", 7, 0.0)
    for number in range(1_500):
        publish(dedup, f"p{number}", 5, 1.0 + number)
        assert len(dedup) <= 101  # the message in flight is not forgotten
    assert dedup.last_sequence_id("live") == 7
    assert dedup.last_sequence_id("p1499") == dedup.last_sequence_id("p1450") == 5
    assert dedup.last_sequence_id("p0") == -1
    assert len(dedup.snapshot()) <= 100


def test_names_are_bounded_in_bytes_and_the_usual_ones_stay():
    """A producer's name may have megabytes, and a snapshot is one entry."""
    dedup = deduplication({f"usual {number}": 1 for number in range(1_000)})
    for number in range(100):
        name = f"{number} " + "é" * 50_000
        publish(dedup, name, number, 1.0 + number)
        assert names_bytes(dedup) <= NAMES_BYTES_MAX + len(name.encode())
    stored = dedup.snapshot()
    assert sum(len(name.encode()) for name in stored) <= NAMES_BYTES_MAX
    assert all(f"usual {number}" in stored for number in range(1_000))


def test_what_is_restored_is_bounded_too():
    dedup = deduplication({f"p{number}": 1 for number in range(500)}, names_max=100)
    assert len(dedup) <= 100
    for number in range(500):
        dedup.replay(f"later{number}", 1, 1.0 + number)
    assert len(dedup) <= 100
    assert dedup.last_sequence_id("later499") == 1


def test_a_name_with_a_message_in_flight_is_not_forgotten():
    dedup = deduplication(names_max=10)
    for number in range(50):
        assert dedup.judge(f"p{number}", 5, float(number)) is Verdict.NEW
    for number in range(50):
        assert dedup.judge(f"p{number}", 5, 60.0) is Verdict.IN_FLIGHT
        dedup.persisted(f"p{number}", 5)
    dedup.forget_inactive(0.0)
    assert len(dedup) <= 10


def test_a_name_that_no_snapshot_holds_drives_out_no_other():
    dedup = deduplication({"honest": 7})
    publish(dedup, "x" * (NAMES_BYTES_MAX + 1), 1, 1.0)
    assert dedup.snapshot() == {"honest": 7}


def test_pulsar_5218_a_failed_message_may_be_sent_again():
    dedup = deduplication({"p": 4})
    assert dedup.judge("p", 5, 0.0) is Verdict.NEW
    assert dedup.judge("p", 6, 0.0) is Verdict.NEW
    assert dedup.failed("p") == []
    assert dedup.judge("p", 5, 0.0) is Verdict.NEW
    assert dedup.judge("p", 6, 0.0) is Verdict.NEW


def test_pulsar_21892_a_copy_of_a_message_in_flight_is_answered_with_it():
    dedup = deduplication()
    dedup.judge("p", 1, 0.0)
    dedup.judge("p", 2, 0.0)
    for number in (1, 2):
        assert dedup.judge("p", number, 0.0) is Verdict.IN_FLIGHT
        dedup.park("p", number, f"answer {number}")
    assert dedup.persisted("p", 1) == ["answer 1"]
    assert dedup.persisted("p", 2) == ["answer 2"]


def test_copies_sent_by_a_second_return_do_not_wait_for_those_of_the_first():
    dedup = deduplication()
    for number in (1, 2, 3):
        dedup.judge("p", number, 0.0)
    for number in (1, 2, 3):
        dedup.park("p", number, f"first {number}")
    dedup.park("p", 1, "second 1")
    assert dedup.persisted("p", 1) == ["first 1", "second 1"]
    dedup.park("p", 2, "second 2")
    assert dedup.persisted("p", 2) == ["first 2", "second 2"]
    assert dedup.failed("p") == ["first 3"]


def test_copies_of_a_message_that_failed_are_refused():
    dedup = deduplication()
    dedup.judge("p", 1, 0.0)
    dedup.park("p", 1, "answer")
    assert dedup.failed("p") == ["answer"]
    assert dedup.persisted("p", 0) == []


def test_pulsar_6273_a_batch_seen_in_part_is_stored():
    dedup = deduplication({"p": 4})
    assert dedup.judge("p", 6, 0.0) is Verdict.NEW
    dedup.persisted("p", 6)
    assert dedup.judge("p", 6, 0.0) is Verdict.DUPLICATE


def test_a_message_that_was_never_judged_does_not_count():
    dedup = deduplication()
    assert dedup.persisted("p", 7) == []
    assert dedup.judge("p", 7, 0.0) is Verdict.NEW
    dedup.persisted("p", 7)
    assert dedup.judge("p", 7, 0.0) is Verdict.DUPLICATE


def test_a_chunk_before_the_last_is_judged_by_what_is_known_and_changes_nothing():
    dedup = deduplication()
    assert dedup.judge_part("p", 7) is dedup.judge_part("p", 7) is Verdict.NEW
    assert dedup.judge("p", 7, 0.0) is Verdict.NEW
    assert dedup.judge_part("p", 7) is Verdict.IN_FLIGHT
    assert dedup.judge_part("p", 2**63) is Verdict.NEW
    dedup.persisted("p", 7)
    assert dedup.judge_part("p", 7) is Verdict.DUPLICATE
    assert dedup.judge_part("p", 8) is Verdict.NEW


def test_names_without_a_producer_are_forgotten_after_a_time():
    dedup = deduplication(live={"p0"})
    for number in range(10):
        dedup.judge(f"p{number}", 5, float(number))
        dedup.persisted(f"p{number}", 5)
    assert dedup.forget_inactive(8.0) == 7
    assert dedup.last_sequence_id("p0") == 5
    assert dedup.last_sequence_id("p1") == -1


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 8), st.sampled_from(("send", "fail"))),
        max_size=60,
    ),
    st.integers(0, 5),
)
def test_what_is_stored_is_stored_once_and_what_is_answered_is_stored(steps, delay):
    """Sends in any order, storage that lags by `delay` messages and sometimes fails."""
    dedup = deduplication()
    stored: list[tuple[str, int]] = []
    waiting: list[tuple[str, int]] = []
    for name, number, what in steps:
        if what == "fail":
            for each in {name for name, _ in waiting}:
                dedup.failed(each)
            waiting.clear()
            continue
        verdict = dedup.judge(name, number, 0.0)
        if verdict is Verdict.NEW:
            waiting.append((name, number))
        elif verdict is Verdict.DUPLICATE:
            assert any(known == name and kept >= number for known, kept in stored)
        while len(waiting) > delay:
            done = waiting.pop(0)
            dedup.persisted(*done)
            stored.append(done)
    assert len(stored) == len(set(stored))
