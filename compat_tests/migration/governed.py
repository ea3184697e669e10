"""What a broker keeps about topics beside their messages: schemas, sequence ids, policies."""

from __future__ import annotations

from typing import Any, final

import pulsar
import pytest
from pulsar.schema import AvroSchema

from compat_tests.migration.site import Site, an_end, shown
from compat_tests.migration.topics import Trace, WrittenTopic
from compat_tests.oracle.redirects import ask


def record(*names: str, of: str = "int") -> AvroSchema:
    """An event with these fields, all of which may be missing."""
    fields = [{"name": name, "type": ["null", of], "default": None} for name in names]
    return AvroSchema(None, {"type": "record", "name": "Event", "fields": fields})


@final
class Schemas(WrittenTopic):
    """Two versions of a schema, and messages of both."""

    name = "schemas"

    @property
    def schemas_path(self) -> str:
        return f"/schemas/{self.path}/schemas"

    def write(self, site: Site) -> None:
        consumer = site.subscribe(self.topic, "typed")
        for number, schema in enumerate((record("a"), record("a", "b"))):
            producer = self.producer(site, schema=schema)
            for value in range(3):
                producer.send({"a": 10 * number + value, "b": None})
            producer.close()
        for number in range(6):
            message = consumer.receive(60_000)
            if number in (0, 4):
                consumer.acknowledge(message)
        consumer.close()
        self.stored = site.ask("GET", self.schemas_path)

    def rest(self, site: Site) -> Trace:
        assert site.ask("GET", self.schemas_path) == self.stored
        schema = record("a", "b")
        consumer = site.subscribe(self.topic, "typed", schema=schema)
        producer = site.client.create_producer(self.topic, schema=schema, producer_name="later")
        producer.send({"a": 20, "b": 1})
        end = an_end()
        producer.send({"a": None, "b": None}, properties=end)
        producer.close()
        messages = self.received(consumer, end=end)
        consumer.close()
        if not self.is_exact:
            messages = [message for message in messages if message.value()["a"] not in (0, 11)]
        values = [message.value()["a"] for message in messages]
        assert values == [1, 2, 10, 12, 20]
        with pytest.raises(pulsar.IncompatibleSchema):
            site.client.create_producer(self.topic, schema=record("a", of="string"))
        third = site.client.create_producer(self.topic, schema=record("a", "b", "c"))
        third.close()
        answer = site.ask("GET", self.schemas_path)["getSchemaResponses"]
        assert answer[:2] == self.stored["getSchemaResponses"]
        return {
            "messages": [shown(message) for message in messages],
            "schemas": [{**each, "timestamp": 0} for each in answer],
        }

    def nothing_more(self, site: Site) -> None:
        consumer = site.subscribe(self.topic, "typed")
        producer = site.client.create_producer(self.topic, schema=record("a", "b", "c"))
        end = an_end()
        producer.send({"a": 0, "b": 0, "c": 0}, properties=end)
        producer.close()
        messages = self.received(consumer, end=end)
        assert not self.is_exact or messages == []
        consumer.close()


@final
class SequenceIds(WrittenTopic):
    """Deduplication: two named producers, one of them with batches.

    The client names a batch by the sequence id of its first message.
    """

    name = "sequence-ids"
    resent_from = 15

    def write(self, site: Site) -> None:
        # Without a subscription everything could be deleted.
        site.subscribe(self.topic, "held").close()
        single = self.producer(site)
        for number in range(20):
            single.send(b"single %d" % number, sequence_id=number)
        for number in range(self.resent_from, 20):
            single.send(b"single %d again" % number, sequence_id=number)
        single.close()
        batched = self._batched(site)
        for number in range(100, 110):
            batched.send_async(b"batched %d" % number, _must_be_sent, sequence_id=number)
        batched.flush()
        batched.close()

    def _batched(self, site: Site) -> pulsar.Producer:
        return site.client.create_producer(
            self.topic,
            producer_name="batched",
            batching_enabled=True,
            batching_max_publish_delay_ms=60_000,
        )

    def rest(self, site: Site) -> Trace:
        single, batched = self.producer(site), self._batched(site)
        last = [single.last_sequence_id(), batched.last_sequence_id()]
        assert last == [19, 100]
        for number in range(self.resent_from, 25):
            single.send(b"single %d from elsewhere" % number, sequence_id=number)
        for number in range(100, 110):
            batched.send_async(b"batched %d again" % number, _must_be_sent, sequence_id=number)
        batched.flush()
        for number in range(110, 115):
            batched.send_async(b"batched %d" % number, _must_be_sent, sequence_id=number)
        batched.flush()
        single.close()
        batched.close()
        end = self.end(site)
        reader = site.client.create_reader(self.topic, pulsar.MessageId.earliest)
        payloads = []
        while (message := reader.read_next(60_000)).properties() != end:
            payloads.append(bytes(message.data()))
        reader.close()
        assert payloads == [
            *(b"single %d" % number for number in range(20)),
            *(b"batched %d" % number for number in range(100, 110)),
            *(b"single %d from elsewhere" % number for number in range(20, 25)),
            *(b"batched %d" % number for number in range(110, 115)),
        ]
        return {"last sequence ids": last, "payloads": payloads}

    def nothing_more(self, site: Site) -> None:
        single, batched = self.producer(site), self._batched(site)
        assert [single.last_sequence_id(), batched.last_sequence_id()] == [24, 110]
        single.close()
        batched.close()


