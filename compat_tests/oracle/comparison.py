"""Run one scenario on both servers at once and compare the traces.

Invariant: a scenario counts as equal only when it ran to its end on both servers and both traces
are the same, event by event. One that failed on the oracle alone, which is the measure and not
under test, is run once more, on topics of other names; the outcome says so.
A trace is never a reason to run a scenario again, and a failure of Vela, the first or the second
time, is a failure.
"""

from __future__ import annotations

import difflib
import json
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from compat_tests.oracle.server_process import ServerProcess

Trace = list[Any]

REPETITION_MARK = "-played-again"
"""Ends the names of a scenario's topics when it is run again; no scenario has it in a name."""


@dataclass(frozen=True)
class Outcome:
    """The result of one server.

    `failure`: the reason when the scenario did not reach its end; `failure_before`: the reason why
    an earlier attempt did not, when this is of the second.
    """

    trace: Trace
    failure: str | None
    failure_before: str | None = None


class ScenarioFailed(Exception):
    """Raised by a player with what was seen up to the failure."""

    def __init__(self, why: str, trace: Trace) -> None:
        super().__init__(why)
        self.trace = trace


Player = Callable[[ServerProcess, str], Trace]
"""Plays on a server, on topics whose common name ends in the mark given."""


def play_on_all(servers: Mapping[str, ServerProcess], play: Player) -> dict[str, Outcome]:
    """Run a scenario on every server at the same time; the outcome by server name.

    It is run again on every server, because the place of a message may depend on a topic's name.
    """
    first = _side_by_side(servers, play, "")
    failed = [servers[name] for name, outcome in first.items() if outcome.failure is not None]
    if not failed or not all(server.is_oracle for server in failed):
        return first
    second = _side_by_side(servers, play, REPETITION_MARK)
    return {
        name: replace(outcome, failure_before=first[name].failure)
        for name, outcome in second.items()
    }


def _side_by_side(
    servers: Mapping[str, ServerProcess], play: Player, mark: str
) -> dict[str, Outcome]:
    with ThreadPoolExecutor(len(servers)) as pool:
        started = {name: pool.submit(_attempt, each, play, mark) for name, each in servers.items()}
        return {name: future.result() for name, future in started.items()}


def _attempt(server: ServerProcess, play: Player, mark: str) -> Outcome:
    try:
        if mark and server.is_oracle and not is_of_use(server):
            server.kill()
            server.start()
        trace, failure = play(server, mark), None
    except ScenarioFailed as failed:
        trace, failure = failed.trace, str(failed)
    except Exception:
        trace, failure = [], traceback.format_exc(limit=-6)
    # What a client makes of a server that is gone says less than that it is gone.
    ended = server.how_it_ended()
    if ended is not None:
        failure = f"{ended}:\n{server.log_tail()}\n{failure or 'the scenario came to its end'}"
    return Outcome(trace, failure)


def is_of_use(server: ServerProcess) -> bool:
    """Whether it runs, a client can use it, and nothing is known to be wrong with its start."""
    return server.is_running() and server.is_ready() and server.flaw_of_start() is None


def failures(outcomes: Mapping[str, Outcome]) -> list[str]:
    """Lines for a human about servers on which the scenario did not reach its end."""
    told: list[str] = []
    for name, outcome in outcomes.items():
        if outcome.failure is not None:
            told.append(f"on {name} the scenario failed:\n{outcome.failure}")
            if outcome.failure_before is not None:
                told.append(f"and before that:\n{outcome.failure_before}")
            told += [f"  seen before it: {line}" for line in lines(outcome.trace)[-5:]]
        elif not outcome.trace:
            told.append(f"on {name} nothing was seen")
    return told


def difference(outcomes: Mapping[str, Outcome]) -> str | None:
    """None when all are equal and complete; else a text for a human."""
    told = failures(outcomes)
    if not told:
        (first, left), *others = sorted(outcomes.items())
        for name, right in others:
            if left.trace != right.trace:
                told += difflib.unified_diff(
                    lines(left.trace), lines(right.trace), first, name, lineterm="", n=2
                )
    return "\n".join(told) or None


def lines(trace: Trace) -> list[str]:
    """A line per event, long ones cut."""
    return [json.dumps(event, ensure_ascii=False, sort_keys=True)[:400] for event in trace]
