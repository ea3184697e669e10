"""Regular expressions for names, as administrators give them to Pulsar. Pure.

Policies of isolation name namespaces and brokers by Java's regular expressions, matched with the
whole name. Anyone who may write a policy gives such an expression, and every placement evaluates
it. So it is matched in time linear in the name, without backtracking: as a set of states, whose
steps are remembered. Both are bounded.

What Java and this module understand means the same in both: characters, `.`, classes, groups, `|`,
`^`, `$`, `?`, `*`, `+` and `{m,n}` with or without `?` after them, `\\d \\w \\s` and their
opposites, `\\Q...\\E`. Everything else is refused: references, looking ahead or behind, possessive
quantifiers, word boundaries, named classes, set operations in classes.

Source: java.util.regex.Pattern; `String.matches` as called by Pulsar's
NamespaceIsolationPolicyImpl.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NoReturn, final

PATTERN_LENGTH_MAX: Final = 1_024
STATES_MAX: Final = 2_000
DEPTH_MAX: Final = 50
_STEPS_REMEMBERED_MAX: Final = 4_096
_COUNT_MAX: Final = 1_000
_LAST: Final = chr(0x10FFFF)


class PatternRefused(ValueError):
    """The expression is none, or is one that is not understood here. The text says why."""


# --- what an expression consists of -----------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class _Chars:
    """One character of a set."""

    ranges: tuple[tuple[str, str], ...] = ()
    """First and last of each range."""
    parts: tuple[_Chars, ...] = ()
    is_negated: bool = False

    def __contains__(self, char: str) -> bool:
        inside = any(first <= char <= last for first, last in self.ranges) or any(
            char in part for part in self.parts
        )
        return inside != self.is_negated


@final
@dataclass(frozen=True, slots=True)
class _Anchor:
    is_end: bool


@final
@dataclass(frozen=True, slots=True)
class _Sequence:
    items: tuple[_Node, ...]


@final
@dataclass(frozen=True, slots=True)
class _Choice:
    items: tuple[_Node, ...]


@final
@dataclass(frozen=True, slots=True)
class _Repeat:
    item: _Node
    least: int
    most: int | None
    """None: any number."""


_Node = _Chars | _Anchor | _Sequence | _Choice | _Repeat

_ANY: Final = _Chars((("\n", "\n"), ("\r", "\r"), ("\x85", "\x85"), ("\u2028", "\u2029")), (), True)
_SETS: Final = {
    "d": (("0", "9"),),
    "w": (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z")),
    "s": (("\t", "\r"), (" ", " ")),
}
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@final
class _Parser:
    """A recursive descent over one expression."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> _Node:
        """Raises: PatternRefused."""
        node = self._choice()
        if self._at < len(self._text):
            self._refuse("unmatched )")
        return node

    def _refuse(self, why: str) -> NoReturn:
        raise PatternRefused(f"{self._text!r}: {why}")

    def _peek(self, length: int = 1) -> str:
        return self._text[self._at : self._at + length]

    def _take(self, expected: str) -> bool:
        if self._text.startswith(expected, self._at):
            self._at += len(expected)
            return True
        return False

    def _next(self) -> str:
        char = self._peek()
        if not char:
            self._refuse("it ends too early")
        self._at += 1
        return char

    def _choice(self) -> _Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            self._refuse(f"more than {DEPTH_MAX} groups in each other")
        items = [self._sequence()]
        while self._take("|"):
            items.append(self._sequence())
        self._depth -= 1
        return items[0] if len(items) == 1 else _Choice(tuple(items))

    def _sequence(self) -> _Node:
        items: list[_Node] = []
        while self._peek() not in ("", "|", ")"):
            if self._take("\\Q"):
                quoted, separator, _rest = self._text[self._at :].partition("\\E")
                self._at += len(quoted) + len(separator)
                items += [_Chars(((char, char),)) for char in quoted]
                if quoted:
                    items.append(self._repeated(items.pop()))
                continue
            items.append(self._repeated(self._atom()))
        return _Sequence(tuple(items))

    def _repeated(self, item: _Node) -> _Node:
        char = self._peek()
        if char not in ("*", "+", "?", "{") or not char:
            return item
        self._at += 1
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(char) or self._counts()
        if isinstance(item, _Anchor):
            self._refuse("a repeated anchor is not supported")
        self._take("?")  # lazy: the same names
        if self._peek() in ("*", "+", "?", "{") and self._peek():
            self._refuse("possessive and double quantifiers are not supported")
        return _Repeat(item, least, most)

    def _counts(self) -> tuple[int, int | None]:
        inside, separator, _rest = self._text[self._at :].partition("}")
        first, comma, second = inside.partition(",")
        numbers = [each for each in (first, second) if each]
        if (
            not separator
            or not first
            or not all(each.isascii() and each.isdecimal() and len(each) < 5 for each in numbers)
        ):
            self._refuse("{ begins no count")
        self._at += len(inside) + 1
        least = int(first)
        most = least if not comma else int(second) if second else None
        if least > _COUNT_MAX or (most is not None and not least <= most <= _COUNT_MAX):
            self._refuse(f"a count should rise, up to {_COUNT_MAX}")
        return least, most

    def _atom(self) -> _Node:
        char = self._next()
        if char == "(":
            return self._group()
        if char == "[":
            return self._class()
        if char == ".":
            return _ANY
        if char in "^$":
            return _Anchor(is_end=char == "$")
        if char == "\\":
            if self._peek() in ("A", "z", "Z") and self._peek():
                return _Anchor(is_end=self._next() != "A")
            return self._escaped()
        if char in "*+?{":
            self._refuse(f"{char} follows nothing")
        return _Chars(((char, char),))

    def _group(self) -> _Node:
        if self._take("?") and not self._take(":"):
            self._refuse("groups with ? are not supported, except (?:")
        node = self._choice()
        if not self._take(")"):
            self._refuse("unmatched (")
        return node

    def _escaped(self) -> _Chars:
        char = self._next()
        ranges = _SETS.get(char.lower())
        if ranges is not None:
            return _Chars(ranges, (), char.isupper())
        if char in _CONTROL:
            char = _CONTROL[char]
        elif char.isalnum():
            self._refuse(f"\\{char} is not supported")
        return _Chars(((char, char),))

    def _class(self) -> _Chars:
        is_negated = self._take("^")
        ranges: list[tuple[str, str]] = []
        parts: list[_Chars] = []
        while not self._take("]"):
            if self._peek() == "[" or self._peek(2) == "&&":
                self._refuse("sets within sets are not supported")
            first = self._member()
            is_range = self._peek() == "-" and self._peek(2) != "-]"
            if (
                first.is_negated
                or len(first.ranges) != 1
                or first.ranges[0][0] != first.ranges[0][1]
            ):
                parts.append(first)
                continue
            low = high = first.ranges[0][0]
            if is_range:
                self._at += 1
                last = self._member()
                high = last.ranges[0][1]
                if last.is_negated or len(last.ranges) != 1 or last.ranges[0][0] != high:
                    self._refuse("a range should end in a character")
                if high < low:
                    self._refuse("a range should rise")
            ranges.append((low, high))
        if not ranges and not parts:
            self._refuse("an empty set")
        return _Chars(tuple(ranges), tuple(parts), is_negated)

    def _member(self) -> _Chars:
        char = self._next()
        return self._escaped() if char == "\\" else _Chars(((char, char),))


