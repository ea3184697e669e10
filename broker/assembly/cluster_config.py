"""The configuration of a broker of a cluster: the keys of every broker, and those of `vela broker`.

Names, types and defaults are those of Pulsar's broker.conf. Keys of the embedded bookie are read
and have no effect.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Final

from bookie.config import BookieConfig
from broker.assembly.bookie_tls import PROTECTING as OF_BOOKIE_TLS
from broker.assembly.bookie_tls import BookieClientTlsConfig, violated_bookie_tls_rule
from broker.assembly.ledger_client import replicating
from broker.cluster.config import ClusterConfig
from broker.configuration.config_keys import (
    ALIASES,
    EXCUSED,
    NO_CHOICE,
    OF_OTHER_MEMORY,
    PROTECTING,
    REFUSED,
    access_notice,
    check_together,
)
from broker.ground.config import BrokerConfig
from broker.tenancy.policies.persistence import persistence_of
from ledgers.placement import PlacementRules
from ledgers.quarantine import QuarantineRules
from ledgers.remote.config import RemoteConfig
from ledgers.speculation import SpeculationRules
from metadata.opening import UNIX, shared_place
from security.authentication.own_credentials import PARAMETERS_KEY, PLUGIN_KEY, TLS_PLUGIN
from security.tls_rules import TlsClientRules
from security.tls_suites import TlsChoice
from settings.kinds import Bounds, Count, Positive, Ratio
from settings.rules import Alias, KeyRules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledgers.client import LedgerClientConfig

_Seconds = Annotated[int, Bounds(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBrokerConfig(BrokerConfig, ClusterConfig, BookieClientTlsConfig):
    """All settings of `vela broker`. Those for the owners of topics are in `ClusterConfig`."""

    # --- the cluster --------------------------------------------------------------------
    clusterName: str = ""
    metadataStoreUrl: str = ""
    configurationMetadataStoreUrl: str = ""
    bookkeeperMetadataServiceUri: str = ""

    # --- the client of other brokers ----------------------------------------------------
    brokerClientAuthenticationPlugin: str = ""
    brokerClientAuthenticationParameters: str = ""
    brokerClientTlsEnabled: bool = False
    brokerClientTrustCertsFilePath: str = ""
    brokerClientCertificateFilePath: str = ""
    brokerClientKeyFilePath: str = ""
    brokerClientTlsProtocols: tuple[str, ...] = ()
    brokerClientTlsCiphers: tuple[str, ...] = ()
    tlsHostnameVerificationEnabled: bool = False

    # --- ledgers ------------------------------------------------------------------------
    managedLedgerDefaultEnsembleSize: Positive = 2
    managedLedgerDefaultWriteQuorum: Positive = 2
    managedLedgerDefaultAckQuorum: Positive = 2
    bookkeeperNumberOfChannelsPerBookie: Positive = 16
    bookkeeperClientTimeoutInSeconds: _Seconds = 30
    bookkeeperClientSpeculativeReadTimeoutInMillis: Count = 0
    bookkeeperClientRackawarePolicyEnabled: bool = True
    bookkeeperClientRegionawarePolicyEnabled: bool = False
    bookkeeperClientMinNumRacksPerWriteQuorum: Positive = 2
    bookkeeperClientEnforceMinNumRacksPerWriteQuorum: bool = False
    bookkeeperClientIsolationGroups: tuple[str, ...] = ()
    bookkeeperClientSecondaryIsolationGroups: tuple[str, ...] = ()
    bookkeeperClientHealthCheckEnabled: bool = True
    bookkeeperClientHealthCheckIntervalSeconds: _Seconds = 60
    bookkeeperClientHealthCheckErrorThresholdPerInterval: Positive = 5
    bookkeeperClientHealthCheckQuarantineTimeInSeconds: _Seconds = 1_800
    bookkeeperClientQuarantineRatio: Ratio = 1.0
    bookkeeper_delayEnsembleChange: bool = False
    bookkeeper_opportunisticStriping: bool = False
    bookkeeperExplicitLacIntervalInMills: Count = 0

    def broker_client(self) -> TlsClientRules:
        """How other brokers are reached, if that is with TLS."""
        return TlsClientRules(
            trusted_path=self.brokerClientTrustCertsFilePath,
            certificate_path=self.brokerClientCertificateFilePath,
            key_path=self.brokerClientKeyFilePath,
            verifies_host_name=self.tlsHostnameVerificationEnabled,
            accepts_untrusted=self.tlsAllowInsecureConnection,
            choice=TlsChoice(
                protocols=self.brokerClientTlsProtocols,
                ciphers=self.brokerClientTlsCiphers,
                protocols_key="brokerClientTlsProtocols",
                ciphers_key="brokerClientTlsCiphers",
            ),
            check_seconds=float(self.tlsCertRefreshCheckDurationSec),
        )

    def bookies(self) -> RemoteConfig:
        """How the ledger client speaks to bookies."""
        seconds = float(self.bookkeeperClientTimeoutInSeconds)
        return RemoteConfig(
            channels=self.bookkeeperNumberOfChannelsPerBookie,
            add_timeout_s=seconds,
            read_timeout_s=seconds,
        )

    def ledgers(self) -> LedgerClientConfig:
        """How ledgers are replicated, recovered and repaired while they are written."""
        return replace(
            replicating(self),
            request_timeout_s=float(self.bookkeeperClientTimeoutInSeconds),
            delay_ensemble_change=self.bookkeeper_delayEnsembleChange,
            speculation=SpeculationRules.every(
                self.bookkeeperClientSpeculativeReadTimeoutInMillis / 1000
            ),
            explicit_lac_interval_s=self.bookkeeperExplicitLacIntervalInMills / 1000,
        )

    def placement(self) -> PlacementRules:
        """The rules for the choice of bookies of a ledger."""
        return PlacementRules(
            is_rack_aware=self.bookkeeperClientRackawarePolicyEnabled,
            is_region_aware=self.bookkeeperClientRegionawarePolicyEnabled,
            racks_min=self.bookkeeperClientMinNumRacksPerWriteQuorum,
            are_racks_enforced=self.bookkeeperClientEnforceMinNumRacksPerWriteQuorum,
            is_opportunistic=self.bookkeeper_opportunisticStriping,
            isolation_groups=frozenset(self.bookkeeperClientIsolationGroups),
            secondary_isolation_groups=frozenset(self.bookkeeperClientSecondaryIsolationGroups),
        )

    def quarantine(self) -> QuarantineRules:
        """The rules for the bookies to avoid."""
        return QuarantineRules(
            is_on=self.bookkeeperClientHealthCheckEnabled,
            failures=self.bookkeeperClientHealthCheckErrorThresholdPerInterval,
            interval_s=self.bookkeeperClientHealthCheckIntervalSeconds,
            quarantine_s=self.bookkeeperClientHealthCheckQuarantineTimeInSeconds,
            ratio=self.bookkeeperClientQuarantineRatio,
        )


_ZK: Final = "zk:"
_METADATA_STORE: Final = "metadata-store:"
_SCHEME: Final = re.compile(r"(oxia|etcd|rocksdb|memory):")


def _check(config: ClusterBrokerConfig) -> str:
    """The violated rule between keys, or an empty text."""
    if not config.metadataStoreUrl:
        return "metadataStoreUrl is not set: name ZooKeeper as zk:host:port,host:port/path"
    if violated := _violated_client_rule(config) or violated_bookie_tls_rule(config):
        return violated
    for key in ("brokerServicePort", "webServicePort"):
        if config.brokerClientTlsEnabled and getattr(config, f"{key}Tls") is None:
            return f"{key}Tls is off: with brokerClientTlsEnabled brokers reach each other there"
        if not config.brokerClientTlsEnabled and getattr(config, key) is None:
            return f"{key} is off: brokers reach each other there, or set brokerClientTlsEnabled"
    if not config.clusterName:
        return "clusterName is not set: name the cluster that its metadata was initialized for"
    try:
        place = shared_place(store_url(config))
        others = {
            "configurationMetadataStoreUrl": config.configurationMetadataStoreUrl,
            "bookkeeperMetadataServiceUri": _plain(config.bookkeeperMetadataServiceUri),
        }
        for key, url in others.items():
            if url and shared_place(url) != place:
                return (
                    f"{key}={url} is another place than metadataStoreUrl: Vela keeps all metadata "
                    "of a cluster in one store"
                )
    except ValueError as error:
        return str(error)
    return check_together(config)


def _violated_client_rule(config: ClusterBrokerConfig) -> str:
    """The setting that the brokers' own client lacks; empty: none. Reads no file."""
    plugin = config.brokerClientAuthenticationPlugin
    if config.authenticationEnabled and not plugin and not config.anonymousUserRole:
        return (
            f"authenticationEnabled=true needs {PLUGIN_KEY} and {PARAMETERS_KEY}: the credentials "
            "that brokers show each other, of a role in superUserRoles"
        )
    if plugin == TLS_PLUGIN and not config.brokerClientTlsEnabled:
        return f"{PLUGIN_KEY}={plugin} needs brokerClientTlsEnabled=true"
    if plugin == TLS_PLUGIN and not (
        config.brokerClientAuthenticationParameters or config.brokerClientCertificateFilePath
    ):
        return (
            f"{PLUGIN_KEY}={plugin} needs brokerClientCertificateFilePath and "
            "brokerClientKeyFilePath: the certificate is the credential"
        )
    return config.broker_client().choice.violated_rule() if config.brokerClientTlsEnabled else ""


