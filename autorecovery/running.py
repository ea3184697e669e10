"""The parts of an autorecovery process that runs, for its state over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from autorecovery.auditor import Auditor
    from autorecovery.election import Election
    from autorecovery.marks import Marks
    from autorecovery.worker import ReplicationWorker
    from ledgers.remote.bookie_pool import BookiePool
    from metadata.store import MetadataStore


@final
@dataclass(frozen=True, slots=True)
class RunningAutorecovery:
    """Worker and candidate."""

    store: MetadataStore
    marks: Marks
    pool: BookiePool
    auditor: Auditor
    election: Election
    worker: ReplicationWorker
    http_port: int
    """0: there is no HTTP."""
