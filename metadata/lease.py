"""A node that one session of several holds while it does something alone."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from metadata.store import NodeNotFound, VersionConflict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from metadata.store import MetadataStore

_TOKEN_BYTES = 8


@asynccontextmanager
async def lease(store: MetadataStore, path: str) -> AsyncIterator[None]:
    """Hold an ephemeral node for the length of the block.

    The session may be lost meanwhile, and another session may then take the lease. So the node has
    a token of this holder, and only a node with that token is deleted at the end.

    Raises: VersionConflict: another session holds it. MetadataUnavailable: the lease may be kept
    until this session ends.
    """
    token = os.urandom(_TOKEN_BYTES).hex().encode()
    await store.put_ephemeral(path, token)
    try:
        yield
    finally:
        with trio.CancelScope(shield=True):
            await _give_back(store, path, token)


async def _give_back(store: MetadataStore, path: str, token: bytes) -> None:
    # The token may be this session's while a cached read still shows the last holder's.
    await store.sync()
    found = await store.get(path)
    if found is None or found[0] != token:
        return
    try:
        await store.delete(path, found[1])
    except (NodeNotFound, VersionConflict):
        return
