"""Rows for people or for programs: one line each, as they are read.

No row is kept, so memory does not grow with the number of rows. Their content comes from strangers:
control characters of terminals are escaped.
"""

from __future__ import annotations

import json
from base64 import b64encode
from enum import Enum
from typing import TYPE_CHECKING, final

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

Value = str | int | float | bool | None | list[object] | dict[str, object]


class PayloadForm(Enum):
    """How payloads are shown."""

    NONE = "none"
    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"


def payload_text(payload: bytes, form: PayloadForm) -> str | None:
    """The payload in this form; None: it is not shown."""
    if form is PayloadForm.TEXT:
        return payload.decode(errors="backslashreplace")
    if form is PayloadForm.HEX:
        return payload.hex()
    if form is PayloadForm.BASE64:
        return b64encode(payload).decode()
    return None


@final
class Output:
    """Prints rows."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self.rows = 0

    def row(self, kind: str, values: Mapping[str, Value]) -> None:
        """One row: a JSON object with its kind, or `kind key=value ...` without what is None."""
        self.rows += 1
        shown = {key: value for key, value in values.items() if value is not None}
        if self._as_json:
            click.echo(_quoted({"kind": kind, **shown}, (", ", ": ")))
            return
        click.echo(" ".join([kind, *(f"{key}={_plain(value)}" for key, value in shown.items())]))


def _quoted(value: object, separators: tuple[str, str] = (",", ":")) -> str:
    """JSON in one line, with letters of all languages as they are if they can be printed."""
    text = json.dumps(value, ensure_ascii=False, separators=separators)
    return text if text.isprintable() else json.dumps(value, separators=separators)


def _plain(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return _quoted(value)
    text = str(value)
    is_plain = text.isprintable() and not set(text) & set(' "')
    return text if text and is_plain else _quoted(text)
