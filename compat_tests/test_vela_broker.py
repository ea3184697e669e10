"""Brokers of a cluster: real ZooKeeper, bookies of Vela, stock clients."""

import itertools
import time
from collections import Counter
from functools import partial

import pytest

from compat_tests.oracle.redirects import ask
from compat_tests.oracle.steady_load import (
    check_nothing_lost,
    quiet_client,
    received,
    steady_load,
    wait_until,
)
from compat_tests.oracle.vela_cluster import cluster_of
from compat_tests.oracle.zookeeper_server import ZooKeeperServer
from compat_tests.owners import (
    NAMESPACE,
    SESSION_SECONDS,
    bundle_of,
    location,
    other_than,
    owner_of,
    persistent,
    topic_on,
)


@pytest.fixture(scope="module")
def pair(zookeeper, tmp_path_factory):
    """Two brokers and a bookie that every test leaves running."""
    with cluster_of(tmp_path_factory.mktemp("pair"), zookeeper, brokers=2) as cluster:
        yield cluster


@pytest.fixture
def own(zookeeper, tmp_path):
    """Makes clusters for tests that end parts of them."""
    made = []

    def make(brokers, bookies=1, quorums="1/1/1"):
        context = cluster_of(
            tmp_path / str(len(made)), zookeeper, brokers=brokers, bookies=bookies, quorums=quorums
        )
        made.append(context)
        return context.__enter__()

    yield make
    for context in made:
        context.__exit__(None, None, None)


# --- who owns what --------------------------------------------------------------------------


def test_every_broker_names_the_same_members_leader_and_owners(pair):
    ids = sorted(broker.broker_id for broker in pair.brokers)
    leaders = set()
    for broker in pair.brokers:
        assert broker.http("GET", "/admin/v2/brokers") == (200, ids)
        assert broker.http("GET", "/admin/v2/brokers/health") == (200, "ok")
        leaders.add(broker.http("GET", "/admin/v2/brokers/leaderBroker")[1]["brokerId"])
        place = broker.http("GET", "/admin/v2/brokers/internal-configuration")[1]
        assert place["metadataStoreUrl"] == f"zk:{pair.hosts}"
    assert len(leaders) == 1
    topics = [f"owned-{number}" for number in range(12)]
    owners = {topic: owner_of(pair, topic) for topic in topics}
    assert set(owners.values()) == set(pair.brokers)
    for broker in pair.brokers:
        assert {topic: owner_of(pair, topic, broker) for topic in topics} == owners
        _, owned = broker.http("GET", f"/admin/v2/brokers/test/{broker.broker_id}/ownedNamespaces")
        for topic in topics:
            name = f"{NAMESPACE}/{bundle_of(broker, topic)}"
            assert (name in owned) == (owners[topic] is broker)


def test_clients_reach_topics_of_all_brokers_through_any_of_them(pair):
    for broker in pair.brokers:
        client = quiet_client(broker.service_url)
        for number in range(6):
            topic = f"through-{broker.web_port}-{number}"
            consumer = client.subscribe(topic, "s")
            client.create_producer(topic).send(b"%d" % number)
            assert consumer.receive(10_000).data() == b"%d" % number
        client.close()


def test_clients_of_http_lookup_reach_them_too(pair):
    client = quiet_client(pair.brokers[1].web_url)
    for number in range(4):
        consumer = client.subscribe(f"http-{number}", "s")
        client.create_producer(f"http-{number}").send(b"x")
        assert consumer.receive(10_000).data() == b"x"
    client.close()


def test_administrative_requests_go_to_the_owner(pair):
    for owner in pair.brokers:
        topic = topic_on(pair, owner, "admin")
        other = other_than(pair, owner)
        assert ask(other, "PUT", persistent(topic))[0] == 204
        path = persistent(topic, "/stats?x=y")
        there = location(other, "GET", path)
        assert there == f"{owner.web_url}{path}&authoritative=true"
        status, stats = ask(other, "GET", persistent(topic, "/stats"))
        assert (status, stats["ownerBroker"]) == (200, owner.broker_id)
        status, _ = ask(other, "PUT", persistent(topic, "/subscription/s"))
        assert status == 204
        assert owner.http("GET", persistent(topic, "/subscriptions")) == (200, ["s"])


