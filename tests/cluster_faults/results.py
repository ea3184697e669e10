"""The file in which outcomes accumulate. Several runs may add to it, also at once.

    {"times": {...}, "kinds": {"bookie-killed": {"is": "...", "instants": 100, ...}, ...},
     "rounds": [{"kind": ..., "seed": ..., ...}, ...]}

A round is there once: the newest outcome of a kind and seed counts. The file is replaced as a
whole, under a lock beside it, so an interrupted run leaves the outcomes of its finished rounds.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from tests.cluster_faults.plan import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

Json = dict[str, Any]
CALM_SECONDS: Final = 1.0
"""Where no process waited longer for a CPU, the pause is that of the cluster."""


def merged(rounds: Sequence[Json], added: Sequence[Json]) -> list[Json]:
    """All rounds, the newest outcome of each, by kind and seed."""
    newest = {(each["kind"], each["seed"]): each for each in (*rounds, *added)}
    order = {kind: number for number, kind in enumerate(KINDS)}
    return sorted(newest.values(), key=lambda each: (order[each["kind"]], each["seed"]))


def summary_of(rounds: Sequence[Json]) -> dict[str, Json]:
    """What each kind has shown so far."""
    summary: dict[str, Json] = {}
    for kind, description in KINDS.items():
        of_kind = [each for each in rounds if each["kind"] == kind]
        if not of_kind:
            continue
        pauses = [each["pause_s"] for each in of_kind]
        bounded = [each for each in of_kind if each["pause_allowed_s"] is not None]
        summary[kind] = {
            "is": description,
            "instants": len(of_kind),
            "acknowledged": sum(each["acknowledged"] for each in of_kind),
            "read": sum(each["read"] for each in of_kind),
            "doubled_by_clients": sum(each["doubled"] for each in of_kind),
            "pause_median_s": round(median(pauses), 3),
            "pause_max_s": max(pauses),
            "rounds_with_violations": sum(bool(each["violations"]) for each in of_kind),
        }
        if bounded:
            calm = [each["pause_s"] for each in bounded if each["waited_for_cpu_s"] <= CALM_SECONDS]
            summary[kind] |= {"calm_instants": len(calm), "calm_pause_max_s": max(calm, default=0)}
    return summary


def text_of(summary: Mapping[str, Json]) -> str:
    """For people."""
    width = max(map(len, summary), default=0)
    lines = [f"{'':{width}} instants  acknowledged  doubled  pause median / max s  with violations"]
    lines += (
        f"{kind:{width}} {each['instants']:8} {each['acknowledged']:13} "
        f"{each['doubled_by_clients']:8} "
        f"{each['pause_median_s']:13.2f} / {each['pause_max_s']:5.2f} "
        f"{each['rounds_with_violations']:16}"
        for kind, each in summary.items()
    )
    return "\n".join(lines)


def encode(times: Json, rounds: Sequence[Json]) -> str:
    """The file's content: one line per round."""
    head = json.dumps({"times": times, "kinds": summary_of(rounds)}, indent=1)
    lines = ",\n".join(f"  {json.dumps(each)}" for each in rounds)
    return f'{head[:-2]},\n "rounds": [\n{lines}\n ]\n}}\n'


def read_rounds(path: Path) -> list[Json]:
    """Those in the file, none without one."""
    if not path.exists():
        return []
    rounds: list[Json] = json.loads(path.read_text())["rounds"]
    return rounds


def add_round(path: Path, times: Json, outcome: Json) -> None:
    """Put one outcome into the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path):
        content = encode(times, merged(read_rounds(path), [outcome]))
        beside = path.with_suffix(".new")
        beside.write_text(content)
        os.replace(beside, path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
