"""What is done to a cluster in one round, drawn from the kind of fault and a seed. Pure.

The same kind and seed give the same plan. What a plan cannot say, because it is known only at the
instant, is named by its place: the bookie at place 1 of the ensemble to which topic 2 writes then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

KINDS: Final = {
    "bookie-killed": "SIGKILL of a bookie to which a topic writes",
    "bookie-stopped": "SIGSTOP of such a bookie for longer than the add timeout, then SIGCONT",
    "requests-cut": "what brokers send to such a bookie does not arrive, what it sends does",
    "answers-cut": "what such a bookie sends to brokers does not arrive, what they send does",
    "both-cut": "nothing arrives between such a bookie and the brokers",
    "broker-killed": "SIGKILL of the owner of a topic",
    "broker-stopped": "SIGSTOP of the owner of a topic for longer than its session, then SIGCONT",
    "zookeeper-killed": "SIGKILL of ZooKeeper, and its start",
    "two-recoveries": "two clients recover the ledger to which a topic writes, at once",
    "disk-full": "the file system of a bookie to which a topic writes is filled, then freed",
    "follower-killed": "SIGKILL of a broker that serves a share of a broadcast",
    "follower-stopped": "SIGSTOP of such a broker for longer than its session, then SIGCONT",
    "owner-of-followed-topic-killed": "SIGKILL of the owner of the topic that such brokers follow",
}
"""What each kind does."""

CUTS: Final = {
    "requests-cut": ("requests",),
    "answers-cut": ("answers",),
    "both-cut": ("requests", "answers"),
}
"""Directions in which nothing arrives."""

ONE_BOOKIE_SILENT: Final = frozenset({"bookie-killed", "bookie-stopped", *CUTS})
"""Kinds that must not stop publishing for longer than one add timeout."""

FOLLOWED: Final = frozenset(
    {"follower-killed", "follower-stopped", "owner-of-followed-topic-killed"}
)
"""Kinds with one topic, whose broadcast is shared by followers."""

TOPICS: Final = 4
FOLLOWERS: Final = 2
INSTANT_MS: Final = (150, 1_400)
DISK_LEFT_BYTES: Final = (0, 16 << 10, 512 << 10, 2 << 20)
"""All of them are less than what keeps a bookie writable."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Shortened, so that a round takes seconds. They are part of the results."""

    add_timeout_seconds: int = 2
    """bookkeeperClientTimeoutInSeconds of brokers, and of the clients that recover."""
    broker_session_seconds: float = 4.0
    """metadataStoreSessionTimeoutMillis."""
    bookie_session_seconds: float = 4.0
    """zkTimeout."""
    quarantine_seconds: int = 1
    """bookkeeperClientHealthCheckQuarantineTimeInSeconds."""
    disk_check_seconds: float = 1.0
    """diskCheckInterval of bookies."""
    entries_per_ledger: int = 100
    """managedLedgerMaxEntriesPerLedger: ledgers are replaced about once in two seconds."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One round."""

    kind: str
    seed: int
    quorums: str
    """Ensemble, write and ack quorum of all ledgers."""
    bookies: int
    topic: int
    """Number of the topic whose bookie, owner or ledger is hit."""
    place: int
    """Of the bookie in the ensemble of that topic."""
    instant_ms: int
    """Of load before the fault."""
    lasting_ms: int
    """How long the fault lasts, where it does not end by itself."""
    is_reset: bool
    """The connections of a cut end with it. Otherwise what was held back arrives late."""
    is_up_for_reading: bool
    """A killed process is started again before what is stored is read."""
    is_taken_over: bool
    """Another broker serves the topics of a stopped one before it goes on."""
    apart_ms: int
    """Between the two recoveries."""
    disk_left_bytes: int
    brokers: int
    holes_at: int
    """Of a broadcast: the number of the share whose consumers leave holes. The source's own are
    number 0; a number without a share means none."""


def quorums_of(seed: int) -> tuple[str, int]:
    """(quorums, bookies): one bookie more than an ensemble has. Even seeds use the one pair, odd
    seeds the other."""
    return ("2/2/2", 3) if seed % 2 else ("3/2/2", 4)


def brokers_of(kind: str) -> int:
    """How many brokers a kind needs."""
    return 1 + FOLLOWERS if kind in FOLLOWED else 2


def plan_of(kind: str, seed: int, draw: Random, times: Times) -> Plan:
    """`draw` is seeded with both. Everything is drawn for every kind, so that plans of one kind do
    not change with another."""
    quorums, bookies = quorums_of(seed)
    topic = draw.randrange(TOPICS)
    place = draw.randrange(bookies - 1)
    instant_ms = draw.randint(*INSTANT_MS)
    share = draw.random()
    return Plan(
        kind=kind,
        seed=seed,
        quorums=quorums,
        bookies=bookies,
        topic=topic,
        place=place,
        instant_ms=instant_ms,
        lasting_ms=_lasting_ms(kind, share, times),
        is_reset=draw.random() < 0.5,
        is_up_for_reading=draw.random() < 0.5,
        is_taken_over=draw.random() < 0.75,
        apart_ms=draw.choice((0, 0, 1, 3, 10, 30)),
        disk_left_bytes=draw.choice(DISK_LEFT_BYTES),
        brokers=brokers_of(kind),
        holes_at=draw.randrange(FOLLOWERS + 2),
    )


def _lasting_ms(kind: str, share: float, times: Times) -> int:
    add_timeout_ms = 1_000 * times.add_timeout_seconds
    if kind == "bookie-stopped":
        # The longest of them end the session of the bookie as well.
        return int(1.2 * add_timeout_ms + share * 1_000 * times.bookie_session_seconds)
    if kind in CUTS:
        return int(1.2 * add_timeout_ms + share * 1_500)
    if kind == "zookeeper-killed":
        return int(share * 1.2 * 1_000 * times.broker_session_seconds)
    if kind == "disk-full":
        return int(500 + share * 2_500)
    return 0


def rounds_left(
    kinds: Iterable[str], seeds: Iterable[int], done: Iterable[tuple[str, int]]
) -> list[tuple[str, int]]:
    """(kind, seed) of what is still to be done: rounds of one cluster together, and all kinds of a
    seed one after the other, so that an interrupted run has about as many of each."""
    known = frozenset(done)
    left = [(kind, seed) for seed in seeds for kind in kinds if (kind, seed) not in known]
    return sorted(left, key=lambda each: (each[1] // 6, brokers_of(each[0]), each[1] % 2, each[1]))
