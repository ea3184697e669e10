"""The checks of broadcast consumers find what they are for: a good history is altered in one way,
and that is found."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.cluster_faults.broadcast_checks import (
    ConsumerHistory,
    Place,
    again_of,
    check_consumer,
    check_kept,
    earliest_held,
    lacking_of,
    last_receipt,
)

LOG: list[Place] = [(7, 0), (7, 1), (7, 2), (9, 0), (9, 1), (12, 0)]


@st.composite
def histories(draw) -> tuple[ConsumerHistory, list[Place]]:
    """Stays of a consumer that acknowledges some of what comes. Brokers forget some of that, and
    deliver the rest in order, for as long as the stay lasts; the last one lasts to the end."""
    log = sorted(
        draw(st.sets(st.tuples(st.integers(3, 6), st.integers(0, 9)), min_size=2, max_size=20))
    )
    made = ConsumerHistory("c")
    stays = draw(st.integers(1, 4))
    for number in range(stays):
        acknowledged = [place for place in log if place in made.acknowledged]
        kept = set(draw(st.lists(st.sampled_from(acknowledged)))) if acknowledged else set()
        to_come = [place for place in log if place not in kept]
        if number < stays - 1:
            to_come = to_come[: draw(st.integers(0, len(to_come)))]
        made.stays.append(to_come)
        for place in to_come:
            if draw(st.booleans()):
                made.acknowledged.setdefault(place, number)
                if draw(st.booleans()):
                    made.receipts.setdefault(place, number)
    return made, log


def found(history: ConsumerHistory, log: list[Place], *, is_over: bool = True) -> str:
    return "\n".join(check_consumer(history, log, is_over=is_over))


@given(histories())
def test_a_good_history_is_good(given_: tuple[ConsumerHistory, list[Place]]) -> None:
    history, log = given_
    assert found(history, log) == ""
    assert lacking_of(history, log) == []


@given(histories(), st.data())
def test_a_message_that_was_not_acknowledged_and_does_not_come_is_found(
    given_: tuple[ConsumerHistory, list[Place]], data: st.DataObject
) -> None:
    history, log = given_
    number = data.draw(st.integers(0, len(history.stays) - 1))
    stay = history.stays[number]
    owed = [each for each in stay[:-1] if history.acknowledged.get(each, number) >= number]
    assume(owed)
    lost = data.draw(st.sampled_from(owed))
    stay.remove(lost)
    word = "RESUMED LATE" if lost < stay[0] else "SKIPPED"
    assert f"{word}: " in found(history, log)
    assert str(lost) in found(history, log)


@given(histories(), st.data())
def test_a_message_that_comes_twice_or_too_late_in_a_stay_is_found(
    given_: tuple[ConsumerHistory, list[Place]], data: st.DataObject
) -> None:
    history, log = given_
    stay = data.draw(st.sampled_from(history.stays))
    assume(stay)
    place = data.draw(st.integers(0, len(stay) - 1))
    later = data.draw(st.integers(place, len(stay) - 1))
    stay.insert(later + 1, stay[place])
    assert ("DOUBLED" if later == place else "REORDERED") in found(history, log)


def test_a_consumer_resumes_at_or_before_its_last_acknowledgement() -> None:
    """Acknowledged are the first three. The next stay may begin with any of them or with the one
    after them, and not later."""
    for first in range(len(LOG)):
        history = ConsumerHistory("c", [LOG[:4], LOG[first:]], dict.fromkeys(LOG[:3], 0))
        history.receipts |= dict.fromkeys(LOG[:2], 0)
        assert ("RESUMED LATE" in found(history, LOG)) == (first > 3), first
    assert last_receipt(history, 1) == LOG[1]
    assert last_receipt(history, 0) is None


def test_an_acknowledgement_of_the_same_stay_excuses_nothing() -> None:
    history = ConsumerHistory("c", [LOG[:2], LOG[2:]], {LOG[0]: 0, LOG[1]: 1})
    assert "RESUMED LATE: stay 1 begins at (7, 2), and (7, 1)" in found(history, LOG)


def test_only_holes_may_come_after_what_was_acknowledged() -> None:
    acknowledged = {place: 0 for place in LOG if place != LOG[1]}
    assert found(ConsumerHistory("c", [LOG, [LOG[1]]], acknowledged), LOG) == ""
    assert "NOT DELIVERED" in found(ConsumerHistory("c", [LOG, []], acknowledged), LOG)
    assert "RESUMED LATE" in found(ConsumerHistory("c", [LOG, LOG[2:]], acknowledged), LOG)


def test_the_end_is_owed_in_the_last_stay_only() -> None:
    cut = ConsumerHistory("c", [LOG[:2], LOG[:3]])
    assert "NOT DELIVERED: (9, 0) in the last stay (3 such)" in found(cut, LOG)
    assert found(cut, LOG, is_over=False) == ""
    assert found(ConsumerHistory("c", [LOG[:2], LOG]), LOG) == ""
    assert "NOT DELIVERED" in found(ConsumerHistory("c"), LOG)


def test_a_receipt_is_owed_for_what_was_acknowledged_in_the_last_stay() -> None:
    history = ConsumerHistory("c")
    history.begin_stay()
    history.stays[0] += LOG[:3]
    history.ask(LOG[0])
    history.ask(LOG[1])
    assert history.unanswered == {LOG[0], LOG[1]}
    history.answer(LOG[0])
    assert history.unanswered == {LOG[1]}
    history.answer(LOG[1])
    assert not history.unanswered


def test_no_receipt_is_owed_for_an_acknowledgement_that_took_effect_after_its_stay() -> None:
    """A broker that was stopped finds it in its sockets when the consumer has left. It takes
    effect, and there is nobody to answer."""
    history = ConsumerHistory("c")
    history.begin_stay()
    history.stays[0] += LOG[:2]
    history.ask(LOG[0])
    history.ask(LOG[1])
    history.begin_stay()
    history.stays[1] += LOG[2:]
    for place in LOG[2:]:
        history.ask(place)
        history.answer(place)
    assert found(history, LOG) == ""
    assert not history.unanswered
    assert history.receipts.keys() == set(LOG[2:])


def test_what_comes_again_after_its_receipt_is_owed_another_one() -> None:
    history = ConsumerHistory("c")
    for _ in range(2):
        history.begin_stay()
        history.stays[-1].append(LOG[0])
        history.ask(LOG[0])
        assert history.unanswered == {LOG[0]}
        history.answer(LOG[0])
        assert not history.unanswered
    assert (history.acknowledged, history.receipts) == ({LOG[0]: 0}, {LOG[0]: 0})


def test_what_the_topic_does_not_hold_is_found() -> None:
    assert "INVENTED: (8, 3) in stay 0" in found(
        ConsumerHistory("c", [[*LOG[:3], (8, 3), *LOG[3:]]]), LOG
    )


def test_what_comes_again_after_its_receipt_is_counted() -> None:
    history = ConsumerHistory("c", [LOG[:4], LOG[1:]], dict.fromkeys(LOG[:3], 0))
    history.receipts |= dict.fromkeys(LOG[:2], 0)
    assert again_of(history) == 1
    assert found(history, LOG) == ""


def test_the_earliest_message_that_is_held_is_the_first_that_was_not_acknowledged() -> None:
    history = ConsumerHistory("c", [LOG], {LOG[0]: 0, LOG[2]: 0})
    assert earliest_held(history, LOG) == LOG[1]
    assert check_kept(LOG[0], [history], LOG) == []
    everything = ConsumerHistory("all", [LOG], dict.fromkeys(LOG, 0))
    assert earliest_held(everything, LOG) is None
    (sentence,) = check_kept(LOG[1], [everything, history], LOG)
    assert sentence.startswith("NOT KEPT: c has not acknowledged (7, 1)")
