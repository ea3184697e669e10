"""What is copied from one metadata store into another, under which name and with which value. Pure.

The records that belong to a cluster itself or to its processes are left out: its id and layout, the
cookies and registrations of bookies, members, owners and loads. They are made anew.

The cluster may get another name. It is in the path of its record and of what is below that, in
tenants, and in policies, some of which are maps by cluster.

ZooKeeper refuses some names, and nodes above a limit. Both are found here, before anything is
written.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, final

from broker.cluster.records import OWNERS_PATH
from broker.tenancy.namespaces.names import CLUSTERS_PATH, POLICIES_PATH
from protocol.bookkeeper.paths import (
    AVAILABLE_ROOT,
    COOKIES_ROOT,
    ID_SEQUENCE_PATH,
    INSTANCE_ID_PATH,
    LAYOUT_PATH,
    LONG_ID_GENERATOR_ROOT,
)

NODE_BYTES_MAX: Final = 0xFFFFF
"""ZooKeeper's `jute.maxbuffer`: of a request, without which it ends the connection."""
REQUEST_OVERHEAD_BYTES: Final = 1_024
"""The overhead of a create request: lengths, access rights, flags, and the path of ZooKeeper that
the URL names."""
_LOAD_ROOT: Final = "/loadbalance"
_LEFT_OUT: Final = (
    AVAILABLE_ROOT,
    COOKIES_ROOT,
    ID_SEQUENCE_PATH,
    INSTANCE_ID_PATH,
    LAYOUT_PATH,
    LONG_ID_GENERATOR_ROOT,
    OWNERS_PATH,
    _LOAD_ROOT,
)
_REFUSED_CHARACTER: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]"
)
"""By `PathUtils.validatePath` of ZooKeeper 3.9, which looks at halves of UTF-16."""
_LISTS: Final = ("allowedClusters", "replication_clusters", "allowed_clusters")
_BY_CLUSTER: Final = (
    "clusterDispatchRate",
    "clusterSubscribeRate",
    "publishMaxMessageRate",
    "replicatorDispatchRate",
    "subscriptionDispatchRate",
    "topicDispatchRate",
)
_ONE: Final = "clusterThatCanDeleteNamespace"


class NotCopied(Exception):
    """The metadata cannot be copied. The text says why, and what to do."""


@final
@dataclass(frozen=True, slots=True)
class ClusterName:
    """The name of the cluster in the metadata that are copied, and in the new ones."""

    former: str
    name: str

    def path(self, path: str) -> str | None:
        """Where the node is put; None: it is not copied."""
        if any(_is_at_or_below(path, root) for root in _LEFT_OUT):
            return None
        record = f"{CLUSTERS_PATH}/{self.former}"
        if path == record:
            return None  # made last, with the addresses of the new brokers
        if path.startswith(f"{record}/"):
            return f"{CLUSTERS_PATH}/{self.name}{path.removeprefix(record)}"
        return path

    def former_path(self, path: str) -> str:
        """Where the node of a path of the new metadata was."""
        record = f"{CLUSTERS_PATH}/{self.name}"
        if path.startswith(f"{record}/"):
            return f"{CLUSTERS_PATH}/{self.former}{path.removeprefix(record)}"
        return path

    def value(self, path: str, value: bytes) -> bytes:
        """The value that is put there. Raises: NotCopied: the record is damaged."""
        if self.former == self.name or not value or not path.startswith(f"{POLICIES_PATH}/"):
            return value
        try:
            record = json.loads(value.decode())
            if not isinstance(record, dict):
                raise ValueError("it is not a JSON object")
            renamed = self._renamed(record)
            if renamed == record:
                return value
            return json.dumps(renamed, ensure_ascii=False, separators=(",", ":")).encode()
        except (ValueError, RecursionError) as error:
            raise NotCopied(
                f"the record at {path} is damaged: {error}. Restore or delete it, or keep the name "
                f"of the cluster (--cluster {self.former})"
            ) from None

    def _renamed(self, record: dict[str, Any]) -> dict[str, Any]:
        renamed = dict(record)
        for key in _LISTS:
            if isinstance(record.get(key), list):
                renamed[key] = list(dict.fromkeys(map(self._new, record[key])))
        for key in _BY_CLUSTER:
            if isinstance(record.get(key), dict):
                renamed[key] = {self._new(name): each for name, each in record[key].items()}
        if _ONE in record:
            renamed[_ONE] = self._new(record[_ONE])
        return renamed

    def _new(self, name: object) -> object:
        return self.name if name == self.former else name


def check_node(path: str, value: bytes, node_bytes_max: int) -> None:
    """Raises: NotCopied: ZooKeeper would not take the node."""
    size = len(path.encode()) + len(value) + REQUEST_OVERHEAD_BYTES
    if size > node_bytes_max:
        raise NotCopied(
            f"{path} has {len(value)} bytes, too many for a node of ZooKeeper: set jute.maxbuffer "
            f"to {2 * size} on all its servers and in all brokers and bookies of Pulsar, and give "
            f"--node-bytes-max {2 * size}"
        )
    names = path.split("/")
    if {".", ".."} & set(names) or _REFUSED_CHARACTER.search(path):
        raise NotCopied(
            f"{path!r} cannot be the path of a node of ZooKeeper: delete what it belongs to with "
            "the admin API of `vela standalone`"
        )


def _is_at_or_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")
