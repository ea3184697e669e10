"""BookieConfig: the keys of bookkeeper.conf that this bookie honours, under BookKeeper's names and
with BookKeeper's or Pulsar's defaults (smaller caches: one process, small machines).

`bookie.process.config` has the keys of a bookie that is a process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Protocol, Self

from settings.kinds import Bounds, Count, GroupWait, NoneAtZero, Positive, Ratio

_MB = 1 << 20
INDEX_BLOCK_CACHE_BYTES: Final = 16 << 20
ADDED_BY: Final = "the event loop adds entries, and each directory of a journal has a thread"
"""Why `numAddWorkerThreads` has no effect."""


class CompactionKeys(Protocol):
    """The keys of compaction, in the configuration of a bookie or of a broker that embeds one."""

    @property
    def minorCompactionThreshold(self) -> float:
        """Share of live data, as are the other thresholds."""

    @property
    def minorCompactionInterval(self) -> int:
        """Seconds."""

    @property
    def majorCompactionThreshold(self) -> float:
        """Share of live data."""

    @property
    def majorCompactionInterval(self) -> int:
        """Seconds."""


def violated_compaction_rule(config: CompactionKeys) -> str:
    """The rule between the thresholds that is violated, or an empty text."""
    minor_runs = config.minorCompactionThreshold > 0 and config.minorCompactionInterval > 0
    major_runs = config.majorCompactionThreshold > 0 and config.majorCompactionInterval > 0
    both_run = minor_runs and major_runs
    if both_run and config.minorCompactionThreshold > config.majorCompactionThreshold:
        return (
            "minorCompactionThreshold must not be above majorCompactionThreshold, found "
            f"{config.minorCompactionThreshold:g} and {config.majorCompactionThreshold:g}"
        )
    return ""


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
    journalMaxSizeMB: Positive = 2048
    journalMaxBackups: Count = 5
    """Journal files kept although a checkpoint has passed them."""
    journalAlignmentSize: Annotated[int, Bounds(512)] = 4096
    """Each group ends on this boundary; multiple of 512."""
    journalPreAllocSizeMB: Positive = 16
    journalBufferedWritesThreshold: Count = 8 * _MB
    """A group stops growing beyond this many bytes. Waiting records go into the next one."""

    journalAdaptiveGroupWrites: bool = True
    """true: an idle journal writes at once, and groups grow by themselves when it is busy. false:
    a small group is held."""
    journalMaxGroupWaitMSec: GroupWait = 1
    """How long its first record may wait then."""
    journalFlushWhenQueueEmpty: bool = False
    """true: no group is held in any case."""

    flushInterval: Positive = 10_000
    """Milliseconds between checkpoints; longer means more journal to replay after a crash."""
    dbStorage_writeCacheMaxSizeMb: Positive = 128
    """Both halves, over all ledger directories. A full half is flushed at once."""
    dbStorage_readAheadCacheMaxSizeMb: Count = 64
    dbStorage_readAheadCacheBatchSize: Count = 100
    """Minimum number of entries read from an entry log at once. Runs that continue each other are
    read two at a time if they have at most as many."""
    dbStorage_rocksDB_blockCacheSize: Count = INDEX_BLOCK_CACHE_BYTES
    """Bytes of the blocks of an index that stay in memory, for each of the two databases of a
    ledger directory."""
    dbStorage_maxThrottleTimeMs: Count = 10_000
    """How long an add waits for a full write cache before TOO_MANY_REQUESTS."""
    maxPendingAddRequestsPerThread: NoneAtZero = 10_000
    """Adds that may wait for a full write cache; more are refused with TOO_MANY_REQUESTS.
    0: no limit."""
    maxPendingReadRequestsPerThread: NoneAtZero = 2_500
    """Reads that may wait for storage, per reader thread; more get TOO_MANY_REQUESTS. 0: no
    limit."""
    numReadWorkerThreads: Count = 4
    """0 counts as 1: BookKeeper would read on the thread of the connection."""

    logSizeLimit: Annotated[int, Bounds(4096, 2**30)] = 1 << 30
    gcWaitTime: Positive = 900_000
    minorCompactionThreshold: Ratio = 0.2
    """Logs with less live data than this are compacted; 0 disables."""
    minorCompactionInterval: NoneAtZero = 3_600
    """Seconds; 0 disables."""
    majorCompactionThreshold: Ratio = 0.5
    majorCompactionInterval: NoneAtZero = 86_400
    """Seconds; 0 disables."""
    compactionRateByEntries: Positive = 1_000

    diskUsageThreshold: Annotated[float, Bounds(0.001, 0.999)] = 0.95
    """A fuller ledger directory refuses adds with READ_ONLY until it is below again."""
    diskUsageWarnThreshold: Ratio = 0.90
    """Above it major compaction is suspended, because it needs space first."""
    diskCheckInterval: Positive = 10_000
    minUsableSizeForHighPriorityWrites: Count = 256 * _MB
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

    @property
    def journal_group_wait_s(self) -> float:
        """How long a small group is held; 0: not at all."""
        writes_at_once = self.journalAdaptiveGroupWrites or self.journalFlushWhenQueueEmpty
        return 0.0 if writes_at_once else self.journalMaxGroupWaitMSec / 1000

    @classmethod
    def in_memory(cls) -> Self:
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