def _must_be_sent(result: Any, _message_id: Any) -> None:
    assert result == pulsar.Result.Ok, result


POLICIES: dict[str, tuple[str, Any]] = {
    "retention": ("POST", {"retentionTimeInMinutes": 600, "retentionSizeInMB": 512}),
    "maxConsumersPerTopic": ("POST", 77),
    "maxSubscriptionsPerTopic": ("POST", 33),
    "schemaCompatibilityStrategy": ("PUT", "BACKWARD"),
    "isAllowAutoUpdateSchema": ("POST", False),
    "autoTopicCreation": (
        "POST",
        {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2},
    ),
    "persistence": (
        "POST",
        {
            "bookkeeperEnsemble": 2,
            "bookkeeperWriteQuorum": 2,
            "bookkeeperAckQuorum": 1,
            "managedLedgerMaxMarkDeleteRate": 5.0,
        },
    ),
}
OF_REAL_PULSAR: dict[str, tuple[str, Any]] = {
    "messageTTL": ("POST", 3600),
    "inactiveTopicPolicies": (
        "POST",
        {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": 3600,
            "deleteWhileInactive": True,
        },
    ),
    "dispatchRate": (
        "POST",
        {
            "dispatchThrottlingRateInMsg": 100_000,
            "dispatchThrottlingRateInByte": 1_000_000_000,
            "relativeToPublishRate": False,
            "ratePeriodInSecond": 1,
        },
    ),
}
"""Those without an effect in Vela: it keeps them for a way back."""


def _of_users(topics: list[str]) -> list[str]:
    """Without the topics in which Pulsar keeps policies of topics."""
    return sorted(topic for topic in topics if "/__change_events" not in topic)


class Policies:
    """A namespace with policies, roles, bundles, and topics that nobody uses."""

    def __init__(self, namespace: str, policies: dict[str, tuple[str, Any]]) -> None:
        self.namespace = namespace
        self._policies = policies
        self._stored: Any = None

    @property
    def _path(self) -> str:
        return f"/namespaces/{self.namespace}"

    def write(self, site: Site) -> None:
        """Make it."""
        site.ask("PUT", self._path, {"bundles": {"numBundles": 8}})
        for policy, (method, value) in self._policies.items():
            site.ask(method, f"{self._path}/{policy}", value)
        site.ask("POST", f"{self._path}/permissions/reader", ["consume"])
        topic = f"/persistent/{self.namespace}/kept"
        site.ask("PUT", f"{topic}/partitions", 3)
        site.ask("PUT", f"/persistent/{self.namespace}/whole", {"of": "the topic"})
        named = {"ledgerId": -1, "entryId": -1, "properties": {"of": "the subscription"}}
        site.ask("PUT", f"/persistent/{self.namespace}/whole/subscription/named", named)
        self._stored = self._seen(site)

    def _seen(self, site: Site) -> Any:
        """Everything about it, as a broker tells."""
        policies = site.ask("GET", self._path)
        whole = f"/persistent/{self.namespace}/whole"
        named = site.ask("GET", f"{whole}/stats")["subscriptions"]["named"]
        properties = site.ask("GET", f"{whole}/properties")
        properties.pop("index", None)  # real Pulsar's interceptor of entries keeps its count there
        return {
            "policies": {name: value for name, value in policies.items() if value is not None},
            "bundles": site.ask("GET", f"{self._path}/bundles"),
            "permissions": site.ask("GET", f"{self._path}/permissions"),
            "topics": _of_users(site.ask("GET", f"/persistent/{self.namespace}")),
            "partitioned": _of_users(site.ask("GET", f"/persistent/{self.namespace}/partitioned")),
            "partitions": site.ask("GET", f"/persistent/{self.namespace}/kept/partitions"),
            "properties of the topic": properties,
            "properties of the subscription": named["subscriptionProperties"],
        }

    def check(self, site: Site) -> None:
        """All is as the last broker left it."""
        assert self._seen(site) == self._stored
        for policy, (_method, value) in self._policies.items():
            status, answer = ask(site.server, "GET", f"/admin/v2{self._path}/{policy}")
            # An endpoint that Vela does not have says so.
            assert (status, answer) == (200, value) or status == 501, (policy, status, answer)

    def complete(self, site: Site) -> None:
        """Have real Pulsar make the partitions that Vela has not used yet: it lists no others."""
        site.ask("POST", f"/persistent/{self.namespace}/kept/createMissedPartitions")

    def change(self, site: Site, minutes: int) -> None:
        """One policy and one number of partitions are others now."""
        retention = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": 512}
        site.ask("POST", f"{self._path}/retention", retention)
        self._policies = self._policies | {"retention": ("POST", retention)}
        count = self._stored["partitions"]["partitions"] + 1
        site.ask("POST", f"/persistent/{self.namespace}/kept/partitions", count)
        self._stored = self._seen(site)
        assert self._stored["partitions"]["partitions"] == count
