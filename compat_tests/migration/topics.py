"""Topics that are half consumed: written once, then read to their end, each in a namespace.

`write` leaves unacknowledged what `rest` has to get, perhaps from another broker. `rest` returns
what a user sees of it, which is the same for every copy of the topic, and checks what must hold of
any copy: exactly the messages that were not acknowledged, under the ids that their producer was
told, in the order in which they were sent. `nothing_more` checks that none of them comes again.

A broker that was killed may have stored fewer acknowledgements than it was given (`is_exact`). Then
acknowledged messages may come as well, also ends of earlier times; they are left out of what is
returned.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, final

import pulsar

from compat_tests.migration.site import END, an_end, place_of, received_until_the_end, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from compat_tests.migration.site import Place, Site

EVENT_MS = 1_700_000_000_000
Trace = dict[str, Any]


class WrittenTopic(ABC):
    """One topic of one copy."""

    name: str

    def __init__(self, namespace: str, *, is_exact: bool = True) -> None:
        self.path = f"{namespace}/{self.name}"
        self.is_exact = is_exact
        self.topic = f"persistent://{self.path}"
        self.places: dict[bytes, Place] = {}
        """Where the producer was told each payload is."""
        self.backlogs: dict[str, int] = {}
        """What the first broker said last."""

    @property
    def stats_path(self) -> str:
        """Of the statistics, for REST."""
        return f"/persistent/{self.path}/stats"

    @abstractmethod
    def write(self, site: Site) -> None:
        """Send, consume and acknowledge some of it."""

    @abstractmethod
    def rest(self, site: Site) -> Trace:
        """Consume and acknowledge what is left, and check it."""

    def written(self, site: Site) -> None:
        """`write`, and what the statistics say then."""
        self.write(site)
        self.backlogs = site.backlogs(self.stats_path)

    def taken_over(self, site: Site) -> Trace:
        """`rest`, by a broker that has just loaded the topic."""
        backlogs = site.backlogs(self.stats_path)
        self.check_backlogs(backlogs)
        return {"backlogs": self.backlogs, **self.rest(site)}

    def check_backlogs(self, seen: dict[str, int]) -> None:
        """They are as they were, or larger after a kill."""
        assert seen.keys() == self.backlogs.keys()
        for name, count in self.backlogs.items():
            assert seen[name] == count or (not self.is_exact and seen[name] > count), (name, seen)

    @abstractmethod
    def nothing_more(self, site: Site) -> None:
        """Check that everything was acknowledged, under whichever broker."""

    # --- parts of both ------------------------------------------------------------------

    def producer(self, site: Site, **fields: Any) -> pulsar.Producer:
        """Its name is the same in every copy."""
        return site.client.create_producer(self.topic, producer_name=f"by-{self.name}", **fields)

    def send(self, producer: pulsar.Producer, payloads: Iterable[bytes], **fields: Any) -> None:
        """One message after the other, with what a message can have."""
        for number, payload in enumerate(payloads):
            told = producer.send(
                payload,
                properties={"number": str(number)},
                partition_key=f"key-{number % 8}",
                event_timestamp=EVENT_MS + number,
                **fields,
            )
            self.places[payload] = place_of(told)

    def send_together(self, producer: pulsar.Producer, payloads: Iterable[bytes]) -> None:
        """Without waiting in between. As one entry, if the producer's batches are large enough."""
        wanted = list(payloads)
        answered = threading.Semaphore(0)
        failures = []

        def note(payload: bytes) -> Callable[[Any, Any], None]:
            def told(result: Any, message_id: Any) -> None:
                if result == pulsar.Result.Ok:
                    self.places[payload] = place_of(message_id)
                else:
                    failures.append(str(result))
                answered.release()

            return told

        for number, payload in enumerate(wanted):
            producer.send_async(payload, note(payload), properties={"number": str(number)})
        producer.flush()
        for _ in wanted:
            assert answered.acquire(timeout=60.0), "no answer to a message"
        assert not failures, failures[0]

    def end(self, site: Site, *topics: str, keys: Iterable[str] = ("",)) -> dict[str, str]:
        """A message after all others in each of these topics, or in this one, for each key. All
        have the properties that are returned."""
        end = an_end()
        for topic in topics or (self.topic,):
            producer = site.client.create_producer(topic)
            for key in keys:
                producer.send(b"", properties=end, partition_key=key)
            producer.close()
        return end

    def received(
        self, *consumers: pulsar.Consumer, end: dict[str, str], ends: int = 1
    ) -> list[Any]:
        """What comes before the end. An end of an earlier time may come after a kill only."""
        messages = received_until_the_end(*consumers, end=end, ends=ends)
        if self.is_exact:
            return messages
        return [message for message in messages if END not in message.properties()]

    def left(
        self,
        messages: list[Any],
        wanted: list[bytes],
        again: frozenset[bytes] = frozenset(),
    ) -> list[Any]:
        """The wanted messages as shown, each once and at the place that the producer was told.

        No others may be there but those that may come again."""
        by_payload = {bytes(message.data()): message for message in messages}
        assert len(by_payload) == len(messages), "delivered twice"
        for payload, message in by_payload.items():
            assert place_of(message.message_id()) == self.places[payload]
        surplus = by_payload.keys() - set(wanted)
        assert not self.is_exact or surplus <= again, surplus
        seen = [payload for payload in by_payload if payload not in surplus]
        assert seen == wanted
        return [shown(by_payload[payload]) for payload in seen]

    def drained(self, site: Site, *subscriptions: str, **fields: Any) -> dict[str, list[Any]]:
        """What comes to each subscription until the end."""
        consumers = {name: site.subscribe(self.topic, name, **fields) for name in subscriptions}
        end = self.end(site)
        messages = {}
        for name, consumer in consumers.items():
            messages[name] = self.received(consumer, end=end)
            consumer.close()
        return messages

    def check_drained(self, site: Site, *subscriptions: str, **fields: Any) -> None:
        """Nothing but the end comes."""
        for messages in self.drained(site, *subscriptions, **fields).values():
            self.left(messages, [])


