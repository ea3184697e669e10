"""Facts about the broker's configuration keys: names, aliases, risks. Pure.

Those of real Pulsar and BookKeeper without effect in Vela are told from the list of upstream's keys
in `settings`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bookie.config import violated_compaction_rule
from broker.config import SUBSCRIPTION_TYPES, BrokerConfig
from broker.policies.persistence import violated_quorum_rule
from settings.rules import Alias, KeyRules

if TYPE_CHECKING:
    from collections.abc import Mapping

ALIASES: Final[Mapping[str, Alias]] = {
    "brokerServicePurgeInactiveFrequencyInSeconds": Alias(
        "brokerDeleteInactiveTopicsFrequencySeconds", wins=False
    ),
    "compactionRate": Alias("compactionRateByEntries", wins=False),
    "journalDirectory": Alias("journalDirectories", wins=False),
    "managedLedgerMaxUnackedRangesToPersistInZooKeeper": Alias(
        "managedLedgerMaxUnackedRangesToPersistInMetadataStore", wins=True
    ),
}
"""As resolved by `ServiceConfiguration` of Pulsar 4.0 and `ServerConfiguration` of BookKeeper
4.17."""

REFUSED: Final[Mapping[str, str]] = {
    "authenticateMetricsEndpoint": "Vela does not authenticate clients yet",
    "authenticationEnabled": "Vela does not authenticate clients yet",
    "authorizationEnabled": "Vela does not authorize clients yet",
    "bookieAuthProviderFactoryClass": "Vela's bookie does not authenticate clients yet",
    "brokerServicePortTls": "Vela has no TLS listener yet",
    "journalWriteData": "Vela never acknowledges an entry that is not in the journal",
    "tlsEnabled": "Vela has no TLS listener yet",
    "tlsEnabledWithKeyStore": "Vela has no TLS listener yet",
    "tlsProviderFactoryClass": "Vela's bookie has no TLS listener yet",
    "tlsRequireTrustedClientCertOnConnect": "Vela has no TLS listener yet",
    "transactionCoordinatorEnabled": "Vela has no transactions yet",
    "webServicePortTls": "Vela has no TLS listener yet",
}
"""Keys that protect data: a value that Vela cannot honour prevents the start."""

_OWN_METADATA: Final = "Vela keeps its metadata in its own data directory"
NOT_APPLICABLE: Final[Mapping[str, str]] = {
    "configurationMetadataStoreUrl": _OWN_METADATA,
    "configurationStoreServers": _OWN_METADATA,
    "globalZookeeperServers": _OWN_METADATA,
    "metadataServiceUri": _OWN_METADATA,
    "metadataStoreUrl": _OWN_METADATA,
    "zkServers": _OWN_METADATA,
    "zookeeperServers": _OWN_METADATA,
    "bookkeeperMetadataServiceUri": "Vela stores ledgers in its own bookie",
}
"""Keys that name other processes, which a standalone broker does not have."""

PROTECTING: Final = frozenset(
    {
        "acknowledgmentAtBatchIndexLevelEnabled",
        "advertisedAddress",
        "bindAddress",
        "bookiePort",
        "brokerDeduplicationEnabled",
        "brokerDeleteInactiveTopicsEnabled",
        "brokerDeleteInactiveTopicsMode",
        "defaultRetentionSizeInMB",
        "defaultRetentionTimeInMinutes",
        "encryptionRequireOnProducer",
        "forceDeleteNamespaceAllowed",
        "forceDeleteTenantAllowed",
        "journalDirectories",
        "journalSyncData",
        "ledgerDirectories",
        "managedLedgerDefaultAckQuorum",
        "managedLedgerDefaultEnsembleSize",
        "managedLedgerDefaultWriteQuorum",
        "managedLedgerDigestType",
        "managedLedgerPassword",
        "webServiceAllowedHosts",
    }
)


def check_together(config: BrokerConfig) -> str:
    """The violated rule between keys, or an empty text."""
    return (
        violated_quorum_rule(config)
        or violated_compaction_rule(config)
        or _unknown_subscription_type(config)
    )


def _unknown_subscription_type(config: BrokerConfig) -> str:
    unknown = [each for each in config.subscriptionTypesEnabled if each not in SUBSCRIPTION_TYPES]
    if not unknown:
        return ""
    return (
        f"subscriptionTypesEnabled must name types of {', '.join(SUBSCRIPTION_TYPES)}, found "
        f"{', '.join(unknown)}"
    )


BROKER_KEYS: Final = KeyRules(
    config_type=BrokerConfig,
    aliases=ALIASES,
    refused=REFUSED,
    not_applicable=NOT_APPLICABLE,
    protecting=PROTECTING,
    check_together=check_together,
)
