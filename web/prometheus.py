"""The text format of Prometheus: families with HELP and TYPE, samples with escaped labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from runtime.durations import Durations
    from runtime.watchdog import LoopWatchdog

LINES_PER_PIECE: Final = 64
BLOCKS_PER_PIECE: Final = 16
"""Blocks of LINES_PER_PIECE samples each, freed at once."""
STALL_WALL: Final = "vela_event_loop_stall_seconds"
STALL_CPU: Final = "vela_event_loop_stall_cpu_seconds"
_STALL_WALL_HELP: Final = (
    "Seconds of turns and callbacks of the event loop that exceeded their budget"
)
_STALL_CPU_HELP: Final = "CPU seconds of the same; the rest was waiting"


@final
class Page:
    """Collects samples by family, so that each family is written once and in one piece.

    A sample is kept as its labels, which the samples of one topic share, and its number. The text
    of a page of 10,000 topics would take ten times as much.

    Where one thing has a sample in each of many families (`Families`), its values are kept as one
    row, and each LINES_PER_PIECE rows become columns. A column of equal values, as most are of
    topics that nobody uses, is one number.

    A page of a million samples must not hold up the event loop as a whole. So they are kept in
    small blocks, of which Python's garbage collector looks at each once only: in one list for each
    family it would walk all of them in one stop. And the last reader of a page frees them bit by
    bit, as the last pieces, which are empty.
    """

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}
        self._rows: dict[Families, _Rows] = {}
        self.readers = 0
        """The readers that have not read it to its end. The code that hands it out counts them."""
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

    def add_row(self, families: Families, labels: str, values: Sequence[float]) -> None:
        """One sample in each of the families, in their order. Raises: ValueError: not as many."""
        rows = self._rows.get(families)
        if rows is None:
            added = [self._family(name, kind, text) for name, kind, text in families.each]
            rows = self._rows[families] = _Rows(added)
        rows.add(labels, values)

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
        """The whole page, up to LINES_PER_PIECE lines at a time. Nothing is added afterwards."""
        try:
            for rows in self._rows.values():
                rows.close()
            for name, family in self._families.items():
                yield f"# HELP {name} {family.help_text}\n# TYPE {name} {family.kind}\n"
                for labels, values in (*family.blocks, (family.labels, family.values)):
                    yield _lines(name, labels, values)
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
        """Labels and values of up to LINES_PER_PIECE samples each. One value: of all of them."""
        self.labels: list[str] = []
        self.values: list[float] = []
        """The values of the last ones."""
        self.lines: list[str] = []

    def add(self, labels: str, value: float) -> None:
        """One sample."""
        self.labels.append(labels)
        self.values.append(value)
        if len(self.labels) == LINES_PER_PIECE:
            self.blocks.append((tuple(self.labels), tuple(self.values)))
            self.labels, self.values = [], []


class Family(NamedTuple):
    """A name, a kind, such as gauge, and a help text."""

    name: str
    kind: str
    help_text: str


@final
class Families:
    """Families of which everything of one kind, such as each topic, has a sample."""

    def __init__(self, each: Sequence[Family]) -> None:
        self.each = tuple(each)


@final
class _Rows:
    """Rows of samples that are not yet columns of their families."""

    __slots__ = ("_families", "_labels", "_values")

    def __init__(self, families: list[_Family]) -> None:
        self._families = families
        self._labels: list[str] = []
        self._values: list[Sequence[float]] = []

    def add(self, labels: str, values: Sequence[float]) -> None:
        """One row."""
        if len(values) != len(self._families):
            raise ValueError(f"{len(values)} values for {len(self._families)} families")
        self._labels.append(labels)
        self._values.append(values)
        if len(self._labels) == LINES_PER_PIECE:
            self.close()

    def close(self) -> None:
        """All of them are columns."""
        if not self._labels:
            return
        labels = tuple(self._labels)
        for family, column in zip(self._families, zip(*self._values, strict=True), strict=True):
            family.blocks.append((labels, column[:1] if _are_equal(column) else column))
        self._labels, self._values = [], []


def _are_equal(column: Sequence[float]) -> bool:
    """Whether one number shows all of them. 1 and 1.0 are shown differently;
    0.0 and -0.0 are not."""
    first = column[0]
    return column.count(first) == len(column) and len(set(map(type, column))) == 1


def _lines(name: str, labels: Sequence[str], values: Sequence[float]) -> str:
    """The lines of a block of samples."""
    if not labels:
        return ""
    if len(values) == 1:
        end = f" {values[0]!r}\n"
        return f"{name}{(end + name).join(labels)}{end}"
    return "".join(
        [f"{name}{text} {value!r}\n" for text, value in zip(labels, values, strict=True)]
    )


def label_text(labels: Mapping[str, str]) -> str:
    """`{a="b",c="d"}` with quotes, backslashes and line breaks escaped."""
    parts = [f'{name}="{_escape(value)}"' for name, value in labels.items()]
    return "{" + ",".join(parts) + "}" if parts else ""


def with_label(text: str, name: str, value: str) -> str:
    """A text of `label_text` that has labels, with one more."""
    return f'{text[:-1]},{name}="{_escape(value)}"}}'


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def quantile(counts: Sequence[int], limits: Sequence[float], fraction: float) -> float:
    """The upper limit of the bucket in which a quantile lies; the overflow counts as its start."""
    wanted = fraction * sum(counts)
    seen = 0
    for limit, count in zip((*limits, limits[-1]), counts, strict=True):
        seen += count
        if count and seen >= wanted:
            return float(limit)
    return 0.0


def add_stall_series(page: Page, watchdog: LoopWatchdog | None, labels: Mapping[str, str]) -> None:
    """Add the stalls of the event loop; nothing if the loop is not watched."""
    if watchdog is None:
        return
    for (kind, name), stall in sorted(watchdog.stalls().items()):
        of_stall = {**labels, "kind": kind, "name": name}
        page.add_histogram(STALL_WALL, _STALL_WALL_HELP, of_stall, stall.wall)
        page.add_histogram(STALL_CPU, _STALL_CPU_HELP, of_stall, stall.cpu)
