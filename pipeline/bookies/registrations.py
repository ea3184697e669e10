"""Addresses of bookies from their registrations in the metadata store of a cluster.

Blocking, and only for the driver: it needs the packages of Vela's metadata store. The store is one
that processes share: ZooKeeper, or the socket of a machine of several processes. A standalone
server of Pulsar keeps its registrations in a RocksDB database of its own, in which no other process
can read while it runs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from metadata.opening import open_store, shared_place
from metadata.store import MetadataUnavailable
from protocol.bookkeeper.addresses import address_of_registration, is_path
from protocol.bookkeeper.paths import AVAILABLE_ROOT, READ_ONLY_ROOT, available_path, read_only_path

if TYPE_CHECKING:
    from metadata.store import MetadataStore

SESSION_SECONDS: Final = 30.0
_READ_ONLY_NAME: Final = READ_ONLY_ROOT.rpartition("/")[2]


class RegistrationsNotRead(Exception):
    """The store cannot be read; the text says why, and what to set instead."""


def registered_addresses(url: str, config_path: str = "") -> dict[str, tuple[str, int]]:
    """(host, port) by bookie id, of all bookies that run. Those at Unix sockets are left out.

    url, config_path: as `metadataStoreUrl` and `metadataStoreConfigPath` of a broker.

    Raises: RegistrationsNotRead.
    """
    try:
        shared_place(url)
    except ValueError as error:
        raise RegistrationsNotRead(
            f"{error}: name the bookies in the option bookieAddresses"
        ) from error
    try:
        return trio.run(partial(_read_from, url, config_path))
    except MetadataUnavailable as error:
        raise RegistrationsNotRead(str(error)) from error


async def _read_from(url: str, config_path: str) -> dict[str, tuple[str, int]]:
    store = await open_store(url, SESSION_SECONDS, config_path)
    try:
        return await addresses_in(store)
    finally:
        await store.aclose()


async def addresses_in(store: MetadataStore) -> dict[str, tuple[str, int]]:
    """The same from an open store. Raises: MetadataUnavailable."""
    writable = [name for name in await store.children(AVAILABLE_ROOT) if name != _READ_ONLY_NAME]
    paths = {name: read_only_path(name) for name in await store.children(READ_ONLY_ROOT)}
    paths |= {name: available_path(name) for name in writable}
    addresses: dict[str, tuple[str, int]] = {}
    for bookie_id, path in paths.items():
        stored = await store.get(path)
        address = address_of_registration(bookie_id, stored[0]) if stored else None
        if address is not None and not is_path(address[0]):
            addresses[bookie_id] = address
    return addresses
