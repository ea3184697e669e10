"""The processes of a cluster on one machine: their names, ports, directories and keys.

The parent reads the user's configuration once, by the rules of a broker of a cluster, and gives
each child the keys that are not at their defaults as `PULSAR_PREFIX_` variables. So the children
read no files, and repeat no notice about them. Keys of autorecovery are read by its own rules.

Where brokers ask for credentials, bookies, which ask for none, have no ports but Unix sockets that
only this user can connect to. They have ports if the user names one, or if the metadata store may
have members on other machines; a line at the start then says what that means.

With two or more bookies, autorecovery is one of the processes: it replaces copies that were lost
with the directory of a bookie, if there is another bookie for them.

Bookie 1 has the name and the directories of the bookie that `vela standalone` embeds. A data
directory of one process is therefore that of a machine with one bookie, and the other way round.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import urlsplit

from autorecovery.config import AUTORECOVERY_KEYS, AutorecoveryConfig
from bookie.config import BookieConfig
from bookie.process.config import BookieProcessConfig
from broker.assembly.cluster_config import CLUSTER_KEYS, ClusterBrokerConfig
from broker.ground.config import DEFAULT_CONFIG
from settings.reading import ENVIRONMENT_PREFIX, ConfigError, as_properties, build_config

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from settings.reading import LoadedConfig, Setting

BOOKKEEPER: Final = "bookkeeper"
BOOKIE_PORT: Final = 3181
PORT_KEYS: Final[Mapping[str, str]] = {
    "pulsar": "brokerServicePort",
    "pulsar+ssl": "brokerServicePortTls",
    "http": "webServicePort",
    "https": "webServicePortTls",
}
"""The ports of a broker, by the scheme of their URLs."""
DEFAULT_CLUSTER: Final = DEFAULT_CONFIG.clusterName
LOOPBACK: Final = "127.0.0.1"
_STORE_KEYS: Final = frozenset({"metadataStoreUrl", "zkServers", "zookeeperServers"})
_QUORUMS: Final = (
    "managedLedgerDefaultEnsembleSize",
    "managedLedgerDefaultWriteQuorum",
    "managedLedgerDefaultAckQuorum",
)
_COPIES: Final = 2
"""The copies of each entry, where there are bookies for them and nothing else is configured."""
_PROMETHEUS: Final = "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider"
_OF_BOOKIES: Final = frozenset(field.name for field in fields(BookieConfig)) | {
    "bookiePort",
    "bookieMaxConnections",
    "maxBatchReadSize",
    "nettyMaxFrameSizeBytes",
}
OF_AUTORECOVERY: Final = frozenset(field.name for field in fields(AutorecoveryConfig)) - frozenset(
    field.name for config in (BookieProcessConfig, ClusterBrokerConfig) for field in fields(config)
)
"""Keys that no other process has."""
AUTORECOVERY_SWITCH: Final = "autoRecoveryDaemonEnabled"
"""BookKeeper's key and default: autorecovery runs beside the bookies."""
AUTORECOVERY_BOOKIES_MIN: Final = 2
"""With fewer there is no other bookie for a copy."""
_LOST_BOOKIE_DELAY_SECONDS: Final = 60
"""The parent starts a bookie again that has ended: its ledgers are not copied meanwhile.
BookKeeper's default is 0."""
_OF_EACH_BOOKIE: Final = frozenset(
    {"bookieId", "bookiePort", "bookieMaxConnections", "journalDirectories", "ledgerDirectories"}
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The cluster: how many of each, and the keys that all share."""

    brokers: int
    bookies: int
    config: ClusterBrokerConfig
    is_store_ours: bool
    """Whether the parent keeps the metadata."""
    bookie_sockets: str
    """The directory of the sockets at which the bookies listen; empty: they have ports."""
    bookie_metrics_port: int | None
    """Where the first bookie serves its metrics; 0: each at any free port; None: nowhere."""
    autorecovery: AutorecoveryConfig | None
    """Its keys that the user named; None: it does not run."""
    given: frozenset[str]
    """The keys that the user named."""
    notices: tuple[str, ...] = ()


def bookie_directory(number: int) -> str:
    """Below the data directory; 1 is the first."""
    return BOOKKEEPER if number == 1 else f"{BOOKKEEPER}{number}"


def bookie_socket(directory: str, number: int) -> str:
    """Where bookie `number` listens."""
    return f"{directory}/bookie-{number}.sock"


def bookie_name(number: int) -> str:
    """The id of a bookie whose metadata the parent keeps."""
    return DEFAULT_BOOKIE.bookieId if number == 1 else f"vela-bookie-{number}"


DEFAULT_BOOKIE: Final = BookieConfig()


def read_machine(
    brokers: int,
    bookies: int,
    settings: Iterable[Setting],
    overrides: Mapping[str, object],
    socket_path: str,
    *,
    strict: bool,
    bookie_metrics_port: int | None = None,
) -> tuple[Machine, LoadedConfig[ClusterBrokerConfig]]:
    """Type and check what the user said. `overrides` are the options of the command line.
    `socket_path` is where the parent would serve the metadata; beside it are sockets of bookies.
    `bookie_metrics_port`: see Machine.

    Raises: ConfigError.
    """
    settings, autorecovery = _read_autorecovery(bookies, settings)
    given = frozenset(setting.key for setting in settings if setting.value)
    is_store_ours = not given & _STORE_KEYS
    defaults: dict[str, object] = {}
    if is_store_ours:
        defaults["metadataStoreUrl"] = f"unix:{socket_path}"
    if "clusterName" not in given:
        defaults["clusterName"] = DEFAULT_CLUSTER
    sizes = {each.key: int(each.value) for each in settings if each.value.isdecimal()}
    notices, bound = [], bookies
    for key in _QUORUMS:  # from the largest to the smallest
        if key in given and key not in sizes:
            continue  # refused below
        wanted = sizes.get(key, _COPIES)
        defaults[key] = bound = min(wanted, bound)
        if key in given and bound < wanted:
            notices.append(f"{key}={wanted} is {bound}, because there are {bookies} bookies")
    loaded = build_config(CLUSTER_KEYS, settings, {**overrides, **defaults}, strict=strict)
    config = loaded.config
    if config.bookkeeperTLSClientAuthentication:
        raise ConfigError(
            "bookkeeperTLSClientAuthentication=true: the bookies of `vela standalone` have no TLS; "
            "`vela bookie` has"
        )
    if brokers > 1 and config.advertisedListeners:
        raise ConfigError(
            f"advertisedListeners names addresses of one broker: leave it out with --brokers"
            f" {brokers}; each broker has ports of its own"
        )
    has_sockets = config.authenticationEnabled and is_store_ours and config.bookiePort < 0
    if config.authenticationEnabled and not has_sockets:
        notices.append(_open_ports_notice(config, is_store_ours))
    for key in ("journalDirectories", "ledgerDirectories"):
        if bookies > 1 and getattr(config, key):
            raise ConfigError(
                f"{key} names directories of one bookie: leave it out with --bookies {bookies}; "
                "each bookie has its own below --data-dir"
            )
    machine = Machine(
        brokers=brokers,
        bookies=bookies,
        config=config,
        is_store_ours=is_store_ours,
        bookie_sockets=posixpath.dirname(socket_path) if has_sockets else "",
        bookie_metrics_port=bookie_metrics_port,
        autorecovery=autorecovery,
        given=given,
        notices=tuple(notices),
    )
    return machine, loaded


def _open_ports_notice(config: ClusterBrokerConfig, is_store_ours: bool) -> str:
    """A notice about the bookies' ports: what strangers can do there, and the alternatives."""
    host = LOOPBACK if is_store_ours else config.bindAddress
    advice = (
        "Leave bookiePort out: then the bookies listen where only this user can connect"
        if is_store_ours
        else "`vela bookie` with TLS asks for certificates"
    )
    return (
        "authenticationEnabled=true protects the ports of brokers only: everyone who can connect to"
        f" the ports of the bookies at {host} (bookiePort) can read, write and fence all ledgers."
        f" {advice}"
    )


def _read_autorecovery(
    bookies: int, settings: Iterable[Setting]
) -> tuple[list[Setting], AutorecoveryConfig | None]:
    """The settings of all others, and the keys of autorecovery; None: it does not run.

    Raises: ConfigError.
    """
    own = {AUTORECOVERY_SWITCH} | OF_AUTORECOVERY
    others: list[Setting] = []
    theirs: list[Setting] = []
    for setting in settings:
        (theirs if setting.key in own else others).append(setting)
    delay: dict[str, object] = {}
    if not any(setting.key == "lostBookieRecoveryDelay" and setting.value for setting in theirs):
        delay["lostBookieRecoveryDelay"] = _LOST_BOOKIE_DELAY_SECONDS
    config = build_config(AUTORECOVERY_KEYS, theirs, delay).config
    switched = any(setting.key == AUTORECOVERY_SWITCH and setting.value for setting in theirs)
    is_on = config.autoRecoveryDaemonEnabled or not switched
    return others, config if is_on and bookies >= AUTORECOVERY_BOOKIES_MIN else None


def autorecovery_keys(machine: Machine) -> dict[str, str]:
    """The keys of autorecovery that are not at their defaults. Raises: AssertionError: it does not
    run."""
    assert machine.autorecovery is not None
    config = machine.config
    host = LOOPBACK if machine.is_store_ours else config.advertised_host
    return _changed(
        replace(
            machine.autorecovery,
            bookieId=f"vela-autorecovery-{host}",
            advertisedAddress=host,
            allowLoopback=True,
            bindAddress=LOOPBACK,
            metadataServiceUri=f"metadata-store:{config.metadataStoreUrl}",
            metadataStoreConfigPath=config.metadataStoreConfigPath,
        ),
        AutorecoveryConfig(),
    )


def bookie_keys(machine: Machine, number: int, data_directory: str) -> dict[str, str]:
    """The keys of bookie `number` that are not at their defaults; 1 is the first."""
    config = machine.config
    values: dict[str, Any] = {
        key: getattr(config, key) for key in _OF_BOOKIES - _OF_EACH_BOOKIE if hasattr(config, key)
    }
    if "bookieMaxConnections" in machine.given:
        values["bookieMaxConnections"] = config.bookieMaxConnections
    base = f"{data_directory}/{bookie_directory(number)}"
    first_port = BOOKIE_PORT if config.bookiePort < 0 else config.bookiePort
    return _changed(
        BookieProcessConfig(
            **values,
            **_place_of_bookie(machine, number),
            **_metrics_of_bookie(machine, number),
            allowLoopback=True,
            bookiePort=first_port and first_port + number - 1,
            bookieSocketPath=(
                bookie_socket(machine.bookie_sockets, number) if machine.bookie_sockets else ""
            ),
            journalDirectories=config.journalDirectories or (f"{base}/journal",),
            ledgerDirectories=config.ledgerDirectories or (f"{base}/ledgers",),
            metadataServiceUri=f"metadata-store:{config.metadataStoreUrl}",
            metadataStoreConfigPath=config.metadataStoreConfigPath,
        ),
        BookieProcessConfig(),
    )


def _metrics_of_bookie(machine: Machine, number: int) -> dict[str, Any]:
    port = machine.bookie_metrics_port
    if port is None:
        return {}
    return {
        "statsProviderClass": _PROMETHEUS,
        "prometheusStatsHttpPort": port and port + number - 1,
    }


def _place_of_bookie(machine: Machine, number: int) -> dict[str, Any]:
    """On loopback, except where the metadata store may have brokers of other machines."""
    config = machine.config
    if machine.is_store_ours:
        return {
            "bookieId": bookie_name(number),
            "advertisedAddress": LOOPBACK,
            "bindAddress": LOOPBACK,
        }
    return {"advertisedAddress": config.advertised_host, "bindAddress": config.bindAddress}


def broker_keys(machine: Machine, ports: Mapping[str, int]) -> dict[str, str]:
    """The keys of a broker at these ports, by their keys, that are not at their defaults."""
    keys = _changed(machine.config, ClusterBrokerConfig())
    keys = {key: value for key, value in keys.items() if key not in _OF_BOOKIES}
    return keys | {key: str(port) for key, port in ports.items()}


def broker_ports(machine: Machine, number: int) -> dict[str, int]:
    """The ports that are on, by their keys; 0 stays 0: any free port."""
    first = {key: getattr(machine.config, key) for key in PORT_KEYS.values()}
    return {key: port and port + number - 1 for key, port in first.items() if port is not None}


def ports_of(ready_line: str) -> dict[str, int]:
    """The ports in the URLs of a broker that is ready. Clients know those that it had first, so it
    gets them again."""
    parts = map(urlsplit, ready_line.split())
    return {PORT_KEYS[each.scheme]: each.port or 0 for each in parts if each.scheme in PORT_KEYS}


def joined_urls(brokers: Iterable[Iterable[str]]) -> list[str]:
    """`pulsar://a:1,b:2` for each scheme of the brokers' URLs, in their order."""
    places: dict[str, list[str]] = {}
    for urls in brokers:
        for url in urls:
            scheme, _, place = url.partition("://")
            places.setdefault(scheme, []).append(place)
    return [f"{scheme}://{','.join(each)}" for scheme, each in places.items()]


def child_environment(environment: Mapping[str, str], keys: Mapping[str, str]) -> dict[str, str]:
    """The environment of the parent, with these keys instead of the user's."""
    plain = {
        name: value
        for name, value in environment.items()
        if not name.startswith(ENVIRONMENT_PREFIX)
    }
    return plain | {f"{ENVIRONMENT_PREFIX}{key}": value for key, value in keys.items()}


def _changed(
    config: BookieProcessConfig | ClusterBrokerConfig,
    default: BookieProcessConfig | ClusterBrokerConfig,
) -> dict[str, str]:
    stock = as_properties(default)
    return {key: value for key, value in as_properties(config).items() if value != stock[key]}
