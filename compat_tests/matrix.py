"""Scenario by client: equal on Vela and each release of real Pulsar, and on the releases, or not.

`docs/compatibility.md` is of the message clients, `docs/compatibility-spark.md` of the connector;
beside each stands the record that it is made from.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pulsar

from compat_tests.clients.builds import FRAMEWORKS, JAVA_CLIENTS
from compat_tests.commit import commit
from compat_tests.oracle.distribution import TREE
from compat_tests.oracle.releases import RELEASES
from compat_tests.oracle_differences import Difference, Pair, listed, pairs
from compat_tests.spark.environment import CONNECTOR_VERSION, SPARK_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DOCUMENTS = TREE / "docs"
CLIENTS = Path(__file__).resolve().parent / "clients"


def _pinned(path: Path, pattern: str) -> str:
    found = re.search(pattern, path.read_text())
    assert found is not None, f"{path} pins no version of the client"
    return found[1]


CLIENT_TITLES = {
    "python": f"Python {pulsar.__version__}",
    "java": "Java " + _pinned(CLIENTS / "java" / "pom.xml", r"<pulsar\.version>([^<]+)<"),
    **{name: f"Java {version}" for name, version in JAVA_CLIENTS.items()},
    "go": "Go " + _pinned(CLIENTS / "go" / "go.mod", r"pulsar-client-go v(\S+)"),
    "rust": "Rust " + _pinned(CLIENTS / "rust" / "Cargo.toml", r'pulsar = { version = "=([^"]+)"'),
    **FRAMEWORKS,
}
SPARK_TITLES = {
    "spark": f"Spark connector {CONNECTOR_VERSION} on pyspark {SPARK_VERSION}",
}


_MARKS_CLIENT = re.compile(r"^[^'\"#]*\bmark\.client\(", re.MULTILINE)
"""Not in a string: the tests of this module write such files."""


def modules_of_scenarios(tests: Path) -> frozenset[str]:
    """Names of the files with tests of a stock client."""
    return frozenset(
        path.name for path in tests.glob("test_*.py") if _MARKS_CLIENT.search(path.read_text())
    )


EQUAL: Final = "equal"
LISTED: Final = "listed"
DIFFERS: Final = "differs"
AGAIN: Final = " (again)"
_PAIRS: Final[tuple[Pair, ...]] = tuple(pairs(["vela", *(each.name for each in RELEASES.values())]))

Results = dict[str, dict[str, dict[str, list[str]]]]
"""Client -> scenario -> a pair of servers, as `vela and 4.0.8` -> the result (EQUAL, LISTED or
DIFFERS), and the run it is of."""


@cache
def this_run() -> str:
    """The day and the commit of what this process records."""
    return f"{datetime.now(UTC).date()} at {commit('docs')}"


class Matrix:
    """A record that grows: the last result of each scenario with each pair of servers.

    A run may be of some scenarios, or with one release of real Pulsar; it replaces what it has
    seen and leaves the rest. A run that has collected all scenarios drops those that are gone.
    """

    def __init__(
        self, document: Path, introduction: tuple[str, ...], clients: dict[str, str], tests: Path
    ):
        """`tests`: the directory of the tests that play scenarios."""
        self._document = document
        self._modules_wanted = modules_of_scenarios(tests)
        self._modules: set[str] = set()
        self._introduction = introduction
        self._clients = clients
        self._expected: set[tuple[str, str]] = set()
        self._seen: Results = {}

    def expect(self, client: str, scenario: str, module: str) -> None:
        """A scenario that was collected, and the file that plays it."""
        self._expected.add((client, scenario))
        self._modules.add(module)

    def record(
        self, client: str, scenario: str, results: Mapping[Pair, str], run: str, again: bool = False
    ) -> None:
        """The result of one scenario by pair of servers, and the run that has it; `again`: played
        twice, because an oracle failed."""
        of_scenario = self._seen.setdefault(client, {}).setdefault(scenario, {})
        for pair, result in results.items():
            of_scenario[" and ".join(pair)] = [result + (AGAIN if again else ""), run]

    def write(self) -> None:
        """Put what was seen into the record, and write the page from it."""
        if not self._seen:
            return
        results = self.merged()
        self._document.parent.mkdir(exist_ok=True)
        record = self._document.with_suffix(".json")
        record.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        self._document.write_text(self.text(results))

    def merged(self) -> Results:
        """The record with what was seen in this run."""
        record = self._document.with_suffix(".json")
        results: Results = json.loads(record.read_text()) if record.is_file() else {}
        for client, scenarios in self._seen.items():
            for scenario, of_scenario in scenarios.items():
                results.setdefault(client, {}).setdefault(scenario, {}).update(of_scenario)
        if self._modules_wanted <= self._modules:
            results = {
                client: {
                    scenario: of_scenario
                    for scenario, of_scenario in scenarios.items()
                    if (client, scenario) in self._expected
                }
                for client, scenarios in results.items()
            }
        return results

    def text(self, results: Results) -> str:
        """The page."""
        clients = [client for client in self._clients if results.get(client)]
        scenarios = sorted({scenario for client in clients for scenario in results[client]})
        names = [" and ".join(pair) for pair in _PAIRS]
        lines = [
            *self._introduction,
            "",
            *(_count(results, clients, name) for name in names),
            "",
            "Clients: " + ", ".join(self._clients[client] for client in clients) + ".",
            "",
            "| scenario | clients | " + " | ".join(map(_title, names)) + " |",
            "|---|---|" + "---|" * len(names),
        ]
        for scenario in scenarios:
            rows = {each: results[each][scenario] for each in clients if scenario in results[each]}
            cells = [
                _cell({each: row[name][0] if name in row else None for each, row in rows.items()})
                for name in names
            ]
            lines.append(f"| {scenario} | {', '.join(rows)} | {' | '.join(cells)} |")
        known = [each for each in listed() if set(each.clients) & set(self._clients)]
        return "\n".join([*lines, *(differences_text(known) if known else [])]) + "\n"


def _title(name: str) -> str:
    return name.replace("vela", "Vela")


def _count(results: Results, clients: list[str], name: str) -> str:
    found = [row[name] for client in clients for row in results[client].values() if name in row]
    of_kind = {kind: sum(each.startswith(kind) for each, _ in found) for kind in (EQUAL, LISTED)}
    rest = len(found) - sum(of_kind.values())
    runs = sorted(Counter(run for _, run in found).items(), reverse=True)
    told = "; ".join(f"{run} ({count})" for run, count in runs) or "none"
    return (
        f"* {_title(name)}: {of_kind[EQUAL]} of {len(found)} are equal,"
        f" {of_kind[LISTED]} differ as listed, {rest} otherwise."
        f" Results by run: {told}."
    )


def _cell(by_client: Mapping[str, str | None]) -> str:
    """One word when all clients have the same, else each result with its clients."""
    by_result: dict[str, list[str]] = {}
    for client, result in by_client.items():
        by_result.setdefault(result or "not run", []).append(client)
    told = {result: f"**{result}**" if DIFFERS in result else result for result in by_result}
    if len(by_result) == 1:
        return next(iter(told.values()))
    return "; ".join(f"{told[result]}: {', '.join(by_result[result])}" for result in by_result)


def differences_text(known: Iterable[Difference]) -> list[str]:
    """The list of differences between the releases, as a part of the page."""
    lines = ["", "## Where 4.0.8 and 5.0.1 differ", ""]
    lines += ["| scenario | clients | " + " | ".join(RELEASES) + " | Vela follows | why |"]
    lines += ["|---|---|" + "---|" * len(RELEASES) + "---|---|"]
    groups: dict[tuple[str, tuple[str, ...], str, str], list[Difference]] = {}
    for each in known:
        key = each.scenario, each.clients, each.followed, each.why
        groups.setdefault(key, []).append(each)
    for (scenario, clients, followed, why), alike in groups.items():
        shown = [_shown([line for each in alike for line in each.shown[v]]) for v in RELEASES]
        lines.append(
            f"| {scenario} | {', '.join(clients)} | {' | '.join(shown)} | {followed} | {why} |"
        )
    return lines


EVENTS_SHOWN_MAX: Final = 3
CHARACTERS_SHOWN_MAX: Final = 300


def _shown(lines: list[str]) -> str:
    """The first events of a difference; all of them are in the list."""
    told = [
        f"`{line[:CHARACTERS_SHOWN_MAX]}{'…' * (len(line) > CHARACTERS_SHOWN_MAX)}`"
        for line in lines[:EVENTS_SHOWN_MAX]
    ]
    if len(lines) > len(told):
        told.append(f"and {len(lines) - len(told)} more")
    return "<br>".join(told).replace("|", "\\|") or "nothing"


PLAYED_AGAIN = (
    "",
    "A scenario that fails on Apache Pulsar is run once more, and marked *again*; one that",
    "fails on Vela, then too, has failed. Each result is that of the last run of the scenario.",
    "The runs of each column follow, by day and commit, with the number of their results.",
)
_BOTH: Final = " and on Apache Pulsar " + " and ".join(RELEASES)
_WORDS: Final = (
    "*equal*: the two of the column are the same. *listed*: they differ in what the",
    "releases of Pulsar themselves show differently, as listed below, and Vela shows",
    "what one of them shows. **differs**: they differ otherwise.",
)
INTRODUCTION = (
    "# Compatibility with Apache Pulsar",
    "",
    "Generated by `make compat`; do not edit. Every scenario is run by a stock client",
    f"on Vela{_BOTH}, and what the user sees (contents,",
    "order, keys, properties, redelivery counts, names of errors) is compared event by",
    "event. A client that is not named does not run the scenario, because its",
    "interface has no such thing or another client already shows it.",
    *_WORDS,
    "[Pulsar 4.0.8 and 5.0.1](pulsar-4-and-5.md) lists the differences between the releases.",
    *PLAYED_AGAIN,
)
SPARK_INTRODUCTION = (
    "# Compatibility with the Spark connector",
    "",
    "Generated by `make compat-spark`; do not edit. Every scenario is a PySpark job that uses",
    f"the stock connector, run on Vela{_BOTH}. What its user sees",
    "(rows, columns, registered schemas, subscriptions left behind, texts of failures) is",
    "compared event by event.",
    *_WORDS,
    "`own-reader-...` are read with Vela's own reader for Spark 3 beside the connector.",
    *PLAYED_AGAIN,
)

MATRICES = dict.fromkeys(
    CLIENT_TITLES,
    Matrix(DOCUMENTS / "compatibility.md", INTRODUCTION, CLIENT_TITLES, CLIENTS.parent),
) | dict.fromkeys(
    SPARK_TITLES,
    Matrix(
        DOCUMENTS / "compatibility-spark.md",
        SPARK_INTRODUCTION,
        SPARK_TITLES,
        CLIENTS.parent / "spark",
    ),
)
"""The document each client's results go to."""
