"""Very many publishers at full rate on one topic, read by a few Key_Shared consumers.

It has the shape of the workload `iot-telemetry-max-rate` with which Pulsar 5.0 was announced: 500
publishers of 128 bytes, unbatched, 100,000 messages outstanding at most, and one Key_Shared
subscription with 20 consumers. There it runs for four million messages on three bookies; here the
time is bounded, on one machine that the load shares. The question is the same: whether the
consumers get what is published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.measurement import BrokerMeter, per_million
from bench.scenarios import FULL_SPEED, fresh_topic

if TYPE_CHECKING:
    from bench.results import Figures
    from bench.scenarios import Bench
    from bench.subject import Subject

NAME: Final = "500 publishers at full rate, 20 Key_Shared"
DELIVERED: Final = "delivered of published %"
PUBLISHERS: Final = 500
CONSUMERS: Final = 20
CONNECTIONS: Final = 20
"""Of the publishers; those of the consumers have one each."""
OUTSTANDING: Final = 100_000
MESSAGE_BYTES: Final = 128


def max_rate(bench: Bench, server: Subject) -> Figures:
    """Both rates over the same lines of pulsar-perf. Raises: PerfFailed."""
    topic = fresh_topic("telemetry")
    produce = [
        *("produce", "-s", str(MESSAGE_BYTES), "-r", FULL_SPEED, "-db", "-mk", "random"),
        *("-n", str(PUBLISHERS), "-c", str(CONNECTIONS), "-o", str(OUTSTANDING // PUBLISHERS)),
    ]
    consume = [
        *("consume", "-ss", "s", "-st", "Key_Shared", "-n", str(CONSUMERS)),
        *("-c", str(CONSUMERS), "-sp", "Earliest"),
    ]
    with (
        BrokerMeter(server) as meter,
        bench.perf(server, *consume, topic) as consumer,
        bench.perf(server, *produce, topic) as producer,
    ):
        windows = max(bench.windows, 2)
        begun = producer.wait_begun()
        first = producer.wait_window(begun)
        read = max(len(consumer.windows()) - 1, 0)
        received = consumer.wait_window(read)
        cpu_before = server.cpu_seconds()
        last = producer.wait_window(begun + windows)
        spent = server.cpu_seconds() - cpu_before
        delivered = consumer.wait_window(read + windows)
    published = last.messages - first.messages
    seconds = last.printed_at - first.printed_at
    publish_rate = published / seconds
    delivery_rate = (delivered.messages - received.messages) / (
        delivered.printed_at - received.printed_at
    )
    return {
        "publish msg/s": publish_rate,
        "throughput msg/s": delivery_rate,
        DELIVERED: 100.0 * delivery_rate / publish_rate,
        "publish p99 ms": last.p99_ms,
        "broker CPU s/million": per_million(spent, published),
        "resident MB": meter.resident_mebibytes_max,
    }
