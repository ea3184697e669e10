"""Every ordered pair of commands that name the same consumer, producer or topic, in one write.

Each outcome on Vela must be one of those on real Pulsar. If real Pulsar has not shown it yet, the
pair runs there again: some of its outcomes take many attempts. Others appear only when it is
not busy, so every other round runs one case at a time.

Real Pulsar creates a consumer in the background. The command after a SUBSCRIBE in the same write
may find none, on a busy machine 42 of 42 times. Pulsar 5.0.1 does other commands in the background
as well. Therefore the pairs that begin with such a command and are still unseen run once more, with
a client that waits for the answer to the first command. Vela may also do what real Pulsar does for
that client.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
import trio

from compat_tests.command_pairs import CASES_AT_A_TIME, PAIRS, run_pairs

if TYPE_CHECKING:
    from collections.abc import Set

    from compat_tests.command_pairs import Found
    from compat_tests.oracle.releases import Release
    from compat_tests.servers import Servers

VELA_REPETITIONS: Final = 2
FIRST_REPETITIONS: Final = 2
MORE_REPETITIONS: Final = 10
ROUNDS_MAX: Final = 4
APART_REPETITIONS: Final = 3

IN_ORDER = (
    "Pulsar forgets a SEEK by time while it looks for the position: what comes next overtakes it or"
    " makes it fail; on Vela both take effect in order"
)
LATER = (
    "Pulsar 5.0.1 forgets a SEEK while it resets the cursor: the command after it comes first, or"
    " its consumer is gone; Vela does as 4.0.8"
)
LEFT_OPEN = (
    "on 5.0.1 the CLOSE_PRODUCER comes first, is answered with SUCCESS, and the producer stays;"
    " Vela does as 4.0.8: the producer is closed, and its PRODUCER has no answer"
)
DIFFERENT: Final[dict[tuple[str, str], str]] = {
    ("SEEK time", "SEEK"): IN_ORDER,
    ("SEEK time", "SEEK time"): IN_ORDER,
    ("SEEK time", "UNSUBSCRIBE"): IN_ORDER,
    ("SEEK time", "SUBSCRIBE other"): IN_ORDER,
    ("FLOW", "REDELIVER"): "Pulsar delivers more messages than the consumer has permits for",
}
"""Rows of docs/differences-from-pulsar.md, for all releases."""
DIFFERENT_IN: Final[dict[str, dict[tuple[str, str], str]]] = {
    "pulsar-4.0.8": {},
    "pulsar-5.0.1": {
        ("SEEK", "SUBSCRIBE"): LATER,
        ("SEEK time", "SUBSCRIBE"): LATER,
        ("SEEK time", "CLOSE_CONSUMER"): LATER,
        ("PRODUCER", "CLOSE_PRODUCER"): LEFT_OPEN,
    },
}
"""Rows of docs/pulsar-4-and-5.md: pairs for which Vela has an outcome of 4.0.8 alone."""
MAY_BE_EARLY: Final[dict[str, frozenset[str]]] = {
    "pulsar-4.0.8": frozenset({"SUBSCRIBE", "SUBSCRIBE other"}),
    "pulsar-5.0.1": frozenset(
        {
            "SUBSCRIBE",
            "SUBSCRIBE other",
            "SEEK",
            "SEEK time",
            "UNSUBSCRIBE",
            "PRODUCER",
            "CLOSE_PRODUCER",
        }
    ),
}
"""The command after one of these may come before it has taken effect."""


@pytest.mark.usefixtures("beside")
def test_pairs_of_commands_have_the_outcomes_of_real_pulsar(
    servers: Servers, release: Release
) -> None:
    oracle = release.name
    vela, pulsar = trio.run(_both, servers, oracle)
    different = DIFFERENT.keys() | DIFFERENT_IN[oracle].keys()
    unseen = _unseen(vela, pulsar, different)
    for number in range(ROUNDS_MAX):
        if not unseen:
            break
        cases_at_a_time = 1 if number % 2 else CASES_AT_A_TIME
        more = trio.run(
            run_pairs,
            servers[oracle],
            unseen,
            f"{number}",
            MORE_REPETITIONS,
            cases_at_a_time,
        )
        for pair, outcomes in more.items():
            pulsar[pair] += outcomes
        unseen = _unseen(vela, pulsar, different)
    early = [pair for pair in unseen if pair[0] in MAY_BE_EARLY[oracle]]
    apart = partial(run_pairs, is_apart=True)
    for pair, outcomes in trio.run(
        apart, servers[oracle], early, "apart", APART_REPETITIONS
    ).items():
        pulsar[pair] += outcomes
    unseen = _unseen(vela, pulsar, different)
    assert not unseen, "\n".join(_text(pair, vela, pulsar) for pair in unseen)


async def _both(servers: Servers, oracle: str) -> tuple[Found, Found]:
    found: dict[str, Found] = {}

    async def run(name: str, repetitions: int) -> None:
        found[name] = await run_pairs(servers[name], PAIRS, "first", repetitions)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, "vela", VELA_REPETITIONS)
        nursery.start_soon(run, oracle, FIRST_REPETITIONS)
    return found["vela"], found[oracle]


def _unseen(vela: Found, pulsar: Found, different: Set[tuple[str, str]]) -> list[tuple[str, str]]:
    return [
        pair
        for pair in PAIRS
        if pair not in different and not vela[pair].keys() <= pulsar[pair].keys()
    ]


def _text(pair: tuple[str, str], vela: Found, pulsar: Found) -> str:
    lines = [f"{pair[0]}, then {pair[1]}:"]
    for name, found in (("pulsar", pulsar), ("vela", vela)):
        lines += [f"  {name} {count} times: {each.text()}" for each, count in found[pair].items()]
    return "\n".join(lines)
