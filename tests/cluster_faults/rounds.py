"""One round: a load on fresh topics, one fault at its instant, and what became of every message."""

from __future__ import annotations

import os
import threading
import time
import traceback
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.cluster_faults.checks import check_topic, longest_pause_seconds
from tests.cluster_faults.cluster import topics_of
from tests.cluster_faults.cpu_waits import CpuWaits
from tests.cluster_faults.faults import FAULTS, Scene
from tests.cluster_faults.followed import Followed
from tests.cluster_faults.load import Load, Stuck
from tests.cluster_faults.plan import FOLLOWED, ONE_BOOKIE_SILENT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster_faults.checks import TopicHistory
    from tests.cluster_faults.cluster import FaultCluster
    from tests.cluster_faults.plan import Plan, Times
    from tests.cluster_faults.proxy import Proxies

PAUSE_GRACE_SECONDS: Final = 0.5
"""Besides the add timeout: its ticks, a change of the ensemble in ZooKeeper, the load's period."""
CLOSE_SECONDS_MAX: Final = 60.0
STARVED_SECONDS: Final = 60.0
AFTER_SECONDS: Final = 0.3
"""Of load when the fault is over."""
TRACEBACKS_MAX: Final = 5


@dataclass
class Outcome:
    """Of one round, for the results. Times are in seconds."""

    kind: str
    seed: int
    quorums: str
    instant_ms: int
    acknowledged: int = 0
    read: int = 0
    doubled: int = 0
    """Copies beyond the first, of messages that had no receipt when they were sent again."""
    pause_s: float = 0.0
    """The longest time without a receipt on one topic, from the instant on."""
    pause_allowed_s: float | None = None
    """None: there is no bound for this kind."""
    waited_for_cpu_s: float = 0.0
    """In the same time, of the process that waited most; part of what is allowed."""
    seconds: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    is_void: bool = False
    """Nothing but time was lacking, and the machine did not let the cluster run. Such a round shows
    nothing and is done again."""

    def as_json(self) -> dict[str, Any]:
        """For programs; of rounds that are not void."""
        return {name: value for name, value in asdict(self).items() if name != "is_void"}


def run_round(
    cluster: FaultCluster,
    proxies: Proxies,
    plan: Plan,
    times: Times,
    directory: Path,
    client_log: Path,
) -> Outcome:
    """Never raises for what the cluster does: it is in the outcome. `client_log`: see Load."""
    directory.mkdir(parents=True, exist_ok=True)
    outcome = Outcome(plan.kind, plan.seed, plan.quorums, plan.instant_ms)
    topics = topics_of(plan.kind, plan.seed)
    load = Load(cluster.service_url, client_log, f"{plan.kind}-{plan.seed}", plan.seed, topics)
    scene = Scene(cluster, proxies, load, plan, list(topics))
    if plan.kind in FOLLOWED:
        scene.followed = Followed(cluster, plan, scene.topic, scene.history)
    logged = cluster.log_places()
    waits = CpuWaits((os.getpid(), *cluster.process_ids()))
    begun = time.monotonic()
    try:
        _play(scene, outcome, times)
    except Stuck as stuck:
        outcome.violations.append(str(stuck))
    except Exception as error:
        (directory / "error.txt").write_text(traceback.format_exc())
        outcome.violations.append(f"BROKEN: {type(error).__name__}: {error}"[:500])
    finally:
        _close(scene, outcome)
    outcome.seconds = round(time.monotonic() - begun, 2)
    outcome.notes = scene.notes
    tracebacks = cluster.tracebacks_since(logged)
    if tracebacks:
        outcome.notes["tracebacks"] = tracebacks[:TRACEBACKS_MAX]
    outcome.violations += scene.violations + load.errors
    outcome.violations += [
        f"ENDED: {process.how_it_ended()}: {_last_line(process.log_tail())}"
        for process in cluster.ended_processes()
    ]
    for name, history in load.histories.items():
        _count(outcome, history)
        if name in load.topics_read:
            outcome.violations += check_topic(name.rpartition("/")[2], history)
    is_only_late = all(each.startswith("STUCK") for each in outcome.violations)
    outcome.is_void = (
        bool(outcome.violations) and is_only_late and is_starved(waits.longest_seconds())
    )
    return outcome


def is_starved(waited_seconds: float) -> bool:
    """Whether a cluster that is late may blame the machine: a process waited that long for a CPU in
    one round."""
    return waited_seconds >= STARVED_SECONDS


def _play(scene: Scene, outcome: Outcome, times: Times) -> None:
    load, plan, followed = scene.load, scene.plan, scene.followed
    if followed is not None:
        followed.start()
    load.start()
    time.sleep(plan.instant_ms / 1_000)
    waits = CpuWaits((os.getpid(), *scene.cluster.process_ids()))
    instant = time.monotonic()
    FAULTS[plan.kind](scene)
    time.sleep(AFTER_SECONDS)
    load.finish_publishing()
    end = time.monotonic()
    pauses = [
        longest_pause_seconds(load.receipt_times(topic), instant, end) for topic in scene.topics
    ]
    outcome.pause_s = round(max(pauses), 3)
    outcome.waited_for_cpu_s = round(waits.longest_seconds(), 3)
    if plan.kind in ONE_BOOKIE_SILENT:
        allowed = times.add_timeout_seconds + PAUSE_GRACE_SECONDS + outcome.waited_for_cpu_s
        outcome.pause_allowed_s = round(allowed, 3)
        if outcome.pause_s > allowed:
            outcome.violations.append(f"PAUSED: {outcome.pause_s} s without a receipt")
    load.read_back()
    if followed is not None:
        followed.read_back()
    for undo in scene.afterwards:
        undo()
    scene.cluster.wait_whole()


def _close(scene: Scene, outcome: Outcome) -> None:
    """The client's end may wait for brokers that do not answer."""
    if scene.followed is not None:
        scene.followed.close()
        outcome.violations += scene.followed.violations
        scene.notes |= scene.followed.notes()
    closing = threading.Thread(target=scene.load.close, daemon=True)
    closing.start()
    closing.join(CLOSE_SECONDS_MAX)
    if closing.is_alive():
        outcome.violations.append("STUCK: the client could not be closed")


def _count(outcome: Outcome, history: TopicHistory) -> None:
    outcome.acknowledged += sum(len(each.receipts) for each in history.producers.values())
    outcome.read += len(history.log)
    distinct = {(producer, message) for _, producer, message, _ in history.log}
    outcome.doubled += len(history.log) - len(distinct)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""
