"""Every subcommand of `pulsar-admin tenants`, `namespaces` and `topicPolicies` of Pulsar 4.0.8.

They are played in this order, as lines of `pulsar-shell`, so that each finds what those before it
left: a policy is read, set, read again, removed, and read once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TENANT: Final = "policies"
NAMESPACE: Final = f"{TENANT}/ns"
TOPIC: Final = f"persistent://{NAMESPACE}/topic"
GROUPS: Final = ("tenants", "namespaces", "topicPolicies")
PAUSE: Final = f"topics list {NAMESPACE}"
"""Not compared. Pulsar has a topic's policies in force shortly after the answer."""


@dataclass(frozen=True)
class Policy:
    """`get-<name>`, `set-<name>` with each of the values, `remove-<name>`."""

    name: str
    values: tuple[str, ...] = ()
    get: str = ""
    """The name of the reading subcommand where it is another."""
    remove: str = "remove"
    """The verb that removes it; empty: there is none."""
    key: str = ""
    """Options that choose among several values of one kind."""
    applied: bool = True
    """Whether `get` of a topic has `--applied`."""
    pauses: int = 3
    """How many there are after a change for a topic."""
    for_all: bool = True
    """Whether a topic's subcommands have `--global`."""

    def lines(self, group: str, target: str) -> list[str]:
        """The subcommands about a namespace or a topic."""
        name = self.get or f"get-{self.name}"
        end = f"{self.key} {target}".strip()
        reads = [f"{group} {name} {end}"]
        if group == "topicPolicies" and self.applied:
            reads.append(f"{group} {name} --applied {end}")
        settled = [PAUSE] * self.pauses if group == "topicPolicies" else []
        lines = [*reads]
        for value in self.values:
            lines += [f"{group} set-{self.name} {value} {end}", *settled, *reads]
        if self.remove:
            lines += [f"{group} {self.remove}-{self.name} {end}", *settled, *reads]
        if group == "topicPolicies" and self.for_all:
            everywhere = f"--global {end}"
            reads += [read.replace(name, f"{name} --global") for read in reads]
            lines += [f"{group} set-{self.name} {self.values[0]} {everywhere}", *settled, *reads]
            lines += [f"{group} {self.remove}-{self.name} {everywhere}", *settled, *reads]
        return [" ".join(line.split()) for line in lines]


_RATE: Final = "-md 10 -bd 1000 -dt 2"
_INACTIVE: Final = (
    "-e -m delete_when_no_subscriptions -t 10h",
    "-d -m delete_when_subscriptions_caught_up -t 90s",
)
_DELAYED: Final = ("-e -t 2s -md 5000", "-d", "-e -t 100")

