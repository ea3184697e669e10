"""Topics of brokers, such as `__change_events`: as on Pulsar 4.0.8 they are in no list unless asked
for, do not count, and go with their namespace."""

from __future__ import annotations

import pytest

from protocol.commands import names_of_topics
from protocol.topic_name import NON_PERSISTENT, PERSISTENT, TopicName

NS = "public/ns"
SYSTEM = [
    f"persistent://{NS}/{name}"
    for name in ("__change_events", "__transaction_buffer_snapshot", "a-s__transaction_pending_ack")
]


@pytest.fixture
async def namespace(http):
    """With topics of brokers, one of them partitioned, and `plain`."""
    await http("PUT", f"namespaces/{NS}")
    for full in (*SYSTEM, f"persistent://{NS}/plain"):
        assert await http("PUT", full.replace("://", "/")) == (204, None)
    path = f"persistent/{NS}/__transaction_buffer_snapshot_indexes/partitions"
    assert await http("PUT", path, 1) == (204, None)


async def test_topics_of_brokers_are_listed_only_on_request(http, namespace):
    plain = [f"persistent://{NS}/plain"]
    indexes = f"persistent://{NS}/__transaction_buffer_snapshot_indexes"
    everything = sorted([*SYSTEM, f"{indexes}-partition-0", *plain])
    for path in (f"persistent/{NS}", f"namespaces/{NS}/topics", f"namespaces/{NS}/topics?mode=ALL"):
        assert await http("GET", path) == (200, plain)
        with_system = f"{path}{'&' if '?' in path else '?'}includeSystemTopic=true"
        assert await http("GET", with_system) == (200, everything)
    assert await http("GET", f"persistent/{NS}/partitioned") == (200, [])
    path = f"persistent/{NS}/partitioned?includeSystemTopic=true"
    assert await http("GET", path) == (200, [indexes])


async def test_clients_with_a_pattern_do_not_get_them(broker, namespace):
    lists = broker.service.topic_lists
    plain = [f"persistent://{NS}/plain"]
    assert await lists.encoded(NS, (PERSISTENT,), names_of_topics) == [names_of_topics(plain)]


async def test_clients_with_a_pattern_do_not_get_those_in_memory_either(http, broker, namespace):
    lists = broker.service.topic_lists
    for name in ("__change_events", "plain"):
        assert await http("PUT", f"non-persistent/{NS}/{name}") == (204, None)
    plain = [f"non-persistent://{NS}/plain"]
    assert await lists.encoded(NS, (NON_PERSISTENT,), names_of_topics) == [names_of_topics(plain)]


async def test_the_namespace_of_brokers_has_no_topics_for_administrators(http, broker):
    assert await http("PUT", "persistent/pulsar/system/anything") == (204, None)
    assert await http("GET", "persistent/pulsar/system") == (200, [])
    full = "persistent://pulsar/system/anything"
    assert await http("GET", "persistent/pulsar/system?includeSystemTopic=true") == (200, [full])
    lists = broker.service.topic_lists
    assert await lists.encoded("pulsar/system", (PERSISTENT,), names_of_topics) == [
        names_of_topics([full])
    ]


async def test_they_do_not_count_and_are_not_limited(broker, http, namespace):
    await http("POST", f"namespaces/{NS}/maxTopicsPerNamespace", 2)

    async def load(name):
        await broker.service.get_or_load_topic(
            TopicName.parse(f"persistent://{NS}/{name}"), create=True
        )

    await load("second")
    await load("b-s__transaction_pending_ack")
    assert (await http("PUT", f"persistent/{NS}/third/partitions", 1))[0] >= 400


async def test_they_do_not_keep_a_namespace_from_being_deleted(http, broker, namespace):
    assert await http("DELETE", f"namespaces/{NS}") == (409, "Cannot delete non empty namespace")
    path = f"persistent/{NS}?includeSystemTopic=true"
    assert len((await http("GET", path))[1]) == 5
    await http("DELETE", f"persistent/{NS}/plain")
    assert await http("DELETE", f"namespaces/{NS}") == (204, None)
    assert await broker.admin.store.children(f"/managed-ledgers/{NS}/persistent") == []
    await http("PUT", f"namespaces/{NS}")
    assert await http("GET", path) == (200, [])
