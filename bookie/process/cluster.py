"""The cluster in the metadata store, as one of its bookies sees it: whether it exists, its cookies,
its ledgers.

Paths and texts are BookKeeper's (`protocol.bookkeeper.paths`). A store whose ledgers are laid out
in a way that is not known here is refused: garbage collection would take all of them for deleted.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import structlog

from bookie.errors import BookieRefusesToStart, StorageError
from metadata.ledger_list import live_ledgers
from metadata.opening import UNIX, ZOOKEEPER, open_store
from metadata.store import MUST_NOT_EXIST, MetadataUnavailable, VersionConflict
from metadata.zookeeper_access import AccessRefused, read_access
from protocol.bookkeeper.paths import (
    AVAILABLE_ROOT,
    COOKIES_ROOT,
    ID_SEQUENCE_PATH,
    INSTANCE_ID_PATH,
    LAYOUT,
    LAYOUT_PATH,
    LEDGERS_ROOT,
    READ_ONLY_ROOT,
    cookie_path,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bookie.process.config import BookieProcessConfig
    from metadata.store import MetadataStore

log = structlog.get_logger()

_URI: Final = re.compile(r"zk(\+(?P<layout>[a-z]+))?://(?P<hosts>[^/]+)(?P<root>/.*)?")
_LAYOUTS: Final = frozenset({None, "hierarchical", "null"})
_METADATA_STORE: Final = "metadata-store:"
_KNOWN_FACTORIES: Final = frozenset(
    {
        "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory",
        "org.apache.bookkeeper.meta.LegacyHierarchicalLedgerManagerFactory",
    }
)
"""Both keep ledgers at `protocol.bookkeeper.paths.ledger_path`."""


@final
@dataclass(frozen=True, slots=True)
class MetadataPlace:
    """Where the path above `/ledgers` is."""

    url: str
    """As for `metadata.opening.open_store`."""


def is_pulsar_driver(config: BookieProcessConfig) -> bool:
    """Whether metadataServiceUri names Pulsar's driver instead of BookKeeper's own."""
    return config.metadataServiceUri.startswith(_METADATA_STORE)


def is_store_of_this_machine(config: BookieProcessConfig) -> bool:
    """Whether the metadata are those of a parent process, beside the directories of its bookies."""
    return config.metadataServiceUri.startswith(f"{_METADATA_STORE}{UNIX}")


def metadata_place(config: BookieProcessConfig) -> MetadataPlace:
    """From metadataServiceUri, or from zkServers and zkLedgersRootPath.

    Raises: BookieRefusesToStart.
    """
    uri = config.metadataServiceUri
    if not uri:
        return _place("zkLedgersRootPath", config.zkServers, config.zkLedgersRootPath)
    if uri.startswith(_METADATA_STORE):
        # As in Pulsar, the ledgers root of this driver is always /ledgers, below the chroot.
        rest = uri.removeprefix(_METADATA_STORE)
        if rest.startswith(UNIX):
            return MetadataPlace(rest)
        if not rest.startswith(ZOOKEEPER) and "://" in rest.partition("/")[0] + "//":
            raise _unknown(uri)
        hosts, slash, chroot = rest.removeprefix(ZOOKEEPER).removeprefix("//").partition("/")
        return _place("metadataServiceUri", hosts, f"{slash}{chroot}".rstrip("/") + LEDGERS_ROOT)
    match = _URI.fullmatch(uri)
    if match is None or match["layout"] not in _LAYOUTS:
        raise _unknown(uri)
    return _place("metadataServiceUri", match["hosts"], match["root"] or LEDGERS_ROOT)


async def open_metadata(config: BookieProcessConfig) -> MetadataStore:
    """The metadata store that the configuration names.

    Raises: BookieRefusesToStart, MetadataUnavailable.
    """
    url = metadata_place(config).url
    if config.zkEnableSecurity:
        try:
            is_owner = bool(read_access(config.metadataStoreConfigPath).digest)
        except AccessRefused as error:
            raise BookieRefusesToStart(str(error)) from None
        if not is_owner:
            raise BookieRefusesToStart(
                "zkEnableSecurity=true needs credentials for ZooKeeper in the file of "
                "metadataStoreConfigPath: vela.zookeeper.digest.username and "
                "vela.zookeeper.digest.password"
            )
    return await open_store(url, config.zkTimeout / 1000, config.metadataStoreConfigPath)


def _place(key: str, hosts: str, root: str) -> MetadataPlace:
    root = root.rstrip("/")
    if not root.endswith(LEDGERS_ROOT) or not root.startswith("/"):
        raise BookieRefusesToStart(
            f"{key}: the path of the ledgers, {root!r}, must end in {LEDGERS_ROOT}"
        )
    hosts = hosts.replace(";", ",")
    return MetadataPlace(f"{ZOOKEEPER}{hosts}{root.removesuffix(LEDGERS_ROOT)}")


def _unknown(uri: str) -> BookieRefusesToStart:
    return BookieRefusesToStart(
        f"metadataServiceUri={uri} is not supported: expected zk+hierarchical://host:port/ledgers "
        "or metadata-store:zk:host:port, or metadata-store:unix:/path/of/socket"
    )


async def require_cluster(store: MetadataStore) -> Cluster:
    """Check that there is a cluster. The layout of one that Pulsar has made is chosen by the first
    bookie, as in BookKeeper.

    Raises: BookieRefusesToStart: there is none, or its ledgers cannot be listed.
        MetadataUnavailable.
    """
    instance = await store.get(INSTANCE_ID_PATH)
    if instance is None:
        raise BookieRefusesToStart(
            f"the metadata store has no {INSTANCE_ID_PATH}: it is not that of a cluster. Make one "
            "with `vela initialize-cluster-metadata`, `bin/pulsar initialize-cluster-metadata` or "
            "`bookkeeper shell initnewcluster`, or correct metadataServiceUri (zkServers)"
        )
    _instance_id_of(instance[0])
    layout = await store.get(LAYOUT_PATH)
    while layout is None:
        try:
            await store.put(LAYOUT_PATH, LAYOUT, MUST_NOT_EXIST)
        except VersionConflict:
            log.info("the layout of the ledgers was chosen by another process")
        layout = await store.get(LAYOUT_PATH)
    version, _, factory = layout[0].decode(errors="replace").strip().partition("\n")
    name = factory.partition(":")[0]
    if version != "2" or name not in _KNOWN_FACTORIES:
        raise BookieRefusesToStart(
            f"{LAYOUT_PATH} says that ledgers are kept by {name or 'an unknown class'} (version "
            f"{version[:20]}), which Vela cannot list: it would delete all of them"
        )
    return Cluster(store, instance[0])


def _instance_id_of(record: bytes) -> str:
    """Raises: BookieRefusesToStart: it is no id, which all cookies would have to name."""
    try:
        instance_id = record.decode()
    except UnicodeDecodeError:
        instance_id = ""
    if not instance_id:
        raise BookieRefusesToStart(
            f"{INSTANCE_ID_PATH} in the metadata store is damaged: it is {record[:40]!r}, not an "
            "id. Restore it: the instanceId in the VERSION file of a bookie of this cluster"
        )
    return instance_id


@final
class Cluster:
    """The cluster that a bookie has joined, and none that takes its place in the store.

    A ZooKeeper that came back empty, or was formatted, has no ledgers. That must not count as word
    that they were deleted.
    """

    def __init__(self, store: MetadataStore, instance_id: bytes) -> None:
        self._store = store
        self._instance_id = instance_id

    async def check(self) -> None:
        """Raises: StorageError: it is another cluster now. MetadataUnavailable."""
        found = await self._store.get(INSTANCE_ID_PATH)
        if found is None or found[0] != self._instance_id:
            raise StorageError(
                f"the metadata store holds another cluster now, or none: {INSTANCE_ID_PATH} is not "
                f"{self._instance_id.decode(errors='replace')!r} any more. Restore the metadata; "
                "the data of this bookie is kept"
            )

    async def live_ledgers(self) -> set[int]:
        """See `metadata.ledger_list`. Raises: StorageError, MetadataUnavailable."""
        await self.check()
        ledger_ids = await live_ledgers(self._store)
        await self.check()
        return ledger_ids

    async def refuse_older_metadata(self, ledger_ids: Iterable[int]) -> None:
        """Garbage collection would delete all ledgers that are newer than the metadata. Only for a
        store that gives all ledger ids itself: elsewhere clients may choose them.

        Raises: BookieRefusesToStart, StorageError, MetadataUnavailable.
        """
        next_id = await self._store.peek_sequence(ID_SEQUENCE_PATH)
        newer = {ledger_id for ledger_id in ledger_ids if ledger_id >= next_id}
        unknown = sorted(newer - await self.live_ledgers()) if newer else []
        if unknown:
            raise BookieRefusesToStart(
                "the metadata are older than the bookie's directories, or the end of their "
                f"write-ahead log is lost: they do not know ledger {unknown[0]} and "
                f"{len(unknown) - 1} later ones. Restore the metadata directory and the "
                "directories of all bookies from one backup"
            )


async def initialize_ledgers(store: MetadataStore) -> bool:
    """Make the metadata of a new, empty cluster, as `bookkeeper shell initnewcluster` does, and
    complete one that was begun. Returns whether it was not complete before.

    Raises: MetadataUnavailable.
    """
    if await store.get(LAYOUT_PATH) is not None:
        return False
    for path, value in (
        (AVAILABLE_ROOT, b""),
        (READ_ONLY_ROOT, b""),
        (COOKIES_ROOT, b""),
        (INSTANCE_ID_PATH, str(uuid.uuid4()).encode()),
        # The last one: what it names is complete.
        (LAYOUT_PATH, LAYOUT),
    ):
        try:
            await store.put(path, value, MUST_NOT_EXIST)
        except VersionConflict:
            continue
    return True


@final
class StoredCookies:
    """The CookieStore of a metadata store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._versions: dict[str, int] = {}

    async def instance_id(self) -> str:
        """See CookieStore. Raises: BookieRefusesToStart, MetadataUnavailable."""
        found = await self._store.get(INSTANCE_ID_PATH)
        if found is None:
            raise BookieRefusesToStart(f"the metadata store has no {INSTANCE_ID_PATH}")
        return _instance_id_of(found[0])

    async def read_cookie(self, bookie_id: str) -> bytes | None:
        """See CookieStore. Raises: MetadataUnavailable."""
        await self._store.sync()
        found = await self._store.get(cookie_path(bookie_id))
        self._versions[bookie_id] = MUST_NOT_EXIST if found is None else found[1]
        return None if found is None else found[0]

    async def write_cookie(self, bookie_id: str, cookie: bytes) -> None:
        """See CookieStore. Writes over the cookie that was read, and no other.

        Raises: BookieRefusesToStart: another process wrote one meanwhile. MetadataUnavailable.
        """
        expected = self._versions[bookie_id]
        try:
            version = await self._store.put(cookie_path(bookie_id), cookie, expected)
        except VersionConflict as conflict:
            raise BookieRefusesToStart(
                f"another process started as bookie {bookie_id!r} at the same time: give one of "
                "them another bookieId"
            ) from conflict
        except MetadataUnavailable:
            # It may have been written: the next start reads what there is.
            raise
        self._versions[bookie_id] = version
