"""Facts about the broker's configuration keys: names, aliases, risks. Pure.

Keys of real Pulsar and BookKeeper without effect in Vela are recognised by the list in `settings`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bookie.config import ADDED_BY, violated_compaction_rule
from broker.configuration.advertised_listeners import violated_listener_rule
from broker.configuration.tls_config import violated_port_rule
from broker.ground.config import DEFAULT_AUTHORIZATION, WILDCARD_ADDRESSES, BrokerConfig
from broker.tenancy.policies.effective import violated_type_rule
from broker.tenancy.policies.persistence import violated_quorum_rule
from settings.hosts import violated_host_rule
from settings.rules import Alias, KeyRules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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

TLS_SWITCH: Final = "tlsEnabled"
REFUSED: Final[Mapping[str, str]] = {
    "bindAddresses": "Vela listens on one address: set bindAddress, the ports, and "
    "internalListenerName",
    "brokerClientTlsEnabledWithKeyStore": "Vela reads PEM files: name them in "
    "brokerClientTrustCertsFilePath",
    "bookieAuthProviderFactoryClass": "Vela's bookie knows clients by their certificates: set "
    "tlsClientAuthentication of `vela bookie`",
    "journalWriteData": "Vela never acknowledges an entry that is not in the journal",
    TLS_SWITCH: "set brokerServicePortTls and webServicePortTls",
    "tlsEnabledWithKeyStore": "Vela reads PEM files: name them in tlsCertificateFilePath, "
    "tlsKeyFilePath and tlsTrustCertsFilePath",
    "tlsProviderFactoryClass": "the bookie of a standalone broker has no TLS; `vela bookie` has",
    "transactionCoordinatorEnabled": "Vela has no transactions yet",
}
"""Keys that protect data: a value that Vela cannot honour prevents the start."""


def excuse_tls_switch(config: BrokerConfig) -> str:
    """The notice about `tlsEnabled=true` where a port with TLS is set, which has the effect it asks
    for."""
    ports = {
        "brokerServicePortTls": config.brokerServicePortTls,
        "webServicePortTls": config.webServicePortTls,
    }
    given = " and ".join(f"{key}={port}" for key, port in ports.items() if port is not None)
    return f"has no effect: TLS is at {given}" if given else ""


EXCUSED: Final[Mapping[str, Callable[[BrokerConfig], str]]] = {TLS_SWITCH: excuse_tls_switch}
_OWN_METADATA: Final = "Vela keeps its metadata in its own data directory"
_OPENSSL: Final = "TLS is that of OpenSSL"
NO_CHOICE: Final[Mapping[str, str]] = {
    "sslFactoryPlugin": _OPENSSL,
    "tlsProvider": _OPENSSL,
    "webServiceTlsProvider": _OPENSSL,
}
"""Keys that choose among classes of Java."""
OF_OTHER_MEMORY: Final[Mapping[str, str]] = {
    "managedLedgerCacheCopyEntries": "every entry has memory of its own, so a cached one keeps no "
    "larger buffer",
}
"""Keys about the buffers of Java."""
NOT_APPLICABLE: Final[Mapping[str, str]] = {
    **NO_CHOICE,
    **OF_OTHER_MEMORY,
    "numAddWorkerThreads": ADDED_BY,
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
        "advertisedListeners",
        "anonymousUserRole",
        "authenticateMetricsEndpoint",
        "authenticateOriginalAuthData",
        "authenticationEnabled",
        "authenticationProviders",
        "authenticationRefreshCheckSeconds",
        "basicAuthConf",
        "authorizationAllowWildcardsMatching",
        "authorizationEnabled",
        "authorizationProvider",
        "bindAddress",
        "bookiePort",
        "brokerDeduplicationEnabled",
        "brokerDeleteInactiveTopicsEnabled",
        "brokerDeleteInactiveTopicsMode",
        "brokerServicePort",
        "brokerServicePortTls",
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
        "openIDAcceptedTimeLeewaySeconds",
        "openIDAllowedAudiences",
        "openIDAllowedTokenIssuers",
        "openIDRequireIssuersUseHttps",
        "openIDRoleClaim",
        "openIDTokenIssuerTrustCertsFilePath",
        "proxyRoles",
        "tokenAllowedClockSkewSeconds",
        "tokenAudience",
        "tokenAudienceClaim",
        "tokenAuthClaim",
        "tokenPublicAlg",
        "tokenPublicKey",
        "tokenSecretKey",
        "superUserRoles",
        "tlsAllowInsecureConnection",
        "tlsCertRefreshCheckDurationSec",
        "tlsCertificateFilePath",
        "tlsCiphers",
        "tlsKeyFilePath",
        "tlsProtocols",
        "tlsRequireTrustedClientCertOnConnect",
        "tlsTrustCertsFilePath",
        "webServiceAllowedHosts",
        "webServicePort",
        "webServicePortTls",
        "webServiceTlsCiphers",
        "webServiceTlsProtocols",
    }
)


SECRET: Final = frozenset(
    {
        "basicAuthConf",
        "brokerClientAuthenticationParameters",
        "managedLedgerPassword",
        "tokenSecretKey",
    }
)
"""Keys whose values are never shown."""


def access_notice(config: BrokerConfig) -> str:
    """A notice about strangers who can do everything; empty: there are none."""
    if config.authenticationEnabled and not config.authorizationEnabled:
        return (
            "authenticationEnabled=true without authorization: every client that is authenticated"
            " can read, write and delete all data"
        )
    if config.bindAddress in WILDCARD_ADDRESSES and not config.authenticationEnabled:
        return (
            f"listening on all addresses (bindAddress={config.bindAddress}) without "
            "authentication: any host that can connect can read, write and delete all data"
        )
    return ""


def check_together(config: BrokerConfig) -> str:
    """The violated rule between keys, or an empty text."""
    return (
        violated_host_rule("advertisedAddress", config.advertisedAddress)
        or violated_quorum_rule(config)
        or violated_compaction_rule(config)
        or violated_port_rule(config)
        or violated_listener_rule(config)
        or _violated_authorization_rule(config)
        or violated_type_rule(config)
    )


def _violated_authorization_rule(config: BrokerConfig) -> str:
    """Pulsar ends with the first of these, too, and with a class that it cannot load."""
    if not config.authorizationEnabled:
        return ""
    if not config.authenticationEnabled:
        return (
            "authorizationEnabled=true needs authenticationEnabled=true: without it nobody has a "
            "role that could be allowed anything"
        )
    if config.authorizationProvider != DEFAULT_AUTHORIZATION:
        return (
            f"authorizationProvider={config.authorizationProvider!r} is not one that Vela has: "
            f"leave it out, or set it to {DEFAULT_AUTHORIZATION}"
        )
    return ""


BROKER_KEYS: Final = KeyRules(
    config_type=BrokerConfig,
    aliases=ALIASES,
    refused=REFUSED,
    excused=EXCUSED,
    not_applicable=NOT_APPLICABLE,
    protecting=PROTECTING,
    check_together=check_together,
)
