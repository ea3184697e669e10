"""Answers of protocol version 3 to WRITE_LAC."""

from __future__ import annotations

import pytest

from ledgers.remote.answers import LacWritten
from ledgers.remote.lac_answers import LacAnswerDecoder
from protocol.bookkeeper import bookkeeper_pb2 as pb
from protocol.bookkeeper import v3
from protocol.bookkeeper.messages import (
    BAD_REQUEST,
    OK,
    READ_ONLY,
    ReadLacResponse,
    WriteLacResponse,
)

STREAM = (
    v3.encode_response(WriteLacResponse(OK, 7, 1))
    + v3.encode_response(WriteLacResponse(READ_ONLY, 7, 2))
    + v3.encode_error_response(pb.WRITE_LAC, BAD_REQUEST, 3)
)
ANSWERS = [LacWritten(OK, 1), LacWritten(READ_ONLY, 2), LacWritten(BAD_REQUEST, 3)]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 17, len(STREAM)])
def test_answers_arrive_in_any_pieces(size):
    decoder = LacAnswerDecoder()
    found = []
    for at in range(0, len(STREAM), size):
        found += decoder.feed(STREAM[at : at + size])
    assert found == ANSWERS
    assert decoder.error is None


@pytest.mark.parametrize(
    "answer",
    [
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"\0\0\0\x04junk",
        b"\0\0\0\0",
        v3.encode_response(ReadLacResponse(OK, 7, 4, b"", b"")),
    ],
)
def test_what_is_no_such_answer_fails_the_decoder(answer):
    decoder = LacAnswerDecoder()
    assert decoder.feed(STREAM + answer) == ANSWERS
    decoder.feed(b"")
    assert decoder.error is not None
    assert decoder.feed(STREAM) == []