@final
class Holes(WrittenTopic):
    """Several ledgers; single acknowledgements with more holes than fit the metadata store, a
    cumulative one, and none."""

    name = "holes"
    payloads = [b"message %d" % number for number in range(3000)]
    cumulative_count = 1234

    @staticmethod
    def is_acknowledged(number: int) -> bool:
        """One after the other at first, then every second, and more than a ledger in between."""
        return number < 7 or number % 2 == 0 or 900 <= number < 1500

    def write(self, site: Site) -> None:
        singly, cumulative, untouched = (
            site.subscribe(self.topic, name) for name in ("singly", "cumulative", "untouched")
        )
        producer = self.producer(site, max_pending_messages=len(self.payloads))
        self.send_together(producer, self.payloads)
        producer.close()
        for number in range(len(self.payloads)):
            message = singly.receive(60_000)
            if self.is_acknowledged(number):
                singly.acknowledge(message)
        cumulative.close()
        cumulative = site.subscribe(
            self.topic, "cumulative", consumer_type=pulsar.ConsumerType.Failover
        )
        for _ in range(self.cumulative_count):
            message = cumulative.receive(60_000)
        cumulative.acknowledge_cumulative(message)
        for consumer in (singly, cumulative, untouched):
            consumer.close()
        internal = site.ask("GET", f"/persistent/{self.path}/internalStats")
        assert len(internal["ledgers"]) >= 3, "the topic should have several ledgers"

    def rest(self, site: Site) -> Trace:
        messages = self.drained(site, "singly", "cumulative", "untouched")
        singly = [
            payload
            for number, payload in enumerate(self.payloads)
            if not self.is_acknowledged(number)
        ]
        return {
            "singly": self.left(messages["singly"], singly),
            "cumulative": self.left(messages["cumulative"], self.payloads[self.cumulative_count :]),
            "untouched": self.left(messages["untouched"], self.payloads),
        }

    def nothing_more(self, site: Site) -> None:
        self.check_drained(site, "singly", "cumulative", "untouched")


