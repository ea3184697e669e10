"""Play one scenario on both servers at once and compare what was seen.

Invariant: a scenario counts as equal only when it ran to its end on both servers and both traces
are the same, event by event.
"""

from __future__ import annotations

import difflib
import json
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from compat_tests.oracle.server_process import ServerProcess

Trace = list[Any]


@dataclass(frozen=True)
class Outcome:
    """What one server showed; `failure` is the reason when the scenario did not reach its end."""

    trace: Trace
    failure: str | None


class ScenarioFailed(Exception):
    """Raised by a player with what was seen up to the failure."""

    def __init__(self, why: str, trace: Trace) -> None:
        super().__init__(why)
        self.trace = trace


Player = Callable[[ServerProcess], Trace]


def play_on_all(servers: Mapping[str, ServerProcess], play: Player) -> dict[str, Outcome]:
    """Play on every server at the same time; the outcome by server name."""

    def play_one(server: ServerProcess) -> Outcome:
        try:
            trace, failure = play(server), None
        except ScenarioFailed as failed:
            trace, failure = failed.trace, str(failed)
        except Exception:
            trace, failure = [], traceback.format_exc(limit=-6)
        # What a client makes of a server that is gone says less than that it is gone.
        ended = server.how_it_ended()
        if ended is not None:
            failure = f"{ended}:\n{server.log_tail()}\n{failure or 'the scenario came to its end'}"
        return Outcome(trace, failure)

    with ThreadPoolExecutor(len(servers)) as pool:
        started = {name: pool.submit(play_one, server) for name, server in servers.items()}
        return {name: future.result() for name, future in started.items()}


def difference(outcomes: Mapping[str, Outcome]) -> str | None:
    """None when all are equal and complete; else a text for a human."""
    told: list[str] = []
    for name, outcome in outcomes.items():
        if outcome.failure is not None:
            told.append(f"on {name} the scenario failed:\n{outcome.failure}")
            told += [f"  seen before it: {line}" for line in lines(outcome.trace)[-5:]]
        elif not outcome.trace:
            told.append(f"on {name} nothing was seen")
    if not told and len(outcomes) == 2:
        (first, left), (second, right) = sorted(outcomes.items())
        if left.trace != right.trace:
            told += difflib.unified_diff(
                lines(left.trace), lines(right.trace), first, second, lineterm="", n=2
            )
    return "\n".join(told) or None


def lines(trace: Trace) -> list[str]:
    """A line per event, long ones cut."""
    return [json.dumps(event, ensure_ascii=False, sort_keys=True)[:400] for event in trace]
