"""The parent of a cluster on one machine.

Up: data directory locked -> metadata store open and served to the children -> bookies -> brokers
and autorecovery -> ready. Down, in reverse: brokers hand over and stop -> bookies -> the store is
closed.

A child that ends is started again. Its session is ended first, because this process knows that it
is dead, so others take over at once and the next process of that name need not wait. If this
process ends, all children do.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from broker.ground.data_directory import DataDirectory
from cli.machine.data import open_metadata, refuse_fewer_bookies, tell_addresses
from cli.machine.plan import (
    autorecovery_keys,
    bookie_keys,
    bookie_socket,
    broker_keys,
    broker_ports,
    child_environment,
    joined_urls,
    ports_of,
)
from metadata.socket_server import SocketServer
from runtime.process_directory import process_directory
from runtime.supervision import Child, ChildFailed, ChildPlan, life_line
from runtime.unix_sockets import PATH_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from cli.machine.plan import Machine
    from metadata.store import MetadataStore
    from runtime.line_writer import LineWriter

log = structlog.get_logger()

RUN_DIRECTORY: Final = "run"
SOCKET_NAME: Final = "metadata.sock"
_PREFIX: Final = "vela-run-"
"""Of the names of directories for sockets that have no place below the data directory."""
_LONGEST_NAME: Final = "bookie-99999.sock"
"""The longest name of a socket in the same directory."""
_BOOKIE_STOP_SECONDS_MAX: Final = 120.0
_BROKER_STOP_MARGIN_SECONDS: Final = 30.0
_AUTORECOVERY_STOP_SECONDS_MAX: Final = 30.0


@final
@dataclass(frozen=True, slots=True)
class RunningMachine:
    """A cluster that clients can use."""

    brokers: list[Child]
    bookies: list[Child]
    autorecovery: list[Child]
    """At most one."""
    urls: list[str]
    """The URLs of all brokers: `pulsar://host:port,host:port`, and likewise for each scheme."""


@contextmanager
def socket_place(data_directory: Path) -> Iterator[str]:
    """Where the store is served during the block: `socket_path_in`, or where the paths of sockets
    would be too long there, in a directory of its own (`runtime.process_directory`). Such
    directories that killed parents have left are removed. Bookies may have sockets beside it.

    Raises: OSError.
    """
    path = socket_path_in(data_directory)
    longest = f"{os.path.dirname(path)}/{_LONGEST_NAME}"
    if len(longest.encode()) <= PATH_BYTES_MAX:
        yield path
        return
    with process_directory(_PREFIX) as directory:
        yield f"{directory}/{SOCKET_NAME}"


def socket_path_in(data_directory: Path) -> str:
    """The path of the store's socket below the data directory."""
    return f"{os.path.abspath(data_directory / RUN_DIRECTORY)}/{SOCKET_NAME}"