# --- moving what is owned -------------------------------------------------------------------


def test_unloads_lose_nothing_and_are_done_whoever_is_asked(pair):
    topic = topic_on(pair, pair.brokers[0], "unloaded")
    client = quiet_client(pair.service_url)
    with steady_load(client, topic) as load:
        for asked in pair.brokers:
            namespace = f"/admin/v2/namespaces/{NAMESPACE}"
            for path in (
                persistent(topic, "/unload"),
                f"{namespace}/{bundle_of(asked, topic)}/unload",
                f"{namespace}/unload",
            ):
                assert ask(asked, "PUT", path)[0] == 204, path
                load.wait_for_more()
    check_nothing_lost(load, received(client, topic, len(load.acknowledged)))
    client.close()


def test_bundles_of_an_unloaded_namespace_are_spread_over_all_brokers(pair):
    namespace = "public/spread"
    first = pair.brokers[0]
    path = f"/admin/v2/namespaces/{namespace}"
    assert ask(first, "PUT", path, {"bundles": {"numBundles": 16}})[0] in (200, 204)
    for _round in range(3):
        owned = Counter()
        for number in range(200):
            path = f"/lookup/v2/topic/persistent/{namespace}/t{number}"
            status, answer = pair.brokers[number % 2].http("GET", path)
            assert status == 200, answer
        for broker in pair.brokers:
            path = f"/admin/v2/brokers/test/{broker.broker_id}/ownedNamespaces"
            names = broker.http("GET", path)[1]
            owned[broker.broker_id] = sum(name.startswith(namespace) for name in names)
        assert sum(owned.values()) == 16
        assert max(owned.values()) <= 9, owned
        assert ask(first, "PUT", f"/admin/v2/namespaces/{namespace}/unload")[0] == 204


@pytest.mark.parametrize("unload", ["false", "true"])
def test_a_split_bundle_has_two_owners_and_loses_nothing(pair, unload):
    topic = f"split-{unload}"
    client = quiet_client(pair.service_url)
    with steady_load(client, topic) as load:
        whole = bundle_of(pair.brokers[0], topic)
        path = f"/admin/v2/namespaces/{NAMESPACE}/{whole}/split?unload={unload}"
        assert ask(pair.brokers[0], "PUT", path)[0] == 204
        load.wait_for_more()
        for broker in pair.brokers:
            part = bundle_of(broker, topic)
            assert part != whole
            bundles = broker.http("GET", f"/admin/v2/namespaces/{NAMESPACE}/bundles")[1]
            assert bundles["numBundles"] == len(bundles["boundaries"]) - 1
            assert set(part.split("_")) <= set(bundles["boundaries"])
        load.wait_for_more()
    check_nothing_lost(load, received(client, topic, len(load.acknowledged)))
    client.close()


# --- what one broker changes is in force on the others --------------------------------------


def in_force(is_true):
    """Within a second on a machine that has nothing else to do."""
    wait_until(is_true, 10.0)


