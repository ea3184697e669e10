"""The text format of Prometheus: families with HELP and TYPE, samples with escaped labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from runtime.durations import Durations


LINES_PER_PIECE: Final = 64
BLOCKS_PER_PIECE: Final = 16
"""Of LINES_PER_PIECE samples each, freed at once."""


@final
class Page:
    """Collects samples by family, so that each family is written once and in one piece.

    A sample is kept as its labels, which the samples of one topic share, and its number. The text
    of a page of 10,000 topics would take ten times as much.

    A page of a million samples must not hold up the event loop as a whole. So they are kept in
    small blocks, of which Python's garbage collector looks at each once only: in one list for each
    family it would walk all of them in one stop. And the last reader of a page frees them bit by
    bit, as the last pieces, which are empty.
    """

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}
        self.readers = 0
        """Those who have it and have not read it to its end. Whoever hands it out counts them."""
        self.is_used_up = False
        """The last of them has freed it."""

    def family(self, name: str, kind: str, help_text: str) -> list[str]:
        """Add the lines of a family, given as text. `kind` is gauge, counter, summary, histogram or
        untyped."""
        return self._family(name, kind, help_text).lines

    def add(self, name: str, kind: str, help_text: str, labels: str, value: float) -> None:
        """One sample; `labels` as made by `label_text`."""
        family = self._families.get(name) or self._family(name, kind, help_text)
        family.add(labels, value)

    def add_histogram(
        self, name: str, help_text: str, labels: Mapping[str, str], durations: Durations
    ) -> None:
        """All lines of one histogram."""
        lines = self.family(name, "histogram", help_text)
        counts = durations.cumulative()
        for bound, count in zip((*map(str, durations.bounds_s), "+Inf"), counts, strict=True):
            lines.append(f"{name}_bucket{label_text({**labels, 'le': bound})} {count}")
        lines.append(f"{name}_count{label_text(labels)} {counts[-1]}")
        lines.append(f"{name}_sum{label_text(labels)} {durations.sum_s}")

    def _family(self, name: str, kind: str, help_text: str) -> _Family:
        known = self._families.get(name)
        if known is None:
            known = self._families[name] = _Family(kind, help_text)
        return known

    def pieces(self) -> Iterator[str]:
        """The whole page, up to LINES_PER_PIECE lines at a time."""
        try:
            for name, family in self._families.items():
                yield f"# HELP {name} {family.help_text}\n# TYPE {name} {family.kind}\n"
                for labels, values in (*family.blocks, (family.labels, family.values)):
                    yield "".join(
                        f"{name}{text} {_number(value)}\n"
                        for text, value in zip(labels, values, strict=True)
                    )
                for start in range(0, len(family.lines), LINES_PER_PIECE):
                    yield "\n".join([*family.lines[start : start + LINES_PER_PIECE], ""])
        finally:
            self.readers -= 1
        if self.readers == 0:
            self.is_used_up = True
            for family in self._families.values():
                while family.blocks:
                    del family.blocks[-BLOCKS_PER_PIECE:]
                    yield ""


@final
class _Family:
    __slots__ = ("blocks", "help_text", "kind", "labels", "lines", "values")

    def __init__(self, kind: str, help_text: str) -> None:
        self.kind = kind
        self.help_text = help_text
        self.blocks: list[tuple[Sequence[str], Sequence[float]]] = []
        """Labels and values of LINES_PER_PIECE samples each."""
        self.labels: list[str] = []
        self.values: list[float] = []
        """Of the last ones."""
        self.lines: list[str] = []

    def add(self, labels: str, value: float) -> None:
        """One sample."""
        self.labels.append(labels)
        self.values.append(value)
        if len(self.labels) == LINES_PER_PIECE:
            self.blocks.append((tuple(self.labels), tuple(self.values)))
            self.labels, self.values = [], []


def label_text(labels: Mapping[str, str]) -> str:
    """`{a="b",c="d"}` with quotes, backslashes and line breaks escaped."""
    parts = [f'{name}="{_escape(value)}"' for name, value in labels.items()]
    return "{" + ",".join(parts) + "}" if parts else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))


def quantile(counts: Sequence[int], limits: Sequence[float], fraction: float) -> float:
    """The upper limit of the bucket in which a quantile lies; the overflow counts as its start."""
    wanted = fraction * sum(counts)
    seen = 0
    for limit, count in zip((*limits, limits[-1]), counts, strict=True):
        seen += count
        if count and seen >= wanted:
            return float(limit)
    return 0.0
