"""The keys of autorecovery: those of the bookie, which has the same file, and its own.

Names and meanings are BookKeeper's (`bookkeeper.conf`), defaults are those of Pulsar's file. Only
those keys of the bookie count that name the process and the metadata store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from bookie.process.config import ALIASES, BookieProcessConfig, violated_metadata_rule
from ledgers.remote.tls_keys import PROTECTING as OF_TLS
from ledgers.remote.tls_keys import ClientTlsConfig, violated_client_rule
from settings.hosts import violated_host_rule
from settings.kinds import Count, Positive  # noqa: TC001 - read at run time
from settings.rules import KeyRules

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AutorecoveryConfig(BookieProcessConfig, ClientTlsConfig):
    """Frozen configuration of one autorecovery process."""

    # --- the auditor --------------------------------------------------------------------
    auditorPeriodicBookieCheckInterval: Count = 86_400
    """Seconds between audits without a reason; 0: only after a bookie was lost."""
    auditorPeriodicCheckInterval: Count = 604_800
    """Seconds between looks at the copies of all closed ledgers; 0: never."""
    auditorLedgerVerificationPercentage: Count = 100
    """Per cent of the entries of a copy that are looked at besides the first and the last one; 100:
    the copy is read whole. BookKeeper's default is 0, which finds damage at the ends of a copy
    only."""
    auditorReadBytesPerSecond: Count = 10_000_000
    """How fast the copies of all ledgers are read; 0: as fast as bookies answer."""
    lostBookieRecoveryDelay: Count = 0
    """Seconds for which a single lost bookie is waited for. `bookkeeper shell
    lostbookierecoverydelay` sets it for the cluster, and then counts instead of this."""

    # --- the worker ---------------------------------------------------------------------
    openLedgerRereplicationGracePeriod: Count = 30_000
    """Milliseconds that the writer of an open ledger has to replace a lost bookie; then the ledger
    is closed."""
    rereplicationEntryBatchSize: Positive = 100
    """Entries copied at once."""
    addEntryTimeout: Positive = 30
    """Seconds for the answer to a copied entry."""
    readEntryTimeout: Positive = 30

    # --- where copies go ----------------------------------------------------------------
    minNumRacksPerWriteQuorum: Positive = 2
    enforceMinNumRacksPerWriteQuorum: bool = False
    """true: an entry is rather not copied than to fewer racks."""


_BY_CERTIFICATE: Final = (
    "bookies know Vela's autorecovery by its certificate: set tlsClientAuthentication"
)
REFUSED: Final[Mapping[str, str]] = {
    "bookieAuthProviderFactoryClass": _BY_CERTIFICATE,
    "clientAuthProviderFactoryClass": _BY_CERTIFICATE,
}

NOT_APPLICABLE: Final[Mapping[str, str]] = {
    "auditorPeriodicPlacementPolicyCheckInterval": "the placement of ledgers is not audited",
    "auditorPeriodicReplicasCheckInterval": (
        "copies are checked every auditorPeriodicCheckInterval, entry by entry as far as "
        "auditorLedgerVerificationPercentage says"
    ),
    "ensemblePlacementPolicy": "copies go to other racks where there are several",
    "repairedPlacementPolicyNotAdheringBookieEnable": "the placement of ledgers is not audited",
    "replicationRateByBytes": "copying is not slowed down",
}

_PROTECTING: Final = (
    frozenset(
        {
            "bookieId",
            "enforceMinNumRacksPerWriteQuorum",
            "lostBookieRecoveryDelay",
            "metadataServiceUri",
            "openLedgerRereplicationGracePeriod",
            "metadataStoreConfigPath",
            "zkEnableSecurity",
            "zkLedgersRootPath",
            "zkServers",
            "clientKeyStore",
            "clientTrustStore",
            "tlsHostnameVerificationEnabled",
        }
    )
    | OF_TLS
)


def check_together(config: AutorecoveryConfig) -> str:
    """The violated rule between keys, or an empty text."""
    if config.auditorLedgerVerificationPercentage > 100:
        return "auditorLedgerVerificationPercentage is at most 100"
    return (
        violated_host_rule("advertisedAddress", config.advertisedAddress)
        or violated_metadata_rule(config)
        or violated_client_rule(config)
    )


AUTORECOVERY_KEYS: Final = KeyRules(
    config_type=AutorecoveryConfig,
    aliases=ALIASES,
    refused=REFUSED,
    not_applicable=NOT_APPLICABLE,
    protecting=_PROTECTING,
    check_together=check_together,
)