OF_NAMESPACES: Final = (
    Policy("clusters", ("-c standalone", "-c other"), remove=""),
    Policy("allowed-clusters", ("-c standalone", "-c other"), remove=""),
    Policy("subscription-types-enabled", ("-t Shared,Failover",)),
    Policy(
        "backlog-quota",
        ("-l 10M -p producer_exception", "-lt 100 -p consumer_backlog_eviction -t message_age"),
        get="get-backlog-quotas",
    ),
    Policy("persistence", ("-e 1 -w 1 -a 1 -r 2.5", "-e 1 -w 2 -a 1 -r 0")),
    Policy("message-ttl", ("-ttl 100", "-ttl 2h", "-ttl 0")),
    Policy("max-subscriptions-per-topic", ("-m 3", "-m -1")),
    Policy("subscription-expiration-time", ("-t 60", "-t -1")),
    Policy("anti-affinity-group", ("-g apart",), remove="delete"),
    Policy("deduplication", ("-e", "-d")),
    Policy("auto-topic-creation", ("-e -t partitioned -n 2", "-d")),
    Policy("auto-subscription-creation", ("-e", "")),
    Policy("retention", ("-s 20G -t 3h", "-s -1 -t -1", "-s 0 -t 3h")),
    Policy("bookie-affinity-group", ("-pg one -sg two",), remove="delete"),
    Policy("dispatch-rate", (_RATE, "-md 10 -rp")),
    Policy("subscribe-rate", ("-sr 10 -st 20",)),
    Policy("subscription-dispatch-rate", (_RATE, "-bd 10 -rp")),
    Policy("publish-rate", ("-m 10 -b 1000", "-m 10")),
    Policy("replicator-dispatch-rate", (_RATE,)),
    Policy("encryption-required", ("-e", "-d"), remove=""),
    Policy("subscription-auth-mode", ("-m Prefix", "-m None"), remove=""),
    Policy("delayed-delivery", _DELAYED),
    Policy("inactive-topic-policies", _INACTIVE),
    Policy("max-producers-per-topic", ("-p 3", "-p -1")),
    Policy("max-consumers-per-topic", ("-c 3", "-c -1")),
    Policy("max-consumers-per-subscription", ("-c 3", "-c -1")),
    Policy("max-unacked-messages-per-subscription", ("-c 3", "-c -1")),
    Policy("max-unacked-messages-per-consumer", ("-c 3", "-c -1")),
    Policy("compaction-threshold", ("-t 10M", "-t 0")),
    Policy("offload-threshold", ("-s 10M -t 1h", "-s -1 -t -1"), remove=""),
    Policy("offload-deletion-lag", ("-l 1h",), remove="clear"),
    Policy("schema-autoupdate-strategy", ("-c Full", "-d"), remove=""),
    Policy("schema-compatibility-strategy", ("-c BACKWARD", "-c UNDEFINED"), remove=""),
    Policy("is-allow-auto-update-schema", ("-d", "-e"), remove=""),
    Policy("schema-validation-enforce", ("-e", "-d"), remove=""),
    Policy("offload-policies", ("-d aws-s3 -b bucket -r region",)),
    Policy("deduplication-snapshot-interval", ("-i 10", "-i -1")),
    Policy("max-topics-per-namespace", ("-t 30", "-t -1")),
    Policy("resource-group", ("-rgn absent", "-rgn grouped")),
    Policy("entry-filters", ("-efn absent",)),
    Policy("dispatcher-pause-on-ack-state-persistent", ("",)),
)

OF_TOPICS: Final = (
    Policy("message-ttl", ("-t 100", "-t 2h")),
    Policy("max-unacked-messages-per-consumer", ("-m 3", "-m -1")),
    Policy("max-consumers-per-subscription", ("-c 3", "-c -1"), applied=False),
    Policy("subscription-types-enabled", ("-t Shared,Failover",), applied=False),
    Policy("retention", ("-s 20G -t 3h", "-s 10M -t 3h", "-s -1 -t -1")),
    Policy(
        "backlog-quota",
        ("-l 10M -p producer_exception", "-lt 100 -p consumer_backlog_eviction -t message_age"),
    ),
    Policy("max-producers", ("-p 3", "-p -1")),
    Policy("max-message-size", ("-m 1000", "-m -1"), applied=False),
    Policy("deduplication", ("-e", "-d"), applied=False),
    Policy("deduplication-snapshot-interval", ("-i 10",), applied=False),
    Policy("persistence", ("-e 1 -w 1 -a 1 -r 2.5", "-e 1 -w 2 -a 1 -r 0"), applied=False),
    Policy("subscription-dispatch-rate", (_RATE, "-bd 10 -rp")),
    Policy("subscription-dispatch-rate", (_RATE,), key="-s sub"),
    Policy("replicator-dispatch-rate", (_RATE,)),
    Policy("publish-rate", ("-m 10 -b 1000", "-m 10"), applied=False),
    Policy("compaction-threshold", ("-t 10M", "-t 0")),
    Policy("subscribe-rate", ("-sr 10 -st 20",)),
    Policy("max-consumers", ("-c 3", "-c -1")),
    Policy("delayed-delivery", _DELAYED),
    Policy("dispatch-rate", (_RATE, "-md 10 -rp")),
    Policy("offload-policies", ("-d aws-s3 -b bucket -r region",)),
    Policy("max-unacked-messages-per-subscription", ("-m 3", "-m -1")),
    Policy("inactive-topic-policies", _INACTIVE),
    Policy("max-subscriptions-per-topic", ("-s 3", "-s -1"), applied=False),
    Policy("schema-compatibility-strategy", ("-s BACKWARD", "-s UNDEFINED"), for_all=False),
    Policy("entry-filters-per-topic", ("-efn absent",)),
    Policy("auto-subscription-creation", ("-e", "")),
    Policy("dispatcher-pause-on-ack-state-persistent", ("",)),
    Policy("replication-clusters", ("-c standalone", "-c other", "-c standalone,other"), pauses=40),
)

