"""`vela standalone`: a broker with a bookie of its own, on a data directory that it locks.

`running_broker` is also the way to run a broker inside another trio program, such as a test.
"""

from __future__ import annotations

from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from broker.assembly.broker import assembled_broker
from broker.assembly.embedded import Embedded
from broker.ground.data_directory import DataDirectory, refuse_several_bookies

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker.assembly.broker import RunningBroker
    from broker.ground.config import BrokerConfig
    from broker.topics.topic.parts import PartKind


@asynccontextmanager
async def running_broker(
    config: BrokerConfig,
    data_directory: Path | None,
    part_kinds: tuple[PartKind[Any], ...] = (),
) -> AsyncIterator[RunningBroker]:
    """A ready broker for the duration of the block. `data_directory` None keeps all data in memory.
    `part_kinds`: see `assembled_broker`.

    Raises: StartError, DataDirectoryError, bookie.errors.StorageError, MetadataUnavailable.
    """
    with ExitStack() as stack:
        if data_directory is not None:
            stack.enter_context(DataDirectory(data_directory))
            refuse_several_bookies(data_directory)
        deployment = Embedded(config, data_directory)
        async with assembled_broker(config, deployment, part_kinds) as broker:
            yield broker
