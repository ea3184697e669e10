"""`vela initialize-cluster-metadata`: makes the metadata of a cluster."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import click

from runtime.command_line import log_to_stderr, refuse

if TYPE_CHECKING:
    from broker.cluster.cluster_metadata import NewCluster
    from metadata.store import MetadataStore


@click.command("initialize-cluster-metadata")
@click.option("-c", "--cluster", help="Name of the cluster. Without it: the bookies' part alone.")
@click.option(
    "-md",
    "--metadata-store",
    "metadata_store",
    required=True,
    help="Metadata store of the cluster: zk:host:port,host:port/chroot.",
)
@click.option(
    "-cms",
    "--configuration-metadata-store",
    "configuration_store",
    help="Metadata store that clusters share [default: the metadata store].",
)
@click.option(
    "-mscp",
    "--metadata-store-config-path",
    "config_path",
    default="",
    help="A file of ZooKeeper's client: TLS and credentials for both stores.",
)
@click.option("-uw", "--web-service-url", help="http://host:port of its brokers; with --cluster.")
@click.option("-tw", "--web-service-url-tls", help="https://host:port.")
@click.option("-ub", "--broker-service-url", help="pulsar://host:port of its brokers.")
@click.option("-tb", "--broker-service-url-tls", help="pulsar+ssl://host:port.")
@click.option("-te", "--tls-enable", is_flag=True, help="Other clusters connect with TLS.")
@click.option("-pu", "--proxy-url", help="URL of a proxy in front of the cluster.")
@click.option("-pp", "--proxy-protocol", type=click.Choice(["SNI"]), help="Protocol of that proxy.")
@click.option(
    "-bn",
    "--default-namespace-bundle-number",
    "bundles",
    type=click.IntRange(1, 4096),
    default=16,
    show_default=True,
    help="Bundles of public/default.",
)
@click.option(
    "--initial-num-transaction-coordinators",
    "coordinators",
    type=click.IntRange(0, 4096),
    default=16,
    show_default=True,
    help="Partitions of the coordinators' topic. Only Pulsar's brokers have transactions.",
)
@click.option(
    "--existing-bk-metadata-service-uri",
    "existing_uri",
    help="Metadata of existing bookies: zk+hierarchical://host:port/ledgers.",
)
@click.option(
    "--zookeeper-session-timeout-ms",
    "session_timeout_ms",
    type=click.IntRange(1000),
    default=30_000,
    show_default=True,
    help="Session timeout of this command.",
)
def command(
    cluster: str | None,
    metadata_store: str,
    configuration_store: str | None,
    config_path: str,
    web_service_url: str | None,
    web_service_url_tls: str | None,
    broker_service_url: str | None,
    broker_service_url_tls: str | None,
    tls_enable: bool,
    proxy_url: str | None,
    proxy_protocol: str | None,
    bundles: int,
    coordinators: int,
    existing_uri: str | None,
    session_timeout_ms: int,
) -> None:
    """Create the metadata of a new cluster, for brokers and bookies of Vela and of Pulsar. Existing
    metadata are not changed."""
    import trio

    from bookie.errors import BookieRefusesToStart
    from broker.cluster.cluster_metadata import NewCluster, WrongCluster
    from metadata.store import MetadataUnavailable

    if cluster is not None and not web_service_url:
        raise click.UsageError("--cluster needs --web-service-url")
    if cluster is None and (web_service_url or broker_service_url or configuration_store):
        raise click.UsageError("the addresses of a cluster need --cluster")
    given = {
        "serviceUrl": web_service_url,
        "serviceUrlTls": web_service_url_tls,
        "brokerServiceUrl": broker_service_url,
        "brokerServiceUrlTls": broker_service_url_tls,
        "proxyServiceUrl": proxy_url,
        "proxyProtocol": proxy_protocol,
        "brokerClientTlsEnabled": tls_enable or None,
    }
    data = {key: value for key, value in given.items() if value is not None}
    new = (
        None
        if cluster is None
        else NewCluster(name=cluster, data=data, bundles=bundles, coordinators=coordinators)
    )
    log_to_stderr("warning")
    try:
        stores = metadata_store, configuration_store or metadata_store
        made = trio.run(
            _initialize, new, stores, existing_uri, session_timeout_ms / 1000, config_path
        )
    except (MetadataUnavailable, WrongCluster, BookieRefusesToStart, ValueError) as error:
        refuse(str(error))
    click.echo("initialized" if made else "was initialized before; nothing changed")


async def _initialize(
    cluster: NewCluster | None,
    stores: tuple[str, str],
    existing_uri: str | None,
    timeout_s: float,
    config_path: str,
) -> bool:
    """Whether anything was made. Raises: MetadataUnavailable, WrongCluster, BookieRefusesToStart,
    ValueError: an existing record is not a JSON object."""
    from bookie.process.cluster import initialize_ledgers, metadata_place, require_cluster
    from bookie.process.config import BookieProcessConfig
    from broker.cluster.cluster_metadata import Initialization
    from metadata.opening import open_store

    async with AsyncExitStack() as stack:

        async def opened(url: str) -> MetadataStore:
            store = await open_store(url, timeout_s, config_path)
            stack.push_async_callback(store.aclose)
            return store

        local = await opened(stores[0])
        if cluster is None:
            return await initialize_ledgers(local)
        configuration = local if stores[1] == stores[0] else await opened(stores[1])
        initialization = Initialization(cluster)
        await initialization.check(local, configuration)
        if existing_uri is None:
            await initialization.make_ledgers(local)
        else:
            place = metadata_place(BookieProcessConfig(metadataServiceUri=existing_uri))
            await require_cluster(await opened(place.url))
        await initialization.make_local(local)
        await initialization.make_configuration(configuration)
        return initialization.made > 0
