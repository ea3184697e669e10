"""The keys of a bookie that is a process of its own: those of the storage and those of the server.

Names and meanings are BookKeeper's (`bookkeeper.conf`), defaults are BookKeeper's or those of
Pulsar's file. Vela's own keys are `bindAddress`, `bookieMaxConnections`, `bookieMaxPendingAddsMB`,
`bookieSocketPath`, `eventLoopWatchdogEnabled` and `webServiceAllowedHosts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bookie.config import ADDED_BY, BookieConfig, violated_compaction_rule
from bookie.process.tls import PROTECTING as OF_TLS
from bookie.process.tls import BookieTlsConfig, violated_tls_rule
from runtime.unix_sockets import PATH_BYTES_MAX
from settings.hosts import violated_host_rule
from settings.kinds import Count, NoneAtZero, Port, Positive  # noqa: TC001 - read at run time
from settings.rules import Alias, KeyRules

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieProcessConfig(BookieConfig, BookieTlsConfig):
    """Frozen configuration of one bookie process. Autorecovery reads the same file: its keys are
    added to these."""

    numReadWorkerThreads: Count = 8

    # --- who it is ----------------------------------------------------------------------
    bookieId: str = ""
    """The name of this bookie in the cluster, for ever. Empty: `host:port`, as clients reach it."""
    advertisedAddress: str = ""
    """The host that clients get. Empty: that of listeningInterface, or of this machine."""
    useHostNameAsBookieID: bool = False
    """false: the address, true: the host name of this machine."""
    useShortHostName: bool = False
    allowLoopback: bool = False
    """Whether a bookie may be at an address that only this machine reaches."""
    listeningInterface: str = ""
    """The network interface to listen on, whose address clients get; empty: all."""

    # --- where it listens ---------------------------------------------------------------
    bookiePort: Port = 3181
    bookieSocketPath: str = ""
    """The absolute path of a Unix socket, instead of bookiePort. Only processes of this user and
    machine connect to it, so the metadata must be those of another process of this machine."""
    bindAddress: str = ""
    """Empty: the address of listeningInterface; the loopback address that clients get; else all
    addresses."""
    nettyMaxFrameSizeBytes: Positive = 5_253_120
    maxBatchReadSize: Positive = 5 * 1024 * 1024
    bookieMaxConnections: NoneAtZero = 4_096
    """Further ones are closed. Fewer where the limit of open files requires it."""
    eventLoopWatchdogEnabled: bool = True
    bookieMaxPendingAddsMB: Positive = 64
    """Adds without an answer, over all connections. Above it connections are not read."""

    # --- metadata -----------------------------------------------------------------------
    metadataServiceUri: str = ""
    """`zk+hierarchical://host:port;host:port/ledgers`, `metadata-store:zk:host:port/chroot`, or
    `metadata-store:unix:/path/of/socket` for the store of another process of this machine.
    Empty: zkServers and zkLedgersRootPath."""
    zkServers: str = "localhost:2181"
    zkLedgersRootPath: str = "/ledgers"
    metadataStoreConfigPath: str = ""
    """A file of ZooKeeper's client: TLS and credentials; empty: neither. In BookKeeper, properties
    of Java."""
    zkEnableSecurity: bool = False
    """Whether the nodes that are made belong to the user of that file. They do with credentials;
    true refuses a start without."""
    zkTimeout: Positive = 10_000
    """Milliseconds without a sign of life from this bookie after which ZooKeeper takes it off its
    lists."""

    # --- disks --------------------------------------------------------------------------
    readOnlyModeEnabled: bool = True
    """false: a bookie whose disks are full stops instead of serving reads only."""

    # --- HTTP ---------------------------------------------------------------------------
    httpServerEnabled: bool = False
    """Whether state and metrics are served on httpServerPort."""
    httpServerPort: Port = 8080
    httpServerHost: str = ""
    """Empty: where the bookie itself listens."""
    statsProviderClass: str = ""
    """With a class of Prometheus, and without httpServerEnabled, there are metrics on
    prometheusStatsHttpPort."""
    prometheusStatsHttpPort: Port = 8000
    webServiceAllowedHosts: tuple[str, ...] = ()
    """Further names under which HTTP may be asked for, as by a proxy."""

    # --- what another process does ------------------------------------------------------
    autoRecoveryDaemonEnabled: bool = False
    """A bookie of Vela's replicates nothing: with true there is a notice at start."""


