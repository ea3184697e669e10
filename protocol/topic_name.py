"""Names of topics: `persistent://tenant/namespace/local-name[-partition-3]`.

A name is valid or it is not a `TopicName`. Accepted are the full form, `tenant/namespace/name` and
the short form `name` (in public/default); refused, with Pulsar's texts where it has one, are the
names of Pulsar 1 with a cluster in them. The local name is any text without `/`: percent signs
mean nothing here, because HTTP decodes a path before a name is made of it, and storage paths encode
the name again (`managed_ledger_name`).

Rules and texts as in org.apache.pulsar.common.naming of 4.0.8 (observed by running it).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from sys import intern
from typing import Final, final
from urllib.parse import quote_plus, unquote_plus

from protocol.errors import InvalidTopicName

PERSISTENT: Final = "persistent"
NON_PERSISTENT: Final = "non-persistent"
PUBLIC_TENANT: Final = "public"
DEFAULT_NAMESPACE: Final = "default"
PARTITION_SUFFIX: Final = "-partition-"
POLICY_LOG: Final = "__change_events"
"""The topic of each namespace in which the policies of its topics are kept."""

_SYSTEM_NAME: Final = re.compile(
    r"(?:.*/(?:__change_events|__transaction_buffer_snapshot(?:_segments|_indexes)?)"
    r"|.*__transaction_pending_ack)(?:-partition-(?:0|[1-9][0-9]*))?"
    r"|persistent://pulsar/system/(?:transaction_coordinator_assign|__transaction_log_).*",
    re.DOTALL,
)
"""SystemTopicNames of 4.0.8."""
_SYSTEM_NAMESPACE: Final = re.compile(
    r"[a-z-]+://(?:pulsar/system|pulsar/[^/:]+:[0-9]+|sla-monitor/[^/:]+:[0-9]+)/"
)
"""For all brokers together; heartbeats and service levels of one broker (`host:port`)."""

_ENTITY: Final = re.compile(r"[-=:.\w]+", re.ASCII)
_PARTITION_NUMBER: Final = re.compile(r"0|[1-9][0-9]*")
_PARTITION_MAX: Final = 2**31 - 1

REMEMBERED_MAX: Final = 1024
"""How many of the names used last are not parsed again: a client names its topic in each
request."""
REMEMBERED_TEXT_MAX: Final = 512
"""A longer text is not remembered, so that names cannot fill the memory."""


def is_entity_name(name: str) -> bool:
    """Whether a tenant, namespace or cluster may have the name."""
    return _ENTITY.fullmatch(name) is not None


def check_entity_name(name: str) -> str:
    """The name of a tenant, namespace or cluster, when it is a valid one.

    Raises: InvalidTopicName.
    """
    if not is_entity_name(name):
        raise InvalidTopicName(f"Invalid named entity: {name}")
    return name


def has_system_name(full: str) -> bool:
    """Whether this full name of a topic is one under which brokers keep something of their own,
    such as the policies of topics: it is hidden from clients."""
    return _SYSTEM_NAME.fullmatch(full) is not None


def is_system_topic(full: str) -> bool:
    """The same, or the topic is in a namespace of brokers. It is no client's: it is not in lists,
    does not count, and is not deleted when no client uses it (BrokerService of 4.0.8)."""
    return _SYSTEM_NAMESPACE.match(full) is not None or has_system_name(full)


def encode_name(name: str) -> str:
    """A local name or subscription name as one segment of a storage path (form encoding)."""
    return quote_plus(name, safe="*").replace("~", "%7E")


def decode_name(encoded: str) -> str:
    """The inverse of `encode_name`."""
    return unquote_plus(encoded)


@final
@dataclass(frozen=True, slots=True)
class TopicName:
    """A valid topic name. Make it with `parse` or `of`; equal names are equal objects."""

    domain: str
    tenant: str
    namespace: str
    local_name: str
    full: str = field(init=False, compare=False, repr=False)
    """The complete name, the form used everywhere on the wire. Every request needs it."""
    namespace_name: str = field(init=False, compare=False, repr=False)
    """`tenant/namespace`."""

    def __post_init__(self) -> None:
        namespace_name = f"{self.tenant}/{self.namespace}"
        object.__setattr__(self, "namespace_name", namespace_name)
        object.__setattr__(self, "full", f"{self.domain}://{namespace_name}/{self.local_name}")

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """The topic a client or a user means by `text`.

        Raises: InvalidTopicName.
        """
        if len(text) > REMEMBERED_TEXT_MAX:
            return _parse(text)
        return _parse_remembered(text)

    @classmethod
    def of(cls, domain: str, tenant: str, namespace: str, local_name: str) -> TopicName:
        """The topic of these (decoded) parts.

        Raises: InvalidTopicName.
        """
        if domain not in (PERSISTENT, NON_PERSISTENT):
            raise InvalidTopicName(f"Invalid topic domain: '{domain}'")
        if not tenant.strip() or not namespace.strip():
            raise InvalidTopicName(f"Invalid namespace format. namespace: {tenant}/{namespace}")
        check_entity_name(tenant)
        check_entity_name(namespace)
        # One object for all topics of a domain, tenant and namespace.
        name = cls(intern(domain), intern(tenant), intern(namespace), local_name)
        if not local_name.strip():
            raise InvalidTopicName(
                f"Invalid topic name: {name.full}. Topic local name must not be blank."
            )
        if "/" in local_name:
            raise InvalidTopicName(
                f"Invalid topic name: {name.full}. Topic local name must not contain a slash."
            )
        return name

    def __str__(self) -> str:
        return self.full

    def __hash__(self) -> int:
        return hash(self.full)

    @property
    def persistent(self) -> bool:
        """Whether messages are stored."""
        return self.domain == PERSISTENT

    @property
    def partition_index(self) -> int:
        """The number after the last `-partition-`, -1 for anything else."""
        base, separator, number = self.local_name.rpartition(PARTITION_SUFFIX)
        if not separator or not base or _PARTITION_NUMBER.fullmatch(number) is None:
            return -1
        index = int(number) if len(number) <= 10 else _PARTITION_MAX + 1
        return index if index <= _PARTITION_MAX else -1

    @property
    def is_partition(self) -> bool:
        """Whether this names one partition of a partitioned topic."""
        return self.partition_index >= 0

    @property
    def is_system(self) -> bool:
        """See `is_system_topic`."""
        return is_system_topic(self.full)

    @property
    def is_policy_log(self) -> bool:
        """Whether brokers keep the policies of the topics of its namespace in it."""
        return self.persistent and self.partitioned_base.local_name == POLICY_LOG

    @property
    def partitioned_base(self) -> TopicName:
        """The partitioned topic a partition belongs to; the name itself when it is no partition."""
        if self.partition_index < 0:
            return self
        base = self.local_name.rpartition(PARTITION_SUFFIX)[0]
        return TopicName(self.domain, self.tenant, self.namespace, base)

    def partition(self, index: int) -> TopicName:
        """One partition of this topic."""
        local_name = f"{self.local_name}{PARTITION_SUFFIX}{index}"
        return TopicName(self.domain, self.tenant, self.namespace, local_name)

    @property
    def managed_ledger_name(self) -> str:
        """`tenant/namespace/domain/encoded-name`: its storage path below /managed-ledgers."""
        return f"{self.namespace_name}/{self.domain}/{encode_name(self.local_name)}"

    @property
    def lookup_path(self) -> str:
        """`domain/tenant/namespace/encoded-name`, as in paths of the HTTP lookup."""
        return f"{self.domain}/{self.namespace_name}/{encode_name(self.local_name)}"

    @classmethod
    def from_managed_ledger_name(cls, name: str) -> TopicName:
        """The inverse of `managed_ledger_name`.

        Raises: InvalidTopicName.
        """
        parts = name.split("/")
        if len(parts) != 4:
            raise InvalidTopicName(f"Invalid managed ledger name: {name}")
        return cls.of(parts[2], parts[0], parts[1], decode_name(parts[3]))


def _parse(text: str) -> TopicName:
    domain, separator, rest = text.partition("://")
    if not separator:
        parts = [part for part in text.split("/") if part]
        if len(parts) == 3 and not text.endswith("/"):
            return TopicName.of(PERSISTENT, *parts)
        if len(parts) == 1 and not text.endswith("/"):
            return TopicName.of(PERSISTENT, PUBLIC_TENANT, DEFAULT_NAMESPACE, parts[0])
        raise InvalidTopicName(
            f"Invalid short topic name '{text}', it should be in the format of "
            "<tenant>/<namespace>/<topic> or <topic>"
        )
    if domain not in (PERSISTENT, NON_PERSISTENT):
        raise InvalidTopicName(f"Invalid topic domain: '{domain}'")
    parts = rest.split("/")
    if len(parts) < 3:
        raise InvalidTopicName(f"Invalid topic name: {text}")
    if len(parts) > 3:
        raise InvalidTopicName(
            f"Invalid topic name: {text}. A topic name has the form "
            "<domain>://<tenant>/<namespace>/<topic>; names with a cluster, or with a slash "
            "in <topic>, are not supported."
        )
    return TopicName.of(domain, *parts)


_parse_remembered: Final = lru_cache(maxsize=REMEMBERED_MAX)(_parse)
