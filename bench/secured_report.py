"""The table of `make bench-secured`, and its rows for the JSON file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.report import Spread, short, spread_of
from bench.secured_servers import PULSAR, PULSAR_SECURED, SERVERS, VELA, VELA_SECURED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.results import Record

RATIOS: Final = {
    "vela / pulsar, both secured": (VELA_SECURED, PULSAR_SECURED),
    "secured / not, vela": (VELA_SECURED, VELA),
    "secured / not, pulsar": (PULSAR_SECURED, PULSAR),
}
TITLE: Final = "The cost of TLS and tokens"
SAID: Final = (
    "Secured: clients use the port with TLS (1.3, a certificate with an RSA key of 2,048 bits), "
    "show a token (HS256), and authorization is on; their role is a super user. Vela syncs its "
    "journal, standalone Pulsar does not. One server was under load at a time, the others were "
    "stopped (SIGSTOP); each had uncounted load before. `pulsar-perf` shares the machine's "
    "processors with the server, and encrypts, too: with TLS it bounds the throughput. CPU is read "
    "from the processes."
)


@dataclass(frozen=True)
class Row:
    """One figure under one load."""

    load: str
    figure: str
    spreads: dict[str, Spread]
    """By server."""
    ratios: dict[str, float | None]
    """Of the medians, by name in `RATIOS`."""


def rows(records: Mapping[str, Record]) -> list[Row]:
    """A row per load and figure, of the loads that were measured on all servers."""
    made: list[Row] = []
    for load, record in records.items():
        if not record.is_comparable:
            continue
        for figure in record.rounds[VELA][0]:
            spreads = {
                server: spread_of([each[figure] for each in record.rounds[server]])
                for server in SERVERS
            }
            ratios = {
                name: _ratio(spreads[one].median, spreads[other].median)
                for name, (one, other) in RATIOS.items()
            }
            made.append(Row(load, figure, spreads, ratios))
    return made


def _ratio(one: float, other: float) -> float | None:
    return one / other if other else None


def table(records: Mapping[str, Record]) -> str:
    """In Markdown."""
    heads = ["load", "figure", *SERVERS, *RATIOS]
    lines = [
        "| " + " | ".join(heads) + " |",
        "|---|---|" + "---:|" * (len(SERVERS) + len(RATIOS)),
    ]
    for row in rows(records):
        spreads = [str(row.spreads[server]) for server in SERVERS]
        ratios = [short(row.ratios[name]) for name in RATIOS]
        lines.append("| " + " | ".join([row.load, row.figure, *spreads, *ratios]) + " |")
    return "\n".join(lines)
