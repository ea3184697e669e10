"""Answers that may be large: produced, compressed and sent in slices of bounded work.

A handler answers with `Streamed(pieces)`, an iterator that does the work of one row per step. After
`STEPS_PER_SLICE` pieces or `SLICE_BYTES` the event loop serves other tasks. The slice is sent
before the next one is produced, so a client that does not read holds one slice. The broker
continues between two slices, so rows of an answer show different instants; each row shows one
instant.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any, Final, final

import trio

from broker.ground.slices import STEPS_PER_SLICE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from web.asgi import Receive, Scope, Send

SLICE_BYTES: Final = 64 * 1024
SMALL_MAX: Final = 64
"""A list or object with at most this many elements is encoded in one step."""
GZIP_LEVEL: Final = 1
"""Pages are repetitive: the fastest level already saves nine tenths."""
_PRODUCING: Final = trio.Semaphore(2)
"""Slices produced in one round of the event loop, however many answers are being sent."""
_GZIP: Final = 16 + zlib.MAX_WBITS
_JSON: Final = "application/json"


@final
class Streamed:
    """An answer of 200 in pieces of text. Every step of `pieces` is a bounded piece of work."""

    def __init__(self, pieces: Iterable[str], media_type: str = _JSON) -> None:
        self.pieces = pieces
        self._media_type = media_type

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """ASGI. Raises: any error of a step, after the answer has begun."""
        compress = accepts_gzip(scope["headers"])
        headers = [
            (b"content-type", self._media_type.encode("ascii")),
            (b"vary", b"Accept-Encoding"),
        ]
        if compress:
            headers.append((b"content-encoding", b"gzip"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP) if compress else None
        texts = slices(self.pieces)
        while True:
            async with _PRODUCING:
                text = next(texts, None)
                if text is None:
                    break
                data = text.encode() if packer is None else packer.compress(text.encode())
                await trio.lowlevel.checkpoint()
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        rest = packer.flush() if packer is not None else b""
        await send({"type": "http.response.body", "body": rest})


def slices(pieces: Iterable[str]) -> Iterator[str]:
    """Pieces joined up to the bounds of a slice. A larger piece is divided."""
    waiting: list[str] = []
    length = 0
    for piece in pieces:
        waiting.append(piece)
        length += len(piece)
        if len(waiting) >= STEPS_PER_SLICE or length >= SLICE_BYTES:
            yield from _divided("".join(waiting), length)
            waiting, length = [], 0
    if length:
        yield from _divided("".join(waiting), length)


def _divided(text: str, length: int) -> Iterator[str]:
    if not length:
        yield ""  # steps of work without text take time, too
    for start in range(0, length, SLICE_BYTES):
        yield text[start : start + SLICE_BYTES]


def accepts_gzip(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether `Accept-Encoding` names gzip (or everything) and does not exclude it (RFC 9110
    12.5.3)."""
    accepted = {}
    for name, value in headers:
        if name.lower() == b"accept-encoding":
            for each in value.decode("latin-1").lower().split(","):
                coding, _, parameter = each.partition(";")
                accepted[coding.strip()] = parameter.replace(" ", "") not in _RULED_OUT
    return accepted.get("gzip", accepted.get("*", False))


_RULED_OUT: Final = frozenset({"q=0", "q=0.0", "q=0.00", "q=0.000"})


# --- JSON -----------------------------------------------------------------------------------


def encoded(value: object) -> str:
    """Compact JSON of a small value."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def json_array(values: Iterable[Any]) -> Iterator[str]:
    """An array, an element per piece."""
    before = "["
    for value in values:
        yield before + encoded(value)
        before = ","
    yield "[]" if before == "[" else "]"


def json_fields(fields: Mapping[str, Any]) -> str:
    """The fields of an object without its braces; empty: none."""
    return encoded(fields)[1:-1]


def json_map(rows: Iterable[tuple[str, Iterable[str]] | None]) -> Iterator[str]:
    """An object whose values come in pieces. None is a step of work without a row."""
    before = "{"
    for row in rows:
        if row is None:
            yield ""
            continue
        key, pieces = row
        start = f"{before}{encoded(key)}:"
        for piece in pieces:
            yield start + piece
            start = ""
        before = ","
    yield "{}" if before == "{" else "}"


def json_pieces(value: object) -> Iterator[str]:
    """Any JSON, with the elements of its long lists and objects one by one."""
    if isinstance(value, list) and len(value) > SMALL_MAX:
        return json_array(value)
    if isinstance(value, dict) and is_large(value):
        return json_map((key, json_pieces(each)) for key, each in value.items())
    return iter((encoded(value),))


def is_large(value: object) -> bool:
    """Whether encoding it in one step might take long: it, or a value in it, is long."""
    if isinstance(value, list):
        return len(value) > SMALL_MAX
    if isinstance(value, dict):
        return len(value) > SMALL_MAX or any(map(is_large, value.values()))
    return False
