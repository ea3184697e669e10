"""`vela broker`: one broker of a cluster, with metadata in ZooKeeper and bookies that are other
processes.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Final

import click

from runtime.command_line import (
    configuration_options,
    first_of,
    log_level_option,
    log_of_server,
    refuse,
    say_ready,
    stop_signals,
    watch_signals,
)

if TYPE_CHECKING:
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

    running = use_compiled()
    from broker.assembly.cluster_config import CLUSTER_KEYS, start_notices
    from settings.reading import ConfigError, load_config, report_settings

    log_of_server(log_level)
    try:
        loaded = load_config(CLUSTER_KEYS, config_files, os.environ, strict=strict_config)
    except ConfigError as error:
        refuse(str(error))
    report_settings(loaded, start_notices(loaded.config))
    _run(loaded.config, running)


def _run(config: ClusterBrokerConfig, running: str) -> None:
    import trio

    from broker.assembly.parts import StartError
    from metadata.store import MetadataUnavailable
    from protocol.errors import MetadataError
    from runtime.free_memory import tune_allocator
    from runtime.open_files import take_open_files
    from runtime.tuning import tune_process

    tune_allocator()
    take_open_files(config.maxHttpServerConnections)
    for module in MODULES:
        import_module(module)
    tune_process()
    try:
        trio.run(_serve, config, running)
    except* (StartError, MetadataUnavailable, MetadataError) as group:
        refusal = group
    else:
        return
    refuse(str(first_of(refusal)))


async def _serve(config: ClusterBrokerConfig, running: str) -> None:
    import structlog
    import trio

    from broker.assembly.broker import assembled_broker
    from broker.assembly.cluster_config import store_url
    from broker.assembly.replicated import Replicated
    from metadata.opening import open_store
    from runtime.free_memory import return_free_memory
    from runtime.tuning import keep_for_good
    from runtime.watchdog import watching_if

    log = structlog.get_logger()
    url = store_url(config)

    async def open_metadata(_nursery: trio.Nursery) -> MetadataStore:
        seconds = config.metadataStoreSessionTimeoutMillis / 1000
        return await open_store(url, seconds, config.metadataStoreConfigPath)

    with (
        watching_if(config.eventLoopWatchdogEnabled),
        stop_signals() as signals,
    ):
        async with trio.open_nursery() as nursery:
            stop, ready = trio.Event(), trio.Event()
            nursery.start_soon(watch_signals, signals, stop)
            with trio.CancelScope() as starting:
                nursery.start_soon(_cancel_start, starting, stop, ready)
                deployment = Replicated(config, open_metadata, url)
                async with assembled_broker(config, deployment) as broker:
                    ready.set()
                    keep_for_good()
                    nursery.start_soon(return_free_memory)
                    log.info("running", modules=running)
                    urls = " ".join(broker.address.service_urls)
                    nursery.start_soon(say_ready, f"vela broker ready: {urls}")
                    await stop.wait()
            nursery.cancel_scope.cancel()


async def _cancel_start(scope: trio.CancelScope, stop: trio.Event, ready: trio.Event) -> None:
    """A start may wait for long: for ZooKeeper, or for the end of a former session. A broker that
    is ready hands its topics over instead."""
    await stop.wait()
    if not ready.is_set():
        scope.cancel()