# --- states -----------------------------------------------------------------------------------

_PLAIN: Final = 0
_AT_START: Final = 1
_AT_END: Final = 2


@final
class NamePattern:
    """A compiled expression. `matches` remembers steps, and means the same at every call."""

    def __init__(self, text: str) -> None:
        """Raises: PatternRefused."""
        if len(text) > PATTERN_LENGTH_MAX:
            raise PatternRefused(f"it is longer than {PATTERN_LENGTH_MAX} characters")
        self.text = text
        self._empty_moves: list[list[tuple[int, int]]] = []
        """By state: states reached without a character, and under which condition."""
        self._moves: list[tuple[_Chars, int] | None] = []
        self._accepting = self._state()
        self._first = self._add(_Parser(text).parse(), self._accepting)
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """Whether the expression matches the whole name."""
        states = self._closed({self._first}, {_PLAIN, _AT_START})
        for char in name:
            if not states:
                return False
            step = (states, char)
            following = self._steps.get(step)
            if following is None:
                moved = {
                    move[1]
                    for move in map(self._moves.__getitem__, states)
                    if move and char in move[0]
                }
                following = self._closed(moved, {_PLAIN})
                if len(self._steps) >= _STEPS_REMEMBERED_MAX:
                    self._steps.clear()
                self._steps[step] = following
            states = following
        conditions = {_PLAIN, _AT_END} if name else {_PLAIN, _AT_END, _AT_START}
        return self._accepting in self._closed(states, conditions)

    def _closed(self, states: set[int] | frozenset[int], conditions: set[int]) -> frozenset[int]:
        """These states and all that are reached from them without a character."""
        seen = set(states)
        pending = list(states)
        while pending:
            for state, condition in self._empty_moves[pending.pop()]:
                if condition in conditions and state not in seen:
                    seen.add(state)
                    pending.append(state)
        return frozenset(seen)

    def _state(self) -> int:
        if len(self._moves) >= STATES_MAX:
            raise PatternRefused(f"{self.text!r}: it counts too far")
        self._moves.append(None)
        self._empty_moves.append([])
        return len(self._moves) - 1

    def _add(self, node: _Node, following: int) -> int:
        """The state before `node`, which leads to `following`."""
        if isinstance(node, _Chars):
            state = self._state()
            self._moves[state] = (node, following)
            return state
        if isinstance(node, _Sequence):
            for item in reversed(node.items):
                following = self._add(item, following)
            return following
        if isinstance(node, _Repeat):
            return self._add_repeat(node, following)
        state = self._state()
        if isinstance(node, _Anchor):
            self._empty_moves[state].append((following, _AT_END if node.is_end else _AT_START))
        else:
            for item in node.items:
                self._empty_moves[state].append((self._add(item, following), _PLAIN))
        return state

    def _add_repeat(self, node: _Repeat, following: int) -> int:
        if node.most is None:
            loop = self._state()
            self._empty_moves[loop].append((following, _PLAIN))
            self._empty_moves[loop].append((self._add(node.item, loop), _PLAIN))
            following = loop
        else:
            end = following
            for _ in range(node.most - node.least):
                state = self._state()
                self._empty_moves[state].append((end, _PLAIN))
                self._empty_moves[state].append((self._add(node.item, following), _PLAIN))
                following = state
        for _ in range(node.least):
            state = self._state()
            self._empty_moves[state].append((self._add(node.item, following), _PLAIN))
            following = state
        return following


@lru_cache(maxsize=1_024)
def name_pattern(text: str) -> NamePattern:
    """The same, made once. Raises: PatternRefused."""
    return NamePattern(text)
