"""The text of Java properties, as `java.util.Properties` reads it. Pure.

A key ends at the first `=`, `:` or blank that no backslash precedes. A line that ends in an odd
number of backslashes goes on with the next one, without the blanks at its beginning. `\\t`, `\\n`,
`\\r`, `\\f` and `\\uXXXX` are the characters that they name. A backslash before a character that is
no letter or digit stands for that character. Before any other letter or digit Java drops the
backslash in silence, so that `\\d` of a regular expression becomes `d`; here it is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENDS_OF_LINES: Final = re.compile(r"\r\n|\n|\r")
_BLANKS: Final = " \t\f"
_COMMENTS: Final = "#!"
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """One setting, and the number of the line where it begins; 1 is the first."""

    key: str
    value: str
    line: int


class WrongProperty(Exception):
    """A line cannot be read. The text says why."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def parse_properties(text: str) -> list[Property]:
    """All settings, in their order, repeated ones too. A value has no blanks at its ends, except
    escaped ones at its beginning.

    Raises: WrongProperty.
    """
    found = []
    for number, line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        name = _unescaped(key.group(), number)
        if not name:
            raise WrongProperty(number, f"expected key=value, found {line!r}")
        found.append(Property(name, _unescaped(line[separator.end() :].rstrip(), number), number))
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are neither blank nor comments, with what continues them."""
    whole, first = "", 0
    for number, natural in enumerate(_ENDS_OF_LINES.split(text), start=1):
        line = natural.lstrip(_BLANKS)
        if not first and (not line.strip() or line[0] in _COMMENTS):
            continue
        first = first or number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            whole += line[:-1]
            continue
        yield first, whole + line
        whole, first = "", 0
    if first:
        yield first, whole


def _unescaped(text: str, line: int) -> str:
    def character(match: re.Match[str]) -> str:
        escaped = match.group(1)
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        if escaped.isalnum() and escaped not in _NAMED:
            raise WrongProperty(
                line,
                f"\\{escaped} is no escape of Java properties: write \\\\{escaped} for a backslash "
                f"and {escaped!r}",
            )
        return _NAMED.get(escaped, escaped)

    # UTF-16: a character beyond the first plane is two escapes.
    return (
        _ESCAPE.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if "\\" in text
        else text
    )
