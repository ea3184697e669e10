"""Names of tenants, clusters and namespaces, and their paths in the metadata store.

The paths are Pulsar's, so that both can read the same store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from protocol.topic_name import TopicName

CLUSTERS_PATH: Final = "/admin/clusters"
POLICIES_PATH: Final = "/admin/policies"
LOCAL_POLICIES_PATH: Final = "/admin/local-policies"
BOOKIE_GROUPS_FIELD: Final = "bookieAffinityGroup"
PRIMARY_GROUPS: Final = "bookkeeperAffinityGroupPrimary"
SECONDARY_GROUPS: Final = "bookkeeperAffinityGroupSecondary"
"""In the record at that path: `{PRIMARY_GROUPS: "one,other", SECONDARY_GROUPS: "third"}`."""
"""Policies of namespaces that each cluster has for itself: the boundaries of bundles."""
PARTITIONED_TOPICS_PATH: Final = "/admin/partitioned-topics"
TOPIC_POLICIES_PATH: Final = "/vela/topic-policies"
RESOURCE_GROUPS_PATH: Final = "/admin/resourcegroups"
DYNAMIC_CONFIGURATION_PATH: Final = "/admin/configuration"
MANAGED_LEDGERS_PATH: Final = "/managed-ledgers"
SCHEMAS_PATH: Final = "/schemas"


def tenant_path(tenant: str) -> str:
    """Path of a tenant's information."""
    return f"{POLICIES_PATH}/{tenant}"


def policies_path(namespace_name: str) -> str:
    """Path of a namespace's policies; `namespace_name` is `tenant/namespace`."""
    return f"{POLICIES_PATH}/{namespace_name}"


def local_policies_path(namespace_name: str) -> str:
    """Path of what only this cluster knows of a namespace."""
    return f"{LOCAL_POLICIES_PATH}/{namespace_name}"


def resource_group_path(name: str) -> str:
    """Path of a resource group."""
    return f"{RESOURCE_GROUPS_PATH}/{name}"


def partitioned_topics_path(namespace_name: str, domain: str) -> str:
    """Parent path of the partitioned topics of a namespace and domain."""
    return f"{PARTITIONED_TOPICS_PATH}/{namespace_name}/{domain}"


def topic_policies_path(namespace_name: str, domain: str) -> str:
    """Parent path of the policies of single topics of a namespace and domain."""
    return f"{TOPIC_POLICIES_PATH}/{namespace_name}/{domain}"


def managed_ledgers_path(namespace_name: str) -> str:
    """Parent path of the managed ledgers of a namespace's persistent topics."""
    return f"{MANAGED_LEDGERS_PATH}/{namespace_name}/persistent"


def managed_ledger_path(topic: TopicName) -> str:
    """Path of the managed ledger of a persistent topic, which exists while the topic does."""
    return f"{MANAGED_LEDGERS_PATH}/{topic.managed_ledger_name}"


def namespace_below(root: str, path: str) -> tuple[str, str]:
    """(`tenant/namespace`, the rest) of a path below `root`; two empty texts if the path belongs to
    no namespace, such as `root` itself."""
    if path == root:
        return "", ""
    tenant, _, rest = path.removeprefix(f"{root}/").partition("/")
    local, _, rest = rest.partition("/")
    return (f"{tenant}/{local}", rest) if local else ("", "")