_BEFORE: Final = f"""
tenants list
tenants create {TENANT} -r admin,other -c standalone
tenants create {TENANT} -r admin
tenants create absent-cluster -c nowhere
tenants list
tenants get {TENANT}
tenants get absent
tenants update {TENANT} -r other -c standalone
tenants get {TENANT}
tenants update absent -r other -c standalone
namespaces list {TENANT}
namespaces create {NAMESPACE} -b 4
namespaces create {NAMESPACE}
namespaces create absent/ns
namespaces create {TENANT}/second -c standalone
namespaces list {TENANT}
namespaces list absent
namespaces bundles {NAMESPACE}
namespaces policies {NAMESPACE}
namespaces policies {TENANT}/absent
topics create {TOPIC}
topics create-subscription -s sub {TOPIC}
topics create-partitioned-topic -p 2 persistent://{NAMESPACE}/parts
namespaces topics {NAMESPACE}
namespaces topics -m NON_PERSISTENT {NAMESPACE}
namespaces topics {TENANT}/absent
namespaces permissions {NAMESPACE}
namespaces grant-permission {NAMESPACE} --role app --actions produce,consume
namespaces permissions {NAMESPACE}
namespaces revoke-permission {NAMESPACE} --role app
namespaces permissions {NAMESPACE}
namespaces subscription-permission {NAMESPACE}
namespaces grant-subscription-permission {NAMESPACE} -s sub -rs app
namespaces subscription-permission {NAMESPACE}
namespaces revoke-subscription-permission {NAMESPACE} -s sub -r app
namespaces subscription-permission {NAMESPACE}
namespaces set-property -k a -v b {NAMESPACE}
namespaces get-property -k a {NAMESPACE}
namespaces get-property -k absent {NAMESPACE}
namespaces set-properties -p c=d,e=f {NAMESPACE}
namespaces get-properties {NAMESPACE}
namespaces remove-property -k c {NAMESPACE}
namespaces get-properties {NAMESPACE}
namespaces clear-properties {NAMESPACE}
namespaces get-properties {NAMESPACE}
resourcegroups create grouped -mp 10 -bp 1000 -md 10 -bd 1000
"""

_AFTER: Final = f"""
namespaces set-anti-affinity-group -g apart {NAMESPACE}
namespaces get-anti-affinity-namespaces -p {TENANT} -c standalone -g apart
namespaces get-anti-affinity-namespaces -c standalone -g apart
namespaces get-topic-positions -b 0x80000000_0xc0000000 {NAMESPACE}
namespaces clear-backlog -force {NAMESPACE}
namespaces clear-backlog -force -s sub {NAMESPACE}
namespaces unsubscribe -s sub {NAMESPACE}
namespaces unload -b 0x00000000_0x40000000 {NAMESPACE}
namespaces split-bundle -b 0x00000000_0x40000000 {NAMESPACE}
namespaces bundles {NAMESPACE}
namespaces unload {NAMESPACE}
namespaces unload {TENANT}/absent
topicPolicies set-max-producers -p 3 {TOPIC}
topicPolicies delete {TOPIC}
topicPolicies get-max-producers {TOPIC}
topicPolicies delete persistent://{NAMESPACE}/absent
topicPolicies get-max-producers persistent://{NAMESPACE}/absent
topicPolicies set-max-producers -p 3 persistent://{NAMESPACE}/parts
topicPolicies get-max-producers persistent://{NAMESPACE}/parts
topicPolicies get-max-producers persistent://{NAMESPACE}/parts-partition-0
namespaces policies {NAMESPACE}
namespaces update-migration-state --migrated {NAMESPACE}
namespaces delete {NAMESPACE}
topics delete {TOPIC}
topics delete-partitioned-topic persistent://{NAMESPACE}/parts
namespaces delete {NAMESPACE}
tenants delete {TENANT}
namespaces delete -f {TENANT}/second
tenants delete {TENANT}
tenants delete {TENANT}
tenants list
"""


def lines() -> list[str]:
    """All of them, without `admin` in front."""
    named = [line for each in OF_NAMESPACES for line in each.lines("namespaces", NAMESPACE)]
    topics = [line for each in OF_TOPICS for line in each.lines("topicPolicies", TOPIC)]
    return [*_BEFORE.split("\n")[1:-1], *named, *topics, *_AFTER.split("\n")[1:-1]]


def subcommand_of(line: str) -> str:
    """The first two words."""
    return " ".join(line.split()[:2])
