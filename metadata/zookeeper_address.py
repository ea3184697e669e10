"""The address of ZooKeeper: its text in the configuration, and the parts that a session needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final
from urllib.parse import urlsplit

from metadata.node_keys import node_key
from metadata.zookeeper_access import OPEN, ZooKeeperAccess


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperAddress:
    """Where ZooKeeper is, and below which path of it the tree begins."""

    hosts: str
    """`host:port,host:port`; the port may be left out (2181)."""
    chroot: str = ""
    """`/path`, or empty for the root."""
    session_timeout_seconds: float = 30.0
    access: ZooKeeperAccess = OPEN


def zookeeper_address(
    url: str, session_timeout_seconds: float, access: ZooKeeperAccess = OPEN
) -> ZooKeeperAddress:
    """The address in `zk:host:port,host:port/chroot`, `zk://...`, or the same without `zk:`.

    Raises: ValueError: the text says what is wrong.
    """
    rest = url.removeprefix("zk:").removeprefix("//")
    hosts, slash, chroot = rest.partition("/")
    chroot = slash + chroot.rstrip("/")
    for host in hosts.split(","):
        try:
            parts = urlsplit(f"//{host}")
            is_right = bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_right = False
        if not is_right:
            raise ValueError(f"{url!r} should name ZooKeeper as zk:host:port,host:port/path")
    if chroot.strip("/"):
        node_key(chroot)
    else:
        chroot = ""
    return ZooKeeperAddress(
        hosts=hosts,
        chroot=chroot,
        session_timeout_seconds=session_timeout_seconds,
        access=access,
    )