def test_policies_partitions_and_dynamic_configuration_reach_the_other_brokers(pair):
    one, two = pair.brokers
    path = f"/admin/v2/namespaces/{NAMESPACE}/retention"
    for minutes in (7, 9):
        policy = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": 100}
        assert ask(one, "POST", path, policy)[0] == 204
        in_force(lambda policy=policy: two.http("GET", path)[1] == policy)
    partitioned = persistent("counted", "/partitions")
    assert ask(one, "PUT", partitioned, 2)[0] == 204
    in_force(lambda: two.http("GET", partitioned)[1]["partitions"] == 2)
    assert ask(two, "POST", partitioned, 5)[0] == 204
    in_force(lambda: one.http("GET", partitioned)[1]["partitions"] == 5)
    client = quiet_client(two.service_url)
    assert len(client.get_topic_partitions("counted")) == 5
    client.close()
    key = "/admin/v2/brokers/configuration"
    assert ask(one, "POST", f"{key}/maxSubscriptionsPerTopic/3")[0] in (200, 204)
    in_force(
        lambda: (
            two.http("GET", f"{key}/runtime")[1]["maxSubscriptionsPerTopic"] == "3"
            and two.http("GET", f"{key}/values")[1] == {"maxSubscriptionsPerTopic": "3"}
        )
    )
    assert ask(two, "DELETE", f"{key}/maxSubscriptionsPerTopic")[0] in (200, 204)
    in_force(lambda: one.http("GET", f"{key}/values")[1] == {})


def test_a_policy_reaches_the_open_topics_of_another_broker(pair):
    namespace = f"/admin/v2/namespaces/{NAMESPACE}"
    for owner in pair.brokers:
        asked = other_than(pair, owner)
        topic = topic_on(pair, owner, "limited")
        client = quiet_client(pair.service_url)
        producer = client.create_producer(topic)
        producer.send(b"x")
        assert ask(asked, "POST", f"{namespace}/deduplication", True)[0] == 204
        status = partial(owner.http, "GET", persistent(topic, "/stats"))
        in_force(lambda status=status: status()[1]["deduplicationStatus"] == "Enabled")
        assert ask(asked, "POST", f"{namespace}/deduplication", False)[0] == 204
        in_force(lambda status=status: status()[1]["deduplicationStatus"] == "Disabled")
        client.close()


def test_a_namespace_is_deleted_with_topics_of_all_brokers(pair):
    one, two = pair.brokers
    namespace = "/admin/v2/namespaces/public/short"
    assert ask(one, "PUT", namespace)[0] == 204
    client = quiet_client(pair.service_url)
    for number in range(8):
        producer = client.create_producer(f"persistent://public/short/t{number}")
        producer.send(b"x")
    client.close()
    key = "/admin/v2/brokers/configuration/forceDeleteNamespaceAllowed"
    assert ask(one, "POST", f"{key}/true")[0] in (200, 204)
    status, reason = ask(one, "DELETE", f"{namespace}?force=true")
    assert status == 204, reason
    in_force(lambda: two.http("GET", namespace)[0] == 404)
    ask(one, "DELETE", key)


def test_non_persistent_topics_of_all_brokers_are_listed_by_each(pair):
    namespace = "public/in-memory"
    path = f"/admin/v2/namespaces/{namespace}"
    lists = f"/admin/v2/non-persistent/{namespace}"
    assert ask(pair.brokers[0], "PUT", path, {"bundles": {"numBundles": 16}})[0] == 204
    ranges = bundle_ranges(pair.brokers[0], namespace)
    for broker in pair.brokers:
        # Lists assign nothing.
        assert broker.http("GET", lists) == (200, [])
        assert all(broker.http("GET", f"{lists}/{each}")[0] == 204 for each in ranges)
    client = quiet_client(pair.service_url)
    names = sorted(f"non-persistent://{namespace}/t{number}" for number in range(20))
    for name in names:
        client.subscribe(name, "s")
    for broker in pair.brokers:
        for listed in (lists, f"{path}/topics?mode=NON_PERSISTENT", f"{path}/topics?mode=ALL"):
            assert broker.http("GET", listed) == (200, names)
        # Each is at the owner of its bundle, and there are two owners.
        owned_path = f"/admin/v2/brokers/test/{broker.broker_id}/ownedNamespaces"
        assert any(each.startswith(f"{namespace}/") for each in broker.http("GET", owned_path)[1])
        found = [broker.http("GET", f"{lists}/{each}")[1] or [] for each in ranges]
        assert sorted(itertools.chain(*found)) == names
    client.close()


