"""Where the two releases of real Pulsar show a user different things: `oracle_differences.toml`.

A difference is some events in a row of a scenario, as each release shows them, and the release
that Vela follows. The two releases must differ in all that is listed and in nothing else, and Vela
must show what the release it follows shows; so a list that is no longer true fails, too.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from compat_tests.oracle.comparison import failures
from compat_tests.oracle.releases import RELEASES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from compat_tests.oracle.comparison import Outcome

LIST: Final = Path(__file__).resolve().with_suffix(".toml")

Lines = tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """`shown`: events in a row by release, as lines of JSON; `followed`: what Vela shows."""

    scenario: str
    clients: tuple[str, ...]
    shown: dict[str, Lines]
    followed: str
    why: str

    def between(self, first: str, second: str) -> tuple[Lines, Lines]:
        """What each of two shows; `vela` shows what it follows."""
        return self._of(first), self._of(second)

    def _of(self, name: str) -> Lines:
        return self.shown[self.followed if name == "vela" else name]


@cache
def listed(path: Path = LIST) -> tuple[Difference, ...]:
    """All that is in the list, where a row may be of several scenarios."""
    return tuple(
        Difference(
            scenario=scenario,
            clients=tuple(row["clients"]),
            shown={version: tuple(map(_normal, row[version])) for version in RELEASES},
            followed=row["vela"],
            why=row["why"],
        )
        for row in tomllib.loads(path.read_text()).get("difference", [])
        for scenario in row["scenarios"]
    )


def of_scenario(
    client: str, scenario: str, known: Iterable[Difference] | None = None
) -> list[Difference]:
    """Those of one scenario, as this client sees it."""
    among = listed() if known is None else known
    return [each for each in among if each.scenario == scenario and client in each.clients]


def whole_lines(trace: Sequence[Any]) -> list[str]:
    """A line of JSON per event; none is cut."""
    return [json.dumps(event, ensure_ascii=False, sort_keys=True) for event in trace]


Pair = tuple[str, str]
"""Two servers that are compared: `vela` or a version, and a version."""


def pairs(servers: Collection[str]) -> list[Pair]:
    """Of the servers of a run: each release with Vela, or the cluster in its place, and the
    releases with each other."""
    versions = [release.version for release in RELEASES.values() if release.name in servers]
    vela: list[Pair] = [("vela", each) for each in versions] if len(versions) < len(servers) else []
    return vela + list(combinations(versions, 2))


def compared(
    traces: Mapping[str, Sequence[Any]], known: list[Difference]
) -> dict[Pair, tuple[list[str], bool]]:
    """What is wrong with each pair, in lines, and whether the two showed the same.

    traces: by name of the server.
    """
    shown = {_label(name): whole_lines(trace) for name, trace in traces.items()}
    return {
        (first, second): (
            unlisted((first, shown[first]), (second, shown[second]), known),
            shown[first] == shown[second],
        )
        for first, second in pairs(list(traces))
    }


def what_differs(client: str, scenario: str, outcomes: Mapping[str, Outcome]) -> list[str]:
    """What is wrong with the outcomes of a scenario without a row in a matrix, in lines; none: all
    servers reached its end, and showed the same but for what is listed."""
    told = failures(outcomes)
    if not told:
        traces = {name: outcome.trace for name, outcome in outcomes.items()}
        for wrong, _is_same in compared(traces, of_scenario(client, scenario)).values():
            told += wrong
        if told:
            told += to_list(client, scenario, traces)
    return told


def _label(server: str) -> str:
    versions = {release.name: release.version for release in RELEASES.values()}
    return versions.get(server, "vela")


def unlisted(
    first: tuple[str, Sequence[str]], second: tuple[str, Sequence[str]], known: list[Difference]
) -> list[str]:
    """What two servers show differently without being listed, and what is listed and not shown.

    first, second: `vela` or a version, and the lines that it showed.
    """
    (name, left), (other, right) = first, second
    wanted = [each.between(name, other) for each in known]
    wanted = [pair for pair in wanted if pair[0] != pair[1]]
    told: list[str] = []
    for found in _hunks(left, right):
        if found in wanted:
            wanted.remove(found)
        else:
            told += [f"{name} and {other} differ:", *_shown(name, found[0])]
            told += _shown(other, found[1])
    for gone in wanted:
        told += [f"{name} and {other} no longer differ in what is listed:", *_shown(name, gone[0])]
    return told


def to_list(client: str, scenario: str, traces: Mapping[str, Sequence[Any]]) -> list[str]:
    """What is different on the releases, as it has to stand in the list, but for the reason; only
    if there is more than one release among the servers."""
    shown = {_label(name): whole_lines(trace) for name, trace in traces.items()}
    told: list[str] = []
    for first, second in combinations([each for each in RELEASES if each in shown], 2):
        for left, right in _hunks(shown[first], shown[second]):
            told += ["[[difference]]", f'scenarios = ["{scenario}"]', f'clients = ["{client}"]']
            for version, lines in ((first, left), (second, right)):
                told += [f'"{version}" = [', *(f"  {_literal(line)}," for line in lines), "]"]
            told += [f'vela = "{first}"', 'why = ""', ""]
    return told


def _literal(line: str) -> str:
    return f"'{line}'" if "'" not in line else f"'''{line}'''"


def _shown(name: str, lines: Lines) -> list[str]:
    return [f"  {name}: {line[:400]}" for line in lines] or [f"  {name}: nothing"]


def _hunks(left: Sequence[str], right: Sequence[str]) -> list[tuple[Lines, Lines]]:
    matcher = difflib.SequenceMatcher(a=left, b=right, autojunk=False)
    return [
        (tuple(left[a:b]), tuple(right[c:d]))
        for kind, a, b, c, d in matcher.get_opcodes()
        if kind != "equal"
    ]


def _normal(line: str) -> str:
    return json.dumps(json.loads(line), ensure_ascii=False, sort_keys=True)