def store_url(config: ClusterBrokerConfig) -> str:
    """Where the metadata are: `zk:...`, or `unix:...`."""
    url = config.metadataStoreUrl.removeprefix(_METADATA_STORE)
    return url if url.startswith((_ZK, UNIX)) or _SCHEME.match(url) else f"{_ZK}{url}"


def _plain(uri: str) -> str:
    """The place of BookKeeper's metadata in the form of metadataStoreUrl."""
    if uri.startswith(_METADATA_STORE):
        return uri.removeprefix(_METADATA_STORE)
    return uri.replace("zk+hierarchical://", "zk://").replace(";", ",").removesuffix("/ledgers")


_ALIASES: Final[Mapping[str, Alias]] = {
    **ALIASES,
    "zookeeperServers": Alias("metadataStoreUrl", wins=False),
    "zkServers": Alias("metadataStoreUrl", wins=False),
    "zooKeeperSessionTimeoutMillis": Alias("metadataStoreSessionTimeoutMillis", wins=True),
    "configurationStoreServers": Alias("configurationMetadataStoreUrl", wins=False),
    "globalZookeeperServers": Alias("configurationMetadataStoreUrl", wins=False),
}

CLUSTER_KEYS: Final = KeyRules(
    config_type=ClusterBrokerConfig,
    aliases=_ALIASES,
    refused={
        **REFUSED,
        "bookkeeperClientAuthenticationPlugin": "bookies know Vela's brokers by their "
        "certificates: set bookkeeperTLSClientAuthentication",
    },
    excused=EXCUSED,
    not_applicable={
        **NO_CHOICE,
        **OF_OTHER_MEMORY,
        "metadataServiceUri": "it is a key of bookies; brokers use metadataStoreUrl",
    },
    protecting=PROTECTING
    | {
        "brokerClientAuthenticationParameters",
        "brokerClientAuthenticationPlugin",
        "brokerClientTlsCiphers",
        "brokerClientTlsEnabled",
        "brokerClientTlsProtocols",
        "brokerClientTrustCertsFilePath",
        "clusterName",
        "metadataStoreConfigPath",
        "metadataStoreUrl",
        "tlsHostnameVerificationEnabled",
        *OF_BOOKIE_TLS,
    },
    check_together=_check,
)

_OF_THE_BOOKIE: Final = frozenset(field.name for field in fields(BookieConfig)) | {"bookiePort"}
_DEFAULT: Final = ClusterBrokerConfig()


def listening_notices(config: ClusterBrokerConfig) -> list[str]:
    """Sentences for the log about who can connect."""
    notice = access_notice(config)
    return [notice] if notice else []


def start_notices(config: ClusterBrokerConfig) -> list[str]:
    """Sentences for the log, the most serious first."""
    notices = listening_notices(config)
    if persistence_of(config).ack_quorum_size == 1:
        notices.append(
            "managedLedgerDefaultAckQuorum=1: a message is acknowledged when one bookie has it, "
            "and the loss of that bookie loses it"
        )
    ignored = [
        key
        for key in sorted(_OF_THE_BOOKIE)
        if hasattr(config, key) and getattr(config, key) != getattr(_DEFAULT, key)
    ]
    if ignored:
        notices.append(f"without effect, because bookies are other processes: {', '.join(ignored)}")
    return notices
