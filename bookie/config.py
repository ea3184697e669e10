"""BookieConfig: the keys of bookkeeper.conf that this bookie honours, under BookKeeper's names and
with BookKeeper's or Pulsar's defaults (smaller caches: one process, small machines)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

_MB = 1 << 20
_NO_LIMIT: Final = 2**60


def or_no_limit(limit: int) -> int:
    """A limit for comparisons: 0 and negative numbers mean none, as in BookKeeper."""
    return limit if limit > 0 else _NO_LIMIT


@final
@dataclass(frozen=True, slots=True)
class BookieConfig:
    """Frozen configuration of one bookie."""

    journalDirectories: tuple[str, ...] = ("data/bookkeeper/journal",)
    """One journal and one thread each. In any order. Their number cannot be changed later."""
    ledgerDirectories: tuple[str, ...] = ("data/bookkeeper/ledgers",)
    """One storage and one flush thread each. In any order. An empty one can be removed."""
    allowStorageExpansion: bool = False
    """true: a directory that is new in ledgerDirectories is added to a bookie with data; false: it
    is refused, because it may be a disk that is not mounted."""

    journalWriteData: bool = True
    """false: no journal; adds are answered at once. Only for the in-memory mode."""
    journalSyncData: bool = True
    """false: answers without fdatasync; a power loss then loses acknowledged entries."""
    journalMaxSizeMB: int = 2048
    journalMaxBackups: int = 5
    """Journal files kept although a checkpoint has passed them."""
    journalAlignmentSize: int = 4096
    """Each group ends on this boundary; multiple of 512."""
    journalPreAllocSizeMB: int = 16
    journalBufferedWritesThreshold: int = 8 * _MB
    """A group stops growing beyond this many bytes. Waiting records go into the next one."""

    flushInterval: int = 10_000
    """Milliseconds between checkpoints; longer means more journal to replay after a crash."""
    dbStorage_writeCacheMaxSizeMb: int = 128
    """Both halves, over all ledger directories. A full half is flushed at once."""
    dbStorage_readAheadCacheMaxSizeMb: int = 64
    dbStorage_readAheadCacheBatchSize: int = 100
    """Minimum number of entries read from an entry log at once."""
    dbStorage_maxThrottleTimeMs: int = 10_000
    """How long an add waits for a full write cache before TOO_MANY_REQUESTS."""
    maxPendingAddRequestsPerThread: int = 10_000
    """Adds that may wait for a full write cache; more are refused with TOO_MANY_REQUESTS.
    0: no limit."""
    maxPendingReadRequestsPerThread: int = 2_500
    """Reads that may wait for storage, per reader thread; more get TOO_MANY_REQUESTS. 0: no
    limit."""
    numReadWorkerThreads: int = 4
    """0 counts as 1: BookKeeper would read on the thread of the connection."""

    logSizeLimit: int = 1 << 30
    gcWaitTime: int = 900_000
    minorCompactionThreshold: float = 0.2
    """Logs with less live data than this are compacted; 0 disables."""
    minorCompactionInterval: int = 3_600
    """Seconds; 0 disables."""
    majorCompactionThreshold: float = 0.5
    majorCompactionInterval: int = 86_400
    """Seconds; 0 disables."""
    compactionRateByEntries: int = 1_000

    diskUsageThreshold: float = 0.95
    """A fuller ledger directory refuses adds with READ_ONLY until it is below again."""
    diskUsageWarnThreshold: float = 0.90
    """Above it major compaction is suspended, because it needs space first."""
    diskCheckInterval: int = 10_000
    minUsableSizeForHighPriorityWrites: int = 256 * _MB
    """Free bytes below which even recovery adds are refused."""

    bookieId: str = "vela-embedded"

    def __post_init__(self) -> None:
        """Refuse what cannot work, in one clear line."""
        if not self.journalDirectories or not self.ledgerDirectories:
            raise ValueError("journalDirectories and ledgerDirectories must name a directory each")
        if self.journalAlignmentSize <= 0 or self.journalAlignmentSize % 512:
            raise ValueError("journalAlignmentSize must be a multiple of 512")
        if self.journalMaxSizeMB < 1 or self.dbStorage_writeCacheMaxSizeMb < 1:
            raise ValueError("journalMaxSizeMB and dbStorage_writeCacheMaxSizeMb must be positive")
        if not 4096 <= self.logSizeLimit <= 1 << 30:
            raise ValueError("logSizeLimit must be between 4096 and 1073741824")
        if not 0 < self.diskUsageThreshold < 1:
            raise ValueError("diskUsageThreshold must lie between 0 and 1")

    @classmethod
    def from_mapping(cls, values: Mapping[str, str]) -> BookieConfig:
        """From key=value text; keys that are not ours are ignored.

        Raises: ValueError: a value that cannot be read, naming its key.
        """
        known: dict[str, object] = {}
        for field in fields(cls):
            if field.name in values and values[field.name] != "":
                known[field.name] = _parse(field.name, str(field.type), values[field.name])
        return cls(**known)  # type: ignore[arg-type]

    @classmethod
    def in_memory(cls) -> BookieConfig:
        """For `--in-memory`: no journal; use with MemoryDisk and MemoryIndex."""
        return cls(
            journalDirectories=("memory/journal",),
            ledgerDirectories=("memory/ledgers",),
            journalWriteData=False,
            flushInterval=1_000,
            gcWaitTime=10_000,
            logSizeLimit=64 * _MB,
            minorCompactionInterval=10,
            majorCompactionInterval=60,
            compactionRateByEntries=1_000_000,
            journalMaxBackups=0,
        )


def _parse(key: str, kind: str, text: str) -> object:
    try:
        if kind == "bool":
            return {"true": True, "false": False}[text.strip().lower()]
        if kind == "int":
            return int(text)
        if kind == "float":
            return float(text)
        if kind == "str":
            return text.strip()
        return tuple(part.strip() for part in text.split(",") if part.strip())
    except (KeyError, ValueError):
        raise ValueError(f"{key}={text!r} is not a valid {kind}") from None
