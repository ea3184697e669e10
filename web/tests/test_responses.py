"""The heads and bodies of answers, as clients have always seen them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from web.responses import JSON, TEXT, Response, json_response


async def sent(response: Response) -> list[Any]:
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        raise AssertionError("an answer of one piece reads nothing")

    await response({"type": "http", "method": "GET"}, receive, send)
    return messages


async def test_an_answer_is_one_start_and_one_last_piece() -> None:
    assert await sent(Response('{"a":1}', media_type=JSON)) == [
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", b"7"), (b"content-type", b"application/json")],
        },
        {"type": "http.response.body", "body": b'{"a":1}'},
    ]


async def test_the_same_answer_can_be_sent_to_many() -> None:
    response = Response("ok", media_type=TEXT)
    assert await sent(response) == await sent(response)


def test_given_headers_come_first_in_lower_case() -> None:
    response = Response("x", 401, {"Cache-Control": "no-store", "X-B": "\xfc"}, JSON)
    assert response.headers == [
        (b"cache-control", b"no-store"),
        (b"x-b", b"\xfc"),
        (b"content-length", b"1"),
        (b"content-type", b"application/json"),
    ]


def test_a_text_says_that_it_is_utf_8() -> None:
    response = Response("\u00fc", media_type=TEXT)
    assert response.body == b"\xc3\xbc"
    assert response.headers == [
        (b"content-length", b"2"),
        (b"content-type", b"text/plain; charset=utf-8"),
    ]
    latin = Response(b"\xfc", media_type="text/plain; charset=latin-1")
    assert latin.headers[1] == (b"content-type", b"text/plain; charset=latin-1")


def test_a_type_among_the_headers_is_the_only_one() -> None:
    response = Response("x", headers={"content-type": "text/plain; version=0.0.4"}, media_type=JSON)
    assert response.headers == [
        (b"content-type", b"text/plain; version=0.0.4"),
        (b"content-length", b"1"),
    ]


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (100, []),
        (204, []),
        (304, []),
        (200, [(b"content-length", b"0")]),
        (307, [(b"content-length", b"0")]),
    ],
)
def test_an_empty_answer_has_a_length_where_one_is_allowed(
    status: int, headers: list[tuple[bytes, bytes]]
) -> None:
    assert Response(status=status).headers == headers


def test_a_header_beyond_latin_1_is_an_error() -> None:
    with pytest.raises(UnicodeEncodeError):
        Response(headers={"x-a": "\u20ac"})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values)
def test_json_gives_the_value_back_without_blanks(value: object) -> None:
    try:
        response = json_response(value, 202)
    except UnicodeEncodeError:
        return  # half a character
    assert response.status == 202
    assert json.loads(response.body) == value
    assert response.headers[0] == (b"content-length", str(len(response.body)).encode())


def test_json_is_compact_and_not_escaped() -> None:
    assert json_response({"k\u00fc": [1, None]}).body == b'{"k\xc3\xbc":[1,null]}'
    assert json_response(None).body == b"null"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_does_not_have_is_an_error(number: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        json_response([number])
