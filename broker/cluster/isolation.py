"""Isolation of namespaces: which brokers may own the bundles of which namespaces. Pure.

A policy controls the namespaces that match one of its expressions. Their bundles go to its primary
brokers and, when fewer primaries than `min_limit` are available, to its secondary ones, too. All
other namespaces share the brokers that are primary for no policy. The first policy that matches a
namespace counts. Expressions for brokers are matched with the host, without the port.

A primary is available while it is a member of the cluster and its usage, in percent, is below
`usage_threshold`; 100 never ends that.

Sources: NamespaceIsolationPolicies, NamespaceIsolationPolicyImpl, MinAvailablePolicy and
LoadManagerShared.applyNamespacePolicies of Pulsar 4.0.8. The record is Pulsar's:
docs/formats/ownership.md.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, final

from broker.cluster.name_patterns import PatternRefused, name_pattern
from broker.cluster.records import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from broker.cluster.records import BrokerReport

Json = dict[str, Any]

MIN_AVAILABLE: Final = "min_available"
NO_THRESHOLD: Final = 100
CHANGED: Final = "changed"
ALL_MATCHING: Final = "all_matching"
NONE: Final = "none"
UNLOAD_SCOPES: Final = (ALL_MATCHING, NONE, CHANGED)
_LISTS: Final = ("namespaces", "primary", "secondary")
_REMEMBERED_MAX: Final = 100_000


class BadPolicy(ValueError):
    """A record is no policy. The text says why."""


class Standing(Enum):
    """The standing of a broker for a namespace. The values are Pulsar's (BrokerAssignment)."""

    PRIMARY = "primary"
    SECONDARY = "secondary"
    SHARED = "shared"


@final
@dataclass(frozen=True, slots=True)
class Candidates:
    """The brokers that may own a bundle, by id."""

    brokers: frozenset[str]
    avoided: frozenset[str] = frozenset()
    """The brokers among them that get it only if all are avoided."""


def host_of(broker_id: str) -> str:
    """The host in `host:port`."""
    return broker_id.rpartition(":")[0]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationPolicy:
    """One policy. The fields are the record's."""

    namespaces: tuple[str, ...]
    primary: tuple[str, ...]
    secondary: tuple[str, ...]
    min_limit: int
    usage_threshold: int
    unload_scope: str | None = None

    @classmethod
    def parse(cls, record: object) -> IsolationPolicy:
        """Raises: BadPolicy."""
        if not isinstance(record, dict):
            raise BadPolicy("a policy is a JSON object")
        lists = {name: _texts(record.get(name), name) for name in _LISTS}
        if not lists["namespaces"] or not lists["primary"]:
            raise BadPolicy("a policy needs namespaces and primary brokers")
        failover = record.get("auto_failover_policy")
        if not isinstance(failover, dict) or failover.get("policy_type") != MIN_AVAILABLE:
            raise BadPolicy(f"the policy_type of auto_failover_policy should be {MIN_AVAILABLE}")
        parameters = failover.get("parameters")
        if not isinstance(parameters, dict):
            raise BadPolicy("auto_failover_policy needs parameters")
        scope = record.get("unload_scope")
        if scope not in UNLOAD_SCOPES:
            scope = None  # as Pulsar reads it
        return cls(
            **lists,
            min_limit=_whole(parameters, "min_limit"),
            usage_threshold=_whole(parameters, "usage_threshold"),
            unload_scope=scope,
        )

    @property
    def record(self) -> Json:
        """As stored and as shown."""
        given: Json = {name: list(getattr(self, name)) for name in _LISTS}
        given["auto_failover_policy"] = {
            "parameters": {
                "min_limit": str(self.min_limit),
                "usage_threshold": str(self.usage_threshold),
            },
            "policy_type": MIN_AVAILABLE,
        }
        if self.unload_scope is not None:
            given["unload_scope"] = self.unload_scope
        return given

    @property
    def are_numbers_possible(self) -> bool:
        """Whether Pulsar takes its parameters from an administrator."""
        return self.min_limit >= 0 and 0 <= self.usage_threshold <= NO_THRESHOLD

    @property
    def refused_patterns(self) -> list[str]:
        """Why expressions of this policy match nothing here."""
        found: list[str] = []
        for name in _LISTS:
            for text in getattr(self, name):
                try:
                    name_pattern(text)
                except PatternRefused as error:
                    found.append(f"{name}: {error}")
        return found

    def controls(self, namespace_name: str) -> bool:
        """Whether the bundles of the namespace are placed by this policy."""
        return matches_any(self.namespaces, namespace_name)

    def standing_of(self, broker: str) -> Standing | None:
        """`broker` is what the expressions are matched with. None: neither primary nor
        secondary."""
        if matches_any(self.primary, broker):
            return Standing.PRIMARY
        return Standing.SECONDARY if matches_any(self.secondary, broker) else None

    def is_available(self, report: BrokerReport) -> bool:
        """Whether a primary broker with this report is to be used without need."""
        return self.usage_threshold >= NO_THRESHOLD or report.usage * 100 < self.usage_threshold