ALIASES: Final[Mapping[str, Alias]] = {
    "compactionRate": Alias("compactionRateByEntries", wins=False),
    "journalDirectory": Alias("journalDirectories", wins=False),
}
"""As resolved by `ServerConfiguration` of BookKeeper 4.17."""

REFUSED: Final[Mapping[str, str]] = {
    "bookieAuthProviderFactoryClass": "Vela's bookie knows clients by their certificates: set "
    "tlsClientAuthentication",
    "forceReadOnlyBookie": "Vela's bookie is read-only when its disks are full, and then only",
    "journalWriteData": "Vela never acknowledges an entry that is not in the journal",
}

_ONE_INDEX: Final = "the index is in the ledger directories"
NOT_APPLICABLE: Final[Mapping[str, str]] = {
    "tlsProvider": "TLS is that of OpenSSL",
    "numAddWorkerThreads": ADDED_BY,
    "indexDirectories": _ONE_INDEX,
    "ledgerStorageClass": "Vela has one kind of storage, with the files of DbLedgerStorage",
}

_PROTECTING: Final = (
    frozenset(
        {
            "advertisedAddress",
            "allowLoopback",
            "allowStorageExpansion",
            "bindAddress",
            "bookieId",
            "bookiePort",
            "bookieSocketPath",
            "journalDirectories",
            "journalSyncData",
            "ledgerDirectories",
            "listeningInterface",
            "metadataServiceUri",
            "webServiceAllowedHosts",
            "metadataStoreConfigPath",
            "zkEnableSecurity",
            "zkLedgersRootPath",
            "zkServers",
        }
    )
    | OF_TLS
)


def check_together(config: BookieProcessConfig) -> str:
    """The violated rule between keys, or an empty text."""
    if not config.bookiePort and not config.bookieId:
        return "bookiePort=0 needs a bookieId: the name of a bookie must not change with its port"
    return (
        violated_host_rule("advertisedAddress", config.advertisedAddress)
        or violated_metadata_rule(config)
        or _violated_socket_rule(config)
        or violated_compaction_rule(config)
        or violated_tls_rule(config)
    )


_STORE_OF_THIS_MACHINE: Final = "metadata-store:unix:"


def _violated_socket_rule(config: BookieProcessConfig) -> str:
    path = config.bookieSocketPath
    if not path:
        return ""
    if not path.startswith("/") or len(path.encode()) > PATH_BYTES_MAX:
        return (
            f"bookieSocketPath={path} must be an absolute path of at most {PATH_BYTES_MAX} bytes: "
            "the system takes no longer one for a socket"
        )
    if not config.metadataServiceUri.startswith(_STORE_OF_THIS_MACHINE):
        return (
            "bookieSocketPath needs metadata of this machine (metadataServiceUri="
            "metadata-store:unix:/path): members of other machines could not reach this bookie"
        )
    if config.tlsProviderFactoryClass:
        return "bookieSocketPath and tlsProviderFactoryClass: TLS is for bookies that have a port"
    return ""


def violated_metadata_rule(config: BookieProcessConfig) -> str:
    """The same about the metadata store."""
    if config.zkEnableSecurity and not config.metadataStoreConfigPath:
        return (
            "zkEnableSecurity=true needs metadataStoreConfigPath: the file with the credentials "
            "for ZooKeeper"
        )
    return ""


BOOKIE_KEYS: Final = KeyRules(
    config_type=BookieProcessConfig,
    aliases=ALIASES,
    refused=REFUSED,
    not_applicable=NOT_APPLICABLE,
    protecting=_PROTECTING,
    check_together=check_together,
)


def start_notices(config: BookieProcessConfig, bind_host: str) -> list[str]:
    """Sentences for the log, the most serious first."""
    notices: list[str] = []
    if bind_host in ("0.0.0.0", "::") and not config.tlsClientAuthentication:
        notices.append(
            "listening on all addresses without authentication: any host that can connect can "
            "read, write and fence all ledgers (bindAddress)"
        )
    if not config.journalSyncData:
        notices.append("journalSyncData=false: a power failure loses entries that were answered")
    if config.autoRecoveryDaemonEnabled:
        notices.append(
            "autoRecoveryDaemonEnabled has no effect: this process copies no ledgers of lost "
            "bookies. Run `vela autorecovery` beside it"
        )
    return notices
