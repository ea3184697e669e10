"""Answers to bytes and back: grouping into runs, cut anywhere, damaged anywhere."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgers.remote.answers import AddRun, AnswerDecoder
from protocol.bookkeeper import v2
from protocol.bookkeeper.messages import BatchReadResponse, ReadResponse

ADDS = st.tuples(st.just("add"), st.sampled_from([0, 104]), st.integers(0, 2), st.integers(0, 50))
READS = st.tuples(
    st.just("read"), st.sampled_from([0, 2]), st.integers(0, 2), st.binary(max_size=40)
)
BATCHES = st.tuples(st.just("batch"), st.just(0), st.integers(0, 2), st.lists(st.binary()))


def encoded(answer):
    kind, status, ledger_id, rest = answer
    if kind == "add":
        return v2.encode_add_response(status, ledger_id, rest)
    if kind == "read":
        return v2.encode_read_response_head(status, ledger_id, 7, len(rest)) + rest
    return b"".join(v2.encode_batch_read_response(status, ledger_id, 7, 99, rest))


def told(answer):
    kind, status, ledger_id, rest = answer
    if kind == "add":
        return (status, ledger_id, rest)
    if kind == "read":
        return ReadResponse(status, ledger_id, 7, rest)
    return BatchReadResponse(status, ledger_id, 7, 99, tuple(rest))


def flat(answers):
    found = []
    for answer in answers:
        if isinstance(answer, AddRun):
            status, ledger_id, first, count = answer
            found += [(status, ledger_id, entry_id) for entry_id in range(first, first + count)]
        else:
            found.append(answer)
    return found


def pieces(data, cuts):
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(places)]


@given(st.lists(st.one_of(ADDS, READS, BATCHES), max_size=30), st.lists(st.integers(0, 9999)))
def test_answers_are_the_same_however_the_bytes_are_cut(answers, cuts):
    decoder = AnswerDecoder()
    found = []
    for piece in pieces(b"".join(map(encoded, answers)), cuts):
        found += decoder.feed(piece)
    assert decoder.error is None
    assert decoder.pending_size_bytes == 0
    assert flat(found) == [told(answer) for answer in answers]


def test_consecutive_answers_of_a_ledger_are_one_run():
    data = b"".join(v2.encode_add_response(0, 5, entry_id) for entry_id in range(1000))
    data += b"".join(v2.encode_add_response(0, 6, entry_id) for entry_id in range(3))
    data += v2.encode_add_response(104, 6, 3)
    assert AnswerDecoder().feed(data) == [(0, 5, 0, 1000), (0, 6, 0, 3), (104, 6, 3, 1)]


@pytest.mark.parametrize(
    "damaged",
    [
        b"\xff\xff\xff\xff" + bytes(24),
        b"\x7f\x00\x00\x00" + bytes(24),
        bytes(4) + b"more",
        v2.encode_add_response(0, 1, 2)[:4] + bytes(24),
        v2.encode_add_response(77, 1, 2),
        v2.encode_read_response_head(77, 1, 2),
        v2.encode_auth_response("plugin"),
    ],
)
def test_damage_ends_the_decoder_after_the_answers_before_it(damaged):
    decoder = AnswerDecoder()
    good = v2.encode_add_response(0, 1, 1)
    assert decoder.feed(good + damaged) == [(0, 1, 1, 1)]
    assert decoder.error is not None
    assert decoder.feed(good) == []


@given(st.lists(st.one_of(ADDS, READS), min_size=1, max_size=9), st.data())
def test_flipped_bytes_raise_nothing(answers, data):
    received = bytearray(b"".join(map(encoded, answers)))
    for _ in range(3):
        received[data.draw(st.integers(0, len(received) - 1))] ^= data.draw(st.integers(1, 255))
    decoder = AnswerDecoder()
    for piece in pieces(bytes(received), data.draw(st.lists(st.integers(0, 999), max_size=5))):
        decoder.feed(piece)
    assert decoder.pending_size_bytes <= len(received)