@final
class Batches(WrittenTopic):
    """Compressed batches of which single messages are acknowledged, one way and the other.

    Pulsar 4.0.8 stores which they are when it closes a topic, and does not read that again: under
    real Pulsar the whole of a partly acknowledged batch may come.
    """

    name = "batches"
    size = 10
    batches = [[b"%d in %d" % (index, batch) for index in range(10)] for batch in range(6)]
    acknowledged = {0: range(10), 1: (), 2: (0, 1, 9), 3: range(0, 10, 2), 4: (5,), 5: range(1, 10)}

    def write(self, site: Site) -> None:
        fields = {"batch_index_ack_enabled": True}
        singly = site.subscribe(self.topic, "singly", **fields)
        exclusive = {"consumer_type": pulsar.ConsumerType.Exclusive}
        cumulative = site.subscribe(self.topic, "cumulative", **fields, **exclusive)
        producer = self.producer(
            site,
            batching_enabled=True,
            batching_max_messages=self.size,
            batching_max_publish_delay_ms=60_000,
            compression_type=pulsar.CompressionType.LZ4,
        )
        for payloads in self.batches:
            self.send_together(producer, payloads)
        producer.close()
        for indexes in self.acknowledged.values():
            for index in range(self.size):
                message = singly.receive(60_000)
                if index in indexes:
                    singly.acknowledge(message)
        for _ in range(25):
            message = cumulative.receive(60_000)
        cumulative.acknowledge_cumulative(message)
        singly.close()
        cumulative.close()

    def rest(self, site: Site) -> Trace:
        messages = self.drained(site, "singly", "cumulative", batch_index_ack_enabled=True)
        flat = [payload for payloads in self.batches for payload in payloads]
        wanted = {
            "singly": [
                payload
                for batch, indexes in self.acknowledged.items()
                for index, payload in enumerate(self.batches[batch])
                if index not in indexes
            ],
            "cumulative": flat[25:],
        }
        again = dict.fromkeys(wanted, frozenset[bytes]())
        if site.server.is_oracle:
            again = {"singly": frozenset(flat[10:]), "cumulative": frozenset(flat[20:])}
        return {
            name: self.left(messages[name], payloads, again[name])
            for name, payloads in wanted.items()
        }

    def nothing_more(self, site: Site) -> None:
        self.check_drained(site, "singly", "cumulative", batch_index_ack_enabled=True)


@final
class Delayed(WrittenTopic):
    """Messages for now, for a moment ago, for later, and for the far future."""

    name = "delayed"
    later_seconds = 25.0
    tick_seconds = 1.0
    """Pulsar looks at the clock that often, and may be so much early."""
    far_seconds = 24 * 3600.0

    def write(self, site: Site) -> None:
        consumer = site.subscribe(self.topic, "delayed")
        producer = self.producer(site)
        now = time.time()
        self.later = now + self.later_seconds
        self.send(producer, [b"at once 0", b"at once 1", b"at once 2"])
        for text, due in ((b"soon", now + 1), (b"later", self.later), (b"far", now + 86_400)):
            self.send(producer, [text + b" 0", text + b" 1"], deliver_at=int(due * 1000))
        producer.close()
        message = consumer.receive(60_000)
        assert message.data() == b"at once 0"
        consumer.acknowledge(message)
        consumer.close()

    def rest(self, site: Site) -> Trace:
        consumer = site.subscribe(self.topic, "delayed")
        end = self.end(site)
        wanted = {b"at once 1", b"at once 2", b"soon 0", b"soon 1", b"later 0", b"later 1"}
        messages = {}
        is_ended = False
        while not is_ended or wanted - messages.keys():
            message = consumer.receive(60_000)
            if message.properties() == end:
                is_ended = True
            elif self.is_exact or END not in message.properties():
                payload = bytes(message.data())
                assert payload in wanted or not self.is_exact, payload
                assert not payload.startswith(b"later") or (
                    time.time() >= self.later - self.tick_seconds
                )
                assert messages.setdefault(payload, message) is message, "delivered twice"
            consumer.acknowledge(message)
        consumer.close()
        self.check_drained(site, "delayed")
        in_order = [messages[payload] for payload in sorted(wanted)]
        return {"due": self.left(in_order, sorted(wanted)), "kept": site.backlogs(self.stats_path)}

    def nothing_more(self, site: Site) -> None:
        self.check_drained(site, "delayed")


