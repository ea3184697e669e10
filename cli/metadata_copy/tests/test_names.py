"""Which nodes are copied, where to, and what ZooKeeper would not take."""

import json

import pytest

from cli.metadata_copy.names import NODE_BYTES_MAX, ClusterName, NotCopied, check_node

SAME = ClusterName("standalone", "standalone")
OTHER = ClusterName("standalone", "c1")


@pytest.mark.parametrize(
    "path",
    [
        "/managed-ledgers/public/default/persistent/t/s",
        "/ledgers/00/0000/L0007",
        "/ledgers/underreplication/LAYOUT",
        "/schemas/public/default/t",
        "/admin/configuration",
        "/admin/policies/public/default",
        "/admin/local-policies/public/default",
        "/admin/partitioned-topics/public/default/persistent/p",
        "/admin/clusters/other",
        "/vela/topic-policies/public/default/persistent/t",
        "/vela/schemas-in-ledgers",
        "/bookies",
        "/namespaces",
    ],
)
def test_what_describes_topics_and_their_data_stays_where_it_was(path):
    assert OTHER.path(path) == path == OTHER.former_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "/ledgers/INSTANCEID",
        "/ledgers/LAYOUT",
        "/ledgers/available",
        "/ledgers/available/readonly/b1",
        "/ledgers/cookies/vela-embedded",
        "/ledgers/idgen",
        "/loadbalance/brokers/h:8080",
        "/loadbalance/bundle-data/public/default/0x0_0x1",
        "/namespace/public/default/0x0_0x1",
        "/admin/clusters/standalone",
    ],
)
def test_what_belongs_to_the_cluster_or_its_processes_is_not_copied(path):
    assert OTHER.path(path) is None
    assert SAME.path(path) is None


def test_what_is_below_the_record_of_the_cluster_follows_its_name():
    path = "/admin/clusters/standalone/namespaceIsolationPolicies"
    renamed = "/admin/clusters/c1/namespaceIsolationPolicies"
    assert OTHER.path(path) == renamed
    assert OTHER.former_path(renamed) == path
    assert SAME.path(path) == path


def test_tenants_and_policies_name_the_new_cluster():
    tenant = {"adminRoles": ["standalone"], "allowedClusters": ["standalone", "other"]}
    renamed = json.loads(OTHER.value("/admin/policies/t", json.dumps(tenant).encode()))
    assert renamed == {"adminRoles": ["standalone"], "allowedClusters": ["c1", "other"]}
    policies = {
        "replication_clusters": ["standalone"],
        "allowed_clusters": [],
        "clusterThatCanDeleteNamespace": "standalone",
        "topicDispatchRate": {"standalone": {"dispatchThrottlingRateInMsg": 5}},
        "retention_policies": {"retentionTimeInMinutes": -1},
    }
    renamed = json.loads(OTHER.value("/admin/policies/t/n", json.dumps(policies).encode()))
    assert renamed == {
        **policies,
        "replication_clusters": ["c1"],
        "clusterThatCanDeleteNamespace": "c1",
        "topicDispatchRate": {"c1": {"dispatchThrottlingRateInMsg": 5}},
    }


def test_values_that_do_not_change_keep_their_bytes():
    odd = b'{ "replication_clusters" : ["standalone"] }'
    assert SAME.value("/admin/policies/t/n", odd) == odd
    assert OTHER.value("/schemas/standalone", odd) == odd
    other = b'{ "replication_clusters" : ["other"] }'
    assert OTHER.value("/admin/policies/t/n", other) == other


@pytest.mark.parametrize("value", [b"x", b"[]", b"\xff"])
def test_a_damaged_record_is_refused_by_name_unless_the_cluster_keeps_its_own(value):
    with pytest.raises(NotCopied, match="/admin/policies/t/n is damaged"):
        OTHER.value("/admin/policies/t/n", value)
    assert SAME.value("/admin/policies/t/n", value) == value


def test_a_node_above_the_limit_of_zookeeper_is_refused_by_name():
    value = bytes(NODE_BYTES_MAX)
    with pytest.raises(NotCopied, match=r"^/managed-ledgers/t has 1048575 bytes, too many"):
        check_node("/managed-ledgers/t", value, NODE_BYTES_MAX)
    check_node("/managed-ledgers/t", value, 2 * NODE_BYTES_MAX)
    check_node("/managed-ledgers/t", value[:-2_000], NODE_BYTES_MAX)


@pytest.mark.parametrize("name", [".", "..", "a\x7f", "\ue000", "\U0001f600"])
def test_a_name_that_zookeeper_does_not_take_is_refused(name):
    with pytest.raises(NotCopied, match="cannot be the path of a node"):
        check_node(f"/schemas/public/default/{name}", b"", NODE_BYTES_MAX)


def test_names_with_dots_and_letters_of_any_script_are_taken():
    check_node("/schemas/public/default/a.b..c-\u00fc\u4e2d%2F", b"", NODE_BYTES_MAX)