@final
class IsolationPolicies:
    """All policies of a cluster, in their order. Immutable; results are remembered."""

    def __init__(self, policies: Mapping[str, IsolationPolicy]) -> None:
        self.policies = dict(policies)
        self._controlling: dict[str, IsolationPolicy | None] = {}
        self.refused_patterns = {
            name: reasons for name, each in policies.items() if (reasons := each.refused_patterns)
        }
        """By policy: why expressions of it match nothing here. Another broker may understand
        them."""

    @classmethod
    def parse(cls, data: bytes) -> IsolationPolicies:
        """From the stored record. Raises: BadPolicy: it is damaged."""
        record = decode(data)
        if record is None:
            raise BadPolicy("it is not a JSON object")
        policies: dict[str, IsolationPolicy] = {}
        for name, each in record.items():
            try:
                policies[name] = IsolationPolicy.parse(each)
            except BadPolicy as error:
                raise BadPolicy(f"policy {name}: {error}") from None
        return cls(policies)

    def encode(self) -> bytes:
        """As stored."""
        return encode({name: each.record for name, each in self.policies.items()})

    def policy_of(self, namespace_name: str) -> IsolationPolicy | None:
        """The policy that controls a namespace."""
        if namespace_name not in self._controlling:
            if len(self._controlling) >= _REMEMBERED_MAX:
                self._controlling.clear()
            matching = (each for each in self.policies.values() if each.controls(namespace_name))
            self._controlling[namespace_name] = next(matching, None)
        return self._controlling[namespace_name]

    def standing_of(self, namespace_name: str, broker_id: str) -> Standing | None:
        """The standing of the broker for the namespace. None: it may not own its bundles."""
        host = host_of(broker_id)
        policy = self.policy_of(namespace_name)
        if policy is not None:
            return policy.standing_of(host)
        is_primary = any(
            each.standing_of(host) is Standing.PRIMARY for each in self.policies.values()
        )
        return None if is_primary else Standing.SHARED

    def candidates(self, namespace_name: str, reports: Mapping[str, BrokerReport]) -> Candidates:
        """The brokers of these reports that may own a bundle of the namespace now."""
        standings = {
            broker_id: self.standing_of(namespace_name, broker_id) for broker_id in reports
        }
        policy = self.policy_of(namespace_name)
        if policy is None:
            return Candidates(frozenset(each for each in reports if standings[each] is not None))
        primaries = frozenset(each for each in reports if standings[each] is Standing.PRIMARY)
        available = frozenset(each for each in primaries if policy.is_available(reports[each]))
        brokers = primaries
        if len(available) < policy.min_limit:
            brokers |= {each for each in reports if standings[each] is Standing.SECONDARY}
        return Candidates(brokers, primaries - available)


NO_POLICIES: Final = IsolationPolicies({})


def namespaces_to_unload(
    old: IsolationPolicy | None, new: IsolationPolicy, namespace_names: Iterable[str]
) -> list[str]:
    """The namespaces whose bundles are to be placed again after `new` was set in place of `old`.

    With `changed`, which is the default, those of expressions that only one of the two has; all of
    both when the primary brokers changed. With `all_matching` all of both. Source: ClustersBase.
    """
    if new.unload_scope == NONE:
        return []
    before = set(old.namespaces) if old is not None else set()
    texts = before | set(new.namespaces)
    have_primaries_changed = old is not None and Counter(old.primary) != Counter(new.primary)
    if new.unload_scope != ALL_MATCHING and not have_primaries_changed:
        texts -= before & set(new.namespaces)
    return [name for name in namespace_names if matches_any(texts, name)]


def matches_any(texts: Iterable[str], name: str) -> bool:
    """Whether one of the expressions matches the whole name. Those that are not understood match
    nothing."""
    for text in texts:
        try:
            if name_pattern(text).matches(name):
                return True
        except PatternRefused:
            continue
    return False


def _texts(given: object, name: str) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise BadPolicy(f"{name} is an array of expressions")
    return tuple(given)


def _whole(parameters: Mapping[str, object], name: str) -> int:
    """Numbers are texts in Pulsar's record."""
    given = parameters.get(name)
    text = str(given) if isinstance(given, int) and not isinstance(given, bool) else given
    if not isinstance(text, str) or not text.isascii() or not text.removeprefix("-").isdecimal():
        raise BadPolicy(f"{name} is a whole number")
    if len(text) > len(str(2**31)):
        raise BadPolicy(f"{name} is too large")
    return int(text)
