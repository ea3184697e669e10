"""File descriptors: the broker takes as many as the system allows and keeps some for its storage.

Every connection is a descriptor, and so is every open file of journal, entry logs and index. A
broker that gives its last descriptor to a client cannot write a ledger any more. Connections are
therefore admitted up to a bound below the limit, and clients above it get an error with the reason.
HTTP has a share of its own, so that neither protocol can exhaust the descriptors of the other.
"""

from __future__ import annotations

import resource

import structlog

RESERVED_FOR_STORAGE_MAX = 2_048
NO_LIMIT = 2**60
CONNECTIONS_EXPECTED = 10_000
"""A limit below this causes a warning at start."""


def raise_open_files_limit() -> int:
    """Raise the soft limit of this process to the hard limit. Returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):  # some systems enforce a lower bound than they report
            return soft
    return hard


def take_open_files(http_configured: int) -> None:
    """Take what the system allows a broker, and warn its operator if that is little."""
    limit = raise_open_files_limit()
    connections = connections_max(http_configured)
    if 0 < connections < CONNECTIONS_EXPECTED:
        structlog.get_logger().warning(
            "few connections are possible; raise the limit of open files (ulimit -n) for more",
            open_files_max=limit,
            connections_max=connections,
        )


def connections_within(open_files_max: int) -> int:
    """Descriptors kept for storage: a quarter, but no more than storage can use."""
    return max(1, open_files_max - min(open_files_max // 4, RESERVED_FOR_STORAGE_MAX))


def http_connections_within(open_files_max: int, configured: int) -> int:
    """The share of HTTP: `maxHttpServerConnections`, but no more than an eighth."""
    eighth = max(1, connections_within(open_files_max) // 8)
    return min(configured, eighth) if configured else eighth


def client_connections_within(open_files_max: int, http_configured: int) -> int:
    """The share of clients of the binary protocol: the rest."""
    http = http_connections_within(open_files_max, http_configured)
    return max(1, connections_within(open_files_max) - http)


def not_admitted_within(open_files_max: int) -> int:
    """How many connections of one protocol may be open that were accepted and not admitted: they
    take from the share of storage, so a sixteenth of it."""
    return max(1, (open_files_max - connections_within(open_files_max)) // 16)


def not_admitted_max(wanted: int) -> int:
    """`wanted`, or fewer where the limit of this process does not allow so many."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, not_admitted_within(soft))


def connections_max(http_configured: int) -> int:
    """The bound of the binary protocol under the limit of this process; 0: it has no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 0
    return client_connections_within(soft, http_configured)


def http_connections_max(configured: int) -> int:
    """`maxHttpServerConnections`, or fewer where the limit of this process does not allow so many;
    0: neither has a bound."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        configured if soft == resource.RLIM_INFINITY else http_connections_within(soft, configured)
    )


def bookie_connections_within(open_files_max: int) -> int:
    """How many remote readers of the bookie may be connected: a quarter of the storage share."""
    return max(1, (open_files_max - connections_within(open_files_max)) // 4)


def bookie_connections_max(configured: int) -> int:
    """`bookieMaxConnections`, or fewer where the limit of this process does not allow so many."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return configured or NO_LIMIT
    return min(configured or NO_LIMIT, bookie_connections_within(soft))


def bookie_process_connections_max(configured: int) -> int:
    """The same where the bookie is all there is in the process: all but the share of storage."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return configured or NO_LIMIT
    return min(configured or NO_LIMIT, connections_within(soft))