def bundle_ranges(broker, namespace):
    boundaries = broker.http("GET", f"/admin/v2/namespaces/{namespace}/bundles")[1]["boundaries"]
    return [f"{lower}_{upper}" for lower, upper in itertools.pairwise(boundaries)]


def test_a_namespace_with_a_non_persistent_topic_of_another_broker_is_not_deleted(pair):
    namespace = "public/not-empty"
    path = f"/admin/v2/namespaces/{namespace}"
    assert ask(pair.brokers[0], "PUT", path, {"bundles": {"numBundles": 1}})[0] == 204
    client = quiet_client(pair.service_url)
    consumer = client.subscribe(f"non-persistent://{namespace}/t", "s")
    for broker in pair.brokers:
        status, answer = ask(broker, "DELETE", path)
        assert (status, answer["reason"]) == (409, "Cannot delete non empty namespace")
    consumer.close()
    client.close()


# --- brokers that end -----------------------------------------------------------------------


def test_a_broker_hands_its_topics_over_before_it_ends(own):
    cluster = own(brokers=2)
    leaving = cluster.broker_at(leader_url(cluster))
    topic = topic_on(cluster, leaving, "handed-over")
    client = quiet_client(cluster.service_url)
    with steady_load(client, topic) as load:
        load.wait_for_more()
        assert leaving.stop() == 0
        load.wait_for_more()
        left = other_than(cluster, leaving)
        assert owner_of(cluster, topic, left) is left
        assert left.http("GET", "/admin/v2/brokers") == (200, [left.broker_id])
        assert leader_url(cluster) == left.web_url
        leaving.start()
        load.wait_for_more()
    check_nothing_lost(load, received(client, topic, len(load.acknowledged)))
    # Nobody had to wait for the end of a session.
    assert load.longest_pause < SESSION_SECONDS / 2
    client.close()


def leader_url(cluster):
    asked = next(each for each in cluster.brokers if each.is_running())
    return asked.http("GET", "/admin/v2/brokers/leaderBroker")[1]["serviceUrl"]


def consume_all(consumer, load):
    """Every acknowledged message reaches a consumer that was there all the time, some twice."""
    expected = set(load.acknowledged)
    while expected:
        message = consumer.receive(20_000)
        consumer.acknowledge(message)
        expected.discard(int(message.data()))


def test_topics_of_a_killed_broker_are_served_by_the_others(own):
    cluster = own(brokers=2)
    for killed in cluster.brokers:
        topic = topic_on(cluster, killed, "killed")
        client = quiet_client(other_than(cluster, killed).service_url)
        consumer = client.subscribe(topic, "s")
        with steady_load(client, topic) as load:
            load.wait_for_more()
            killed.kill()
            load.wait_for_more()
            left = other_than(cluster, killed)
            assert owner_of(cluster, topic, left) is left
            killed.start()
        check_nothing_lost(load, received(client, topic, len(load.acknowledged)))
        consume_all(consumer, load)
        client.close()


def test_a_broker_started_again_within_its_old_session_serves_its_topics(own):
    cluster = own(brokers=2)
    killed = cluster.brokers[1]
    topic = topic_on(cluster, killed, "again")
    client = quiet_client(cluster.brokers[0].service_url)
    consumer = client.subscribe(topic, "s")
    with steady_load(client, topic) as load:
        load.wait_for_more()
        killed.kill()
        killed.start()
        load.wait_for_more()
        late = client.subscribe(topic, "late")
        load.wait_for_more()
        assert late.receive(20_000)
    check_nothing_lost(load, received(client, topic, len(load.acknowledged)))
    consume_all(consumer, load)
    client.close()


