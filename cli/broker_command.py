"""`vela broker`: one broker of a cluster, with metadata in ZooKeeper and bookies that are other
processes.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from runtime.command_line import (
    configuration_options,
    log_level_option,
    log_of_server,
    refuse,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import trio

    from broker.assembly.cluster_config import ClusterBrokerConfig
    from metadata.store import MetadataStore


MODULES: Final = ("broker.assembly.replicated", "metadata.opening")
"""Loaded before the event loop runs, with all that they need."""


@click.command("broker")
@configuration_options("A broker.conf")
@log_level_option
def command(config_files: tuple[Path, ...], strict_config: bool, log_level: str) -> None:
    """Run a broker of a cluster until SIGTERM or SIGINT."""
    from native.hot_modules import use_compiled

    modules = use_compiled()
    from broker.assembly.cluster_config import CLUSTER_KEYS, start_notices
    from settings.reading import ConfigError, load_config, report_settings

    log_of_server(log_level)
    try:
        loaded = load_config(CLUSTER_KEYS, config_files, os.environ, strict=strict_config)
    except ConfigError as error:
        refuse(str(error))
    report_settings(loaded, start_notices(loaded.config))
    _run(loaded.config, modules)


def _run(config: ClusterBrokerConfig, modules: str) -> None:
    from broker.assembly.parts import StartError
    from metadata.store import MetadataUnavailable
    from protocol.errors import MetadataError
    from runtime.open_files import take_open_files
    from runtime.process_shell import prepare_process, run_server

    take_open_files(config.maxHttpServerConnections)
    prepare_process(MODULES)
    refusals = (StartError, MetadataUnavailable, MetadataError)
    run_server("vela broker", partial(_server, config, modules), refusals)


@asynccontextmanager
async def _server(config: ClusterBrokerConfig, modules: str) -> AsyncIterator[str]:
    from broker.assembly.broker import assembled_broker
    from broker.assembly.cluster_config import store_url
    from broker.assembly.replicated import Replicated
    from metadata.opening import open_store
    from runtime.process_shell import settled
    from runtime.watchdog import watching_if

    url = store_url(config)

    async def open_metadata(_nursery: trio.Nursery) -> MetadataStore:
        seconds = config.metadataStoreSessionTimeoutMillis / 1000
        return await open_store(url, seconds, config.metadataStoreConfigPath)

    with watching_if(config.eventLoopWatchdogEnabled):
        deployment = Replicated(config, open_metadata, url)
        async with assembled_broker(config, deployment) as broker, settled(modules):
            yield " ".join(broker.address.service_urls)