@asynccontextmanager
async def running_machine(
    machine: Machine, data_directory: Path, socket_path: str, log_level: str, lines: LineWriter
) -> AsyncIterator[RunningMachine]:
    """The processes for the duration of the block. `lines` takes what they say on stderr.

    Raises: StartError, DataDirectoryError, ChildFailed, bookie.errors.StorageError,
        MetadataUnavailable.
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(DataDirectory(data_directory))
        refuse_fewer_bookies(machine, data_directory)
        life = stack.enter_context(life_line())
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        ends = _Ends()
        if machine.is_store_ours:
            store = await open_metadata(machine, data_directory)
            stack.push_async_callback(_shielded_close, store)
            nursery.start_soon(store.run)
            ends.server = SocketServer(store)
            stack.callback(_remove, socket_path, machine)
            await nursery.start(ends.server.run, socket_path)
            log.info("the metadata store is served to processes of this user", path=socket_path)
        bookies = [
            _bookie(machine, number, data_directory, life, ends, lines, log_level)
            for number in range(1, machine.bookies + 1)
        ]
        await _start(nursery, stack, bookies, needed=1)
        brokers = [
            _broker(machine, number, life, ends, lines, log_level)
            for number in range(1, machine.brokers + 1)
        ]
        autorecovery = (
            []
            if machine.autorecovery is None
            else [_autorecovery(machine, life, ends, lines, log_level)]
        )
        others = [*brokers, *autorecovery]
        await _start(nursery, stack, others, needed=len(others))
        urls = joined_urls(child.ready_line.split() for child in brokers)
        if ends.server is not None:
            await tell_addresses(ends.server.store, machine.config.clusterName, urls)
        yield RunningMachine(brokers, bookies, autorecovery, urls)


_LEFT_OUT_ADVICE: Final = (
    "topics are read from the copies of the other bookies, and take messages if these are enough"
    " for the write quorum. Stop, repair the bookie (`vela bookie rebuild-index`, or"
    " `vela bookie-decommission` if its files are lost), and start again: see docs/cluster.md"
)


async def _start(
    nursery: trio.Nursery, stack: AsyncExitStack, children: list[Child], needed: int
) -> None:
    """All at once; return when all are ready. `stack` stops them, all at once.

    Children that cannot start are left out, which the log says, as long as at least `needed` of
    them start.

    Raises: ChildFailed: fewer start.
    """
    failures: list[tuple[Child, ChildFailed]] = []

    async def start(child: Child) -> None:
        try:
            await nursery.start(child.run)
        except ChildFailed as error:
            if len(children) - len(failures) <= needed:
                raise
            failures.append((child, error))

    async def stop() -> None:
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as stopping:
                for child in children:
                    stopping.start_soon(child.stop)

    stack.push_async_callback(stop)
    async with trio.open_nursery() as starting:
        for child in children:
            starting.start_soon(start, child)
    for child, error in failures:
        log.error(
            "a bookie is left out because it cannot start",
            child=child.plan.name,
            error=str(error),
            running=f"{len(children) - len(failures)} of {len(children)}",
            advice=_LEFT_OUT_ADVICE,
        )


@final
class _Ends:
    """Handles the end of a child."""

    server: SocketServer | None = None

    async def ended(self, process_id: int) -> None:
        if self.server is not None:
            await self.server.end_process(process_id)


def _bookie(
    machine: Machine,
    number: int,
    data: Path,
    life: int,
    ends: _Ends,
    lines: LineWriter,
    log_level: str,
) -> Child:
    keys = bookie_keys(machine, number, str(data.absolute()))
    plan = ChildPlan(
        name=f"bookie-{number}",
        module="cli",
        arguments=("bookie", "--log-level", log_level),
        environment=lambda _ready: child_environment(os.environ, keys),
        ready_text="vela bookie ready:",
        stop_seconds_max=_BOOKIE_STOP_SECONDS_MAX,
    )
    return Child(plan, life, ends.ended, lines.write)


def _broker(
    machine: Machine, number: int, life: int, ends: _Ends, lines: LineWriter, log_level: str
) -> Child:
    ports = broker_ports(machine, number)
    stop_seconds = machine.config.brokerShutdownTimeoutMs / 1000 + _BROKER_STOP_MARGIN_SECONDS
    plan = ChildPlan(
        name=f"broker-{number}",
        module="cli",
        arguments=("broker", "--log-level", log_level),
        environment=lambda ready: child_environment(
            os.environ, broker_keys(machine, ports_of(ready) if ready else ports)
        ),
        ready_text="vela broker ready:",
        stop_seconds_max=stop_seconds,
    )
    return Child(plan, life, ends.ended, lines.write)


def _autorecovery(
    machine: Machine, life: int, ends: _Ends, lines: LineWriter, log_level: str
) -> Child:
    keys = autorecovery_keys(machine)
    plan = ChildPlan(
        name="autorecovery-1",
        module="cli",
        arguments=("autorecovery", "--log-level", log_level),
        environment=lambda _ready: child_environment(os.environ, keys),
        ready_text="vela autorecovery ready:",
        stop_seconds_max=_AUTORECOVERY_STOP_SECONDS_MAX,
    )
    return Child(plan, life, ends.ended, lines.write)


def _remove(socket_path: str, machine: Machine) -> None:
    """The sockets, and their directory if there is nothing else in it. Bookies that were killed
    leave theirs."""
    directory = os.path.dirname(socket_path)
    bookies = range(1, machine.bookies + 1)
    for path in (socket_path, *(bookie_socket(directory, number) for number in bookies)):
        with suppress(OSError):
            os.unlink(path)
    with suppress(OSError):
        os.rmdir(directory)


async def _shielded_close(store: MetadataStore) -> None:
    with trio.CancelScope(shield=True):
        await store.aclose()
