"""`python -m compat_tests.session_watcher <hosts> <chroot> <session seconds>`: a process that looks
at its session with ZooKeeper all the time.

It prints `live <session id>` when there is one, and, after it stood still for longer than the
session may last, `gap <state>` with the state it saw first.
"""

from __future__ import annotations

import sys
import time

import trio

from metadata.store import SessionState
from metadata.zookeeper_address import ZooKeeperAddress
from metadata.zookeeper_store import ZooKeeperStore

LOOK_SECONDS = 0.001


async def watch(hosts: str, chroot: str, session_seconds: float) -> None:
    """Until killed."""
    store = await ZooKeeperStore.open(
        ZooKeeperAddress(hosts=hosts, chroot=chroot, session_timeout_seconds=session_seconds)
    )
    known, looked_at = 0, time.monotonic()
    while True:
        now, state = time.monotonic(), store.session_state
        if now - looked_at > session_seconds:
            print(f"gap {state.value}", flush=True)
        elif state is SessionState.LIVE and store.session_id != known:
            known = store.session_id
            print(f"live {known}", flush=True)
        looked_at = now
        await trio.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    trio.run(watch, sys.argv[1], sys.argv[2], float(sys.argv[3]))
