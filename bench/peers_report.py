"""What `make bench-peers` measures, and its page: Vela beside what a user would pick instead."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from bench.fanout_report import USUAL_LOAD, short
from bench.measurement import per_million
from bench.report import origins, spread_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.results import Figures, Record

FULL_SPEED: Final = "1 KB at full speed"
PACED: Final = "1,000 msg/s, one by one"
FANOUT: Final = "fan-out"
FANOUT_CONSUMERS: Final = {"vela": 20_000, "nats-core": 20_000, "jetstream": 20_000, "kafka": 500}
CONNECTIONS: Final = 16
MESSAGE_BYTES: Final = 1_024
PACED_RATE: Final = 1_000


@dataclass(frozen=True)
class Peer:
    """One row of each table."""

    name: str
    server: str
    """The process that serves it."""
    title: str
    client: str
    durable: str
    """What is synced before a receipt is sent."""


PEERS: Final = {
    peer.name: peer
    for peer in (
        Peer("vela", "vela", "Vela", "pulsar-client (Java)", "the journal, by groups of messages"),
        Peer(
            "pulsar",
            "pulsar",
            "Pulsar, standalone default",
            "pulsar-client (Java)",
            "nothing: the journal is written, not synced",
        ),
        Peer(
            "jetstream",
            "nats",
            "NATS JetStream, `sync_interval: always`",
            "nats.go (Go)",
            "the file of the stream, message by message",
        ),
        Peer(
            "nats-core",
            "nats",
            "NATS core",
            "nats.go (Go)",
            "nothing: it stores nothing and sends no receipt",
        ),
        Peer(
            "kafka-flush",
            "kafka",
            "Kafka, `flush.messages=1`",
            "kafka-clients (Java)",
            "the log of the partition and its indexes, by the producer's batches",
        ),
        Peer(
            "kafka",
            "kafka",
            "Kafka, default",
            "kafka-clients (Java)",
            "nothing: the log is written, and synced when the kernel likes",
        ),
    )
}


@dataclass(frozen=True)
class Load:
    """One table."""

    said: str
    peers: tuple[str, ...]
    figures: tuple[str, ...]
    not_run: Mapping[str, str] = field(default_factory=dict)
    """Peer -> why it has no figures."""


_STORES_NOTHING: Final = "not run: there is no receipt to count or to wait for"
_PUBLISH_PEERS: Final = ("vela", "pulsar", "jetstream", "kafka-flush", "kafka")
LOADS: Final = {
    FULL_SPEED: Load(
        "One producer on one topic (one partition, one stream) as fast as it can, with the batching"
        " that its client does by default; at most 10,000 messages without a receipt, 4,000 with"
        " JetStream (its client's default; it does not batch).",
        _PUBLISH_PEERS,
        ("msg/s", "server CPU us/message", "resident MB"),
        {"nats-core": _STORES_NOTHING},
    ),
    PACED: Load(
        f"{PACED_RATE:,} messages a second, {MESSAGE_BYTES:,} bytes each, with batching off, after"
        " a time of warming up in which one message follows the receipt of the one before. A"
        " latency counts until the receipt, and from the time at which the message was due if"
        " the producer was late.",
        _PUBLISH_PEERS,
        ("publish p50 ms", "publish p99 ms", "msg/s", "server CPU us/message", "resident MB"),
        {"nats-core": _STORES_NOTHING},
    ),
    FANOUT: Load(
        f"One message of {USUAL_LOAD.size_bytes:,} bytes a second, and every consumer gets every"
        " message."
        f" Vela: one broadcast subscription, acknowledged one by one, on {CONNECTIONS} connections,"
        f" driven by `vela perf fanout`. NATS: a subscription each, on {CONNECTIONS} connections;"
        " with JetStream a consumer each, kept in memory, acknowledged one by one. Kafka: consumers"
        " that read the same partition, without commits; each is a client with connections and a"
        " thread of its own, so that the generator bounds their number.",
        ("vela", "nats-core", "jetstream", "kafka"),
        (
            "consumers",
            "subscribe all s",
            "delivery p50 s",
            "delivery p99 s",
            "delivery max s",
            "lost",
            "server CPU s/message",
            "server CPU us/delivery",
            "resident MB",
        ),
        {
            "pulsar": "not run: a subscription for each consumer, see [fanout.md](fanout.md)",
            "kafka-flush": "not run: as the default, but for the writing of one message a second",
        },
    ),
}


def published(
    windows: Sequence[Mapping[str, float]], cpu_seconds: float, resident_mebibytes: float
) -> Figures:
    """Of lines of a load program: the first one ends what is not measured. `messages` and `seconds`
    count from the start of the program. Raises: PerfFailed: no message passed."""
    first, last = windows[0], windows[-1]
    messages = last["messages"] - first["messages"]
    latencies = {
        f"publish {each} ms": sum(window[f"{each} ms"] for window in windows[1:])
        / (len(windows) - 1)
        for each in ("p50", "p99")
        if f"{each} ms" in first
    }
    return {
        "msg/s": messages / (last["seconds"] - first["seconds"]),
        **latencies,
        "server CPU us/message": per_million(cpu_seconds, int(messages)),
        "resident MB": resident_mebibytes,
    }


def delivered(
    consumers: int,
    subscribed_seconds: float,
    line: Mapping[str, float],
    cpu_seconds: float,
    resident_mebibytes: float,
) -> Figures:
    """Of the last line of a fan-out."""
    per_message = cpu_seconds / line["messages"]
    return {
        "consumers": consumers,
        "subscribe all s": subscribed_seconds,
        **{f"delivery {each} s": line[f"{each} s"] for each in ("p50", "p99", "max")},
        "lost": line["lost"],
        "server CPU s/message": per_message,
        "server CPU us/delivery": per_message / consumers * 1e6,
        "resident MB": resident_mebibytes,
    }


def of_vela_fanout(consumers: int, figures: Mapping[str, float | None]) -> Figures:
    """The same of a round of `bench.fanout`. What it did not tell is left out."""
    per_message = figures["broker CPU s/message"]
    known = {
        "subscribe all s": figures["subscribe all s"],
        **{f"delivery {each} s": figures[f"delivery {each} s"] for each in ("p50", "p99", "max")},
        "lost": figures["lost"],
        "server CPU s/message": per_message,
        "server CPU us/delivery": None if per_message is None else per_message / consumers * 1e6,
        "resident MB": figures["broker memory MB"],
    }
    return {"consumers": consumers} | {
        name: value for name, value in known.items() if value is not None
    }


def table(name: str, record: Record | None, absent: Mapping[str, str]) -> str:
    """One load in Markdown. `absent`: server -> why it cannot be had."""
    load = LOADS[name]
    lines = [
        "| | " + " | ".join(load.figures) + " | synced before the receipt |",
        "|---" + "|---:" * len(load.figures) + "|---|",
    ]
    for peer in PEERS.values():
        rounds = [] if record is None else record.rounds.get(peer.name, [])
        if rounds:
            cells = [_cell(rounds, figure) for figure in load.figures]
        else:
            why = load.not_run.get(peer.name) or absent.get(peer.server) or "not measured"
            cells = [why, *("" for _ in load.figures[1:])]
        lines.append("| " + " | ".join([peer.title, *cells, peer.durable]) + " |")
    return "\n".join(lines)


def _cell(rounds: Sequence[Figures], figure: str) -> str:
    values = [each[figure] for each in rounds if figure in each]
    if not values:
        return "?"
    if min(values) == max(values):
        return short(values[0])
    return str(spread_of(values))


def document(
    records: Mapping[str, Record], absent: Mapping[str, str], about: Mapping[str, Any]
) -> str:
    """The page `peers.md`."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    clients = "\n".join(
        f"* {peer.title}: {'`vela perf fanout`, else ' if peer.name == 'vela' else ''}{peer.client}"
        for peer in PEERS.values()
    )
    tables = "\n\n".join(
        f"## {name}\n\n{load.said}\n\n{table(name, records.get(name), absent)}"
        for name, load in LOADS.items()
    )
    missing = "".join(f"\n\n{server} could not be had: {why}." for server, why in absent.items())
    return (
        "# Vela beside its peers\n\n"
        "Generated by `make bench-peers`; do not edit. Medians of the rounds, smallest and largest"
        f" in parentheses. {versions}; {about['machine']}. All run on this machine with one server"
        " each, unreplicated. One is under load at a time, the other ones are stopped (SIGSTOP);"
        " each was warmed up until it got no faster. The load shares the processors with the server"
        " it loads. CPU is user and system time of the server's process alone.\n\n"
        "Each is driven by the client that its users have, with the same loop around it: a Java"
        " program for Kafka and for Pulsar's protocol, a Go program for NATS.\n\n"
        f"{clients}\n\n"
        "Kafka runs in KRaft mode, broker and controller in one process, with the heap and the"
        " collector of its own scripts; Pulsar with the settings of its distribution. Their other"
        " settings are the defaults, but deleted data is freed at once, and Kafka's broker session"
        f" outlasts a stop.{missing}\n\n"
        f"{tables}\n\n"
        f"## What was measured when\n\n{origins(records)}\n"
    )