def test_a_broker_that_was_stopped_beyond_its_session_accepts_nothing(own):
    cluster = own(brokers=2)
    stopped, left = cluster.brokers
    topic = topic_on(cluster, stopped, "stopped")
    client = quiet_client(left.service_url)
    with steady_load(client, topic) as load:
        load.wait_for_more()
        stopped.pause()
        # Others may be asked as soon as the session is over.
        wait_until(lambda: left.http("GET", "/admin/v2/brokers")[1] == [left.broker_id])
        assert owner_of(cluster, topic, left) is left
        second = quiet_client(left.service_url)
        producer = second.create_producer(topic)
        others = [b"%d" % (1_000_000 + number) for number in range(50)]
        for number in others:
            producer.send(number)
        stopped.resume()
        load.wait_for_more()
        wait_until(lambda: len(stopped.http("GET", "/admin/v2/brokers")[1] or ()) == 2)
        assert owner_of(cluster, topic, stopped) is left
        second.close()
    numbers = received(client, topic, len(load.acknowledged) + len(others))
    check_nothing_lost(load, [number for number in numbers if number < 1_000_000])
    assert [number for number in numbers if number >= 1_000_000] == [int(each) for each in others]
    client.close()


# --- ZooKeeper and bookies that are away ----------------------------------------------------


@pytest.fixture
def own_zookeeper(tmp_path):
    server = ZooKeeperServer(tmp_path / "own-zookeeper")
    server.start()
    yield server
    server.kill()


def test_brokers_go_on_by_themselves_after_zookeeper_was_away(own_zookeeper, tmp_path):
    with cluster_of(tmp_path, own_zookeeper, brokers=2) as cluster:
        topic = topic_on(cluster, cluster.brokers[0], "outage")
        client = quiet_client(cluster.service_url)
        with steady_load(client, topic) as load:
            load.wait_for_more()
            own_zookeeper.kill()
            acknowledged = len(load.acknowledged)
            # Topics are closed before ZooKeeper may give them to others.
            wait_until(lambda: "giving up all bundles" in cluster.brokers[0].log_of_start())
            time.sleep(SESSION_SECONDS)
            stopped_at = len(load.acknowledged)
            time.sleep(1.0)
            assert len(load.acknowledged) == stopped_at
            assert stopped_at >= acknowledged
            own_zookeeper.start()
            load.wait_for_more()
            wait_until(
                lambda: all(
                    len(broker.http("GET", "/admin/v2/brokers")[1] or ()) == 2
                    for broker in cluster.brokers
                )
            )
        check_nothing_lost(load, received(client, topic, len(load.acknowledged)))
        client.close()


def test_a_broker_without_bookies_stores_again_when_they_are_back(own):
    cluster = own(brokers=1)
    (broker,) = cluster.brokers
    (bookie,) = cluster.bookies
    client = quiet_client(broker.service_url)
    with steady_load(client, "no-bookies") as load:
        load.wait_for_more()
        bookie.kill()
        wait_until(lambda: broker.http("GET", "/admin/v2/brokers/health")[0] == 503)
        _, reason = broker.http("GET", "/admin/v2/brokers/health")
        assert "managedLedgerDefaultEnsembleSize" in reason["reason"]
        bookie.start()
        wait_until(lambda: broker.http("GET", "/admin/v2/brokers/health") == (200, "ok"))
        load.wait_for_more()
        late = client.create_producer("new-after")
        late.send(b"x")
    check_nothing_lost(load, received(client, "no-bookies", len(load.acknowledged)))
    client.close()


@pytest.mark.parametrize(("quorums", "bookies"), [("3/2/2", 4), ("3/3/2", 3)])
def test_copies_outlive_a_bookie_and_a_broker(own, quorums, bookies):
    cluster = own(brokers=2, bookies=bookies, quorums=quorums)
    topic = topic_on(cluster, cluster.brokers[0], "copies")
    client = quiet_client(cluster.service_url)
    with steady_load(client, topic) as load:
        load.wait_for_more()
        cluster.bookies[0].kill()
        load.wait_for_more()
        cluster.bookies[0].start()
        cluster.brokers[0].kill()
        load.wait_for_more()
        cluster.brokers[0].start()
    check_nothing_lost(load, received(client, topic, len(load.acknowledged)))
    client.close()
