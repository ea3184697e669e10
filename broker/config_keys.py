"""Facts about configuration keys: names, aliases, risks. Pure.

The keys of real Pulsar and BookKeeper without effect in Vela are listed in `pulsar_keys.conf` with
their values in stock files of Pulsar 2.8 to 4.2. Older names of keys with an effect are in
`ALIASES`. Keys on which security or durability depends are marked here: a key that resembles one of
them is taken for a misspelling of it, and never ignored.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RESEMBLANCE_MIN: Final = 0.8
"""Ratio of `difflib.SequenceMatcher`, case ignored, above which two names count as similar."""


@final
@dataclass(frozen=True, slots=True)
class Alias:
    """An older name of a key."""

    key: str
    wins: bool
    """Whether the older name overrides the new one if both are given."""


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
"""As resolved by `ServiceConfiguration` of Pulsar 4.0 and `ServerConfiguration` of BookKeeper 4.17.
An older name with a blank or a negative value counts as not given."""

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

_PROTECTING: Final = frozenset(
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


def is_critical(key: str) -> bool:
    """Whether a key decides about access to data, or whether and for how long data is kept.

    Only keys that Vela honours or refuses count: a misspelling of a key without effect changes
    nothing.
    """
    return key in _PROTECTING or key in REFUSED


def nearest(key: str, names: Iterable[str]) -> str | None:
    """The name that a misspelt key most resembles, if any is similar enough."""
    by_folded = {name.lower(): name for name in names}
    close = difflib.get_close_matches(key.lower(), by_folded, n=1, cutoff=RESEMBLANCE_MIN)
    return by_folded[close[0]] if close else None


def parse_stock_values(text: str) -> dict[str, frozenset[str]]:
    """Keys without an effect and their stock values, from the text of `pulsar_keys.conf`."""
    known: dict[str, frozenset[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            key, _, stock = line.partition("=")
            known[key] = frozenset(stock.split("|"))
    return known