@final
class Keys(WrittenTopic):
    """Two Key_Shared consumers, of which each leaves some of each key."""

    name = "keys"
    keys = [f"key-{number}" for number in range(8)]
    payloads = [b"%d" % number for number in range(64)]

    @staticmethod
    def is_acknowledged(number: int) -> bool:
        """Of every key the first two; of every second one the fourth as well."""
        return number < 16 or (number % 2 == 0 and 24 <= number < 32)

    def consumers(self, site: Site) -> list[pulsar.Consumer]:
        return [
            site.subscribe(
                self.topic,
                "keys",
                consumer_type=pulsar.ConsumerType.KeyShared,
                consumer_name=f"consumer-{number}",
            )
            for number in range(2)
        ]

    def write(self, site: Site) -> None:
        consumers = self.consumers(site)
        producer = self.producer(site)
        self.send(producer, self.payloads)
        producer.close()
        deadline = time.monotonic() + 60.0
        missing = set(self.payloads)
        while missing:
            assert time.monotonic() < deadline, f"{len(missing)} messages did not come"
            for consumer in consumers:
                try:
                    message = consumer.receive(20)
                except pulsar.Timeout:
                    continue
                missing.discard(bytes(message.data()))
                if self.is_acknowledged(int(message.data())):
                    consumer.acknowledge(message)
        for consumer in consumers:
            consumer.close()

    def rest(self, site: Site) -> Trace:
        messages = self._drained(site)
        seen = {}
        for at, key in enumerate(self.keys):
            wanted = [
                payload
                for number, payload in enumerate(self.payloads)
                if number % len(self.keys) == at and not self.is_acknowledged(number)
            ]
            of_key = [message for message in messages if message.partition_key() == key]
            seen[key] = self.left(of_key, wanted)
        return seen

    def _drained(self, site: Site) -> list[Any]:
        consumers = self.consumers(site)
        end = self.end(site, keys=self.keys)
        messages = self.received(*consumers, end=end, ends=len(self.keys))
        for consumer in consumers:
            consumer.close()
        return messages

    def nothing_more(self, site: Site) -> None:
        self.left(self._drained(site), [])


@final
class Partitions(WrittenTopic):
    """A partitioned topic with holes in each partition."""

    name = "partitions"
    count = 3
    payloads = [b"%d" % number for number in range(60)]

    @property
    def stats_path(self) -> str:
        return f"/persistent/{self.path}/partitioned-stats"

    def write(self, site: Site) -> None:
        site.ask("PUT", f"/persistent/{self.path}/partitions", self.count)
        consumer = site.subscribe(self.topic, "shared")
        producer = self.producer(site)
        self.send(producer, self.payloads)
        producer.close()
        for _ in self.payloads:
            message = consumer.receive(60_000)
            if self.is_acknowledged(message):
                consumer.acknowledge(message)
        consumer.close()

    @staticmethod
    def is_acknowledged(message: Any) -> bool:
        """Of each partition the first two and every second."""
        entry_id = message.message_id().entry_id()
        return entry_id < 2 or entry_id % 2 == 0

    def rest(self, site: Site) -> Trace:
        partitions = site.client.get_topic_partitions(self.topic)
        assert partitions == [f"{self.topic}-partition-{index}" for index in range(self.count)]
        messages = self._drained(site)
        seen = {}
        for index in range(self.count):
            wanted = [
                payload
                for payload, (partition, _ledger_id, entry_id, _) in self.places.items()
                if partition == index and entry_id >= 2 and entry_id % 2
            ]
            of_partition = [
                message for message in messages if message.message_id().partition() == index
            ]
            seen[str(index)] = self.left(of_partition, wanted)
        return seen

    def _drained(self, site: Site) -> list[Any]:
        consumer = site.subscribe(self.topic, "shared")
        partitions = [f"{self.topic}-partition-{index}" for index in range(self.count)]
        end = self.end(site, *partitions)
        messages = self.received(consumer, end=end, ends=self.count)
        consumer.close()
        return messages

    def nothing_more(self, site: Site) -> None:
        self.left(self._drained(site), [])
