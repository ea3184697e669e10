"""Two clients that recover one ledger at once, each with a session and connections of its own."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import trio

from bookie.adds import NoTurn
from ledgers.client import LedgerClient, LedgerClientConfig
from ledgers.placement import PlacementRules
from ledgers.remote.bookie_pool import BookiePool
from ledgers.remote.config import RemoteConfig
from metadata.zookeeper_address import zookeeper_address
from metadata.zookeeper_store import ZooKeeperStore
from runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

SESSION_SECONDS: Final = 30.0
WAIT_SECONDS_MAX: Final = 120.0


def recover_twice(
    hosts: str, choose: Callable[[], int], apart_seconds: float, timeout_seconds: float
) -> tuple[int, list[int]]:
    """(ledger id, the last entry id as each of two recoveries found it). `choose` names the ledger
    when both clients are ready.

    Raises: ledgers.errors.LedgerError, trio.TooSlowError.
    """
    return trio.run(_recover_twice, hosts, choose, apart_seconds, timeout_seconds)


async def _recover_twice(
    hosts: str, choose: Callable[[], int], apart_seconds: float, timeout_seconds: float
) -> tuple[int, list[int]]:
    ends: list[int] = []

    async def recover(client: LedgerClient, ledger_id: int, after_seconds: float) -> None:
        await trio.sleep(after_seconds)
        ends.append((await client.recover(ledger_id)).last_entry_id)

    with trio.fail_after(WAIT_SECONDS_MAX):
        async with AsyncExitStack() as stack:
            clients = [await _client(stack, hosts, timeout_seconds) for _ in range(2)]
            ledger_id = await trio.to_thread.run_sync(choose)
            async with trio.open_nursery() as nursery:
                for number, client in enumerate(clients):
                    nursery.start_soon(recover, client, ledger_id, number * apart_seconds)
    return ledger_id, ends


async def _client(stack: AsyncExitStack, hosts: str, timeout_seconds: float) -> LedgerClient:
    store = await ZooKeeperStore.open(zookeeper_address(hosts, SESSION_SECONDS))
    stack.push_async_callback(store.aclose)
    nursery = await stack.enter_async_context(trio.open_nursery())
    stack.callback(nursery.cancel_scope.cancel)
    remote = RemoteConfig(channels=2, add_timeout_s=timeout_seconds, read_timeout_s=timeout_seconds)
    rules = PlacementRules(is_rack_aware=False)
    pool = BookiePool(store, NoTurn(), remote, rules, order=random.Random())
    await nursery.start(pool.run)
    config = LedgerClientConfig(request_timeout_s=timeout_seconds)
    return LedgerClient(store, pool.bookies, config, SystemClock(), pool)
