"""A bookie with data joins a cluster whose metadata were copied from those that it had before.

`vela copy-metadata` leaves a node for each bookie of the copied metadata, which names the set of
its directories. The first start of the bookie in the new cluster takes them over: it writes the
cluster's id into their cookies and stores its own cookie. Before, the metadata that were copied can
still be used; afterwards, they are refused.

The node also names the newest journal. A bookie that went on with the former metadata after the
copy has another one and is refused: this cluster would not know what was stored since, and delete
it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from posixpath import normpath
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from bookie.cookie import adopt, named_clusters, refuse_other_cluster, set_id_of
from bookie.disk import RealDisk
from bookie.errors import BookieRefusesToStart
from bookie.newest_journal import NewestJournal
from bookie.process.cluster import StoredCookies
from metadata.store import NodeNotFound
from protocol.bookkeeper.paths import cookie_path

if TYPE_CHECKING:
    from bookie.config import BookieConfig
    from metadata.store import MetadataStore

log = structlog.get_logger()

JOINING_ROOT: Final = "/vela/joining-bookies"
METADATA_COPY_PATH: Final = "/vela/metadata-copy"
"""There while metadata are copied: the store has a part of them."""


def joining_path(bookie_id: str) -> str:
    """The node of a bookie that may join."""
    return f"{JOINING_ROOT}/{bookie_id}"


@final
@dataclass(frozen=True, slots=True)
class Joining:
    """The content of the node."""

    set_id: str
    """The id of the set of the bookie's directories (docs/formats/cookie.md)."""
    journal: str
    """The newest journal when the metadata were copied. Every start begins another one."""
    former_instance_id: str | None
    """The cluster that their cookies may name; None: an embedded bookie."""

    @classmethod
    def of(cls, config: BookieConfig, former_instance_id: str | None) -> Joining | None:
        """Read it from the directories as they are; None: they have no data of a bookie.

        Raises: BookieRefusesToStart, OSError.
        """
        disk = RealDisk()
        set_id = set_id_of(config, disk)
        if set_id is None:
            return None
        paths = [f"{normpath(path)}/current" for path in config.ledgerDirectories]
        newest = NewestJournal(disk, paths, 0).load()
        if newest is None:
            raise BookieRefusesToStart(
                f"{', '.join(paths)} do not name the newest journal: start and stop `vela "
                "standalone` on them once"
            )
        return cls(set_id, f"{newest.journal_id:x}.{newest.salt:x}", former_instance_id)

    def encode(self) -> bytes:
        """As JSON."""
        fields = {
            "set": self.set_id,
            "journal": self.journal,
            "formerInstanceId": self.former_instance_id,
        }
        return json.dumps(fields).encode()

    @classmethod
    def decode(cls, path: str, data: bytes) -> Joining:
        """Raises: BookieRefusesToStart: it is damaged."""
        try:
            fields = json.loads(data)
            set_id, journal = fields["set"], fields["journal"]
            former = fields["formerInstanceId"]
            if not isinstance(set_id, str) or not isinstance(former, str | None):
                raise TypeError("a field is no text")
        except (ValueError, KeyError, TypeError) as error:
            raise BookieRefusesToStart(
                f"{path} in the metadata store is damaged ({error!r}): copy the metadata again, to "
                "another path of ZooKeeper"
            ) from error
        return cls(set_id, str(journal), former)


async def refuse_part_of_copy(store: MetadataStore) -> None:
    """Raises: BookieRefusesToStart: the copy of metadata to this store was not completed. Who used
    it now could not use what comes, and would hinder the completion. MetadataUnavailable."""
    if await store.get(METADATA_COPY_PATH) is not None:
        raise BookieRefusesToStart(
            "the metadata store has a part of the metadata of a standalone broker "
            f"({METADATA_COPY_PATH}): run the same `vela copy-metadata` again, which completes the "
            "copy, or name another store"
        )


async def join(config: BookieConfig, store: MetadataStore) -> None:
    """Take the directories over, if the metadata say so. The caller has locked them.

    Raises: BookieRefusesToStart: the copy is not complete, or these are other directories, or they
        were used after it. Nothing is changed then. MetadataUnavailable.
    """
    await refuse_part_of_copy(store)
    path = joining_path(config.bookieId)
    found = await store.get(path)
    if found is None:
        return
    joining = Joining.decode(path, found[0])
    cookies = StoredCookies(store)
    instance_id = await cookies.instance_id()
    await trio.to_thread.run_sync(_check_directories, config, joining, instance_id)
    await adopt(config, RealDisk(), cookies)
    if await store.get(cookie_path(config.bookieId)) is None:
        raise BookieRefusesToStart(
            f"bookie {config.bookieId!r} has more directories than journalDirectories and "
            "ledgerDirectories name: name all of them for its first start in this cluster"
        )
    try:
        await store.delete(path)
    except NodeNotFound:
        log.info("the node was deleted meanwhile", path=path)
    log.info("the bookie has joined the cluster that its metadata were copied to", id=instance_id)


def _check_directories(config: BookieConfig, joining: Joining, instance_id: str) -> None:
    """Raises: BookieRefusesToStart."""
    own = Joining.of(config, joining.former_instance_id)
    if own is None or own.set_id != joining.set_id:
        raise BookieRefusesToStart(
            f"the metadata were copied for the directories of bookie {config.bookieId!r} with the "
            f"set id {joining.set_id}, and {', '.join(config.ledgerDirectories)} have "
            f"{'no data of a bookie' if own is None else f'the set id {own.set_id}'}: name the "
            "right ones in journalDirectories and ledgerDirectories"
        )
    refuse_other_cluster(config, RealDisk(), joining.former_instance_id, instance_id)
    is_begun = instance_id in named_clusters(config, RealDisk())
    if own.journal != joining.journal and not is_begun:
        raise BookieRefusesToStart(
            f"{', '.join(config.ledgerDirectories)} were used with the former metadata after these "
            "had been copied: messages and acknowledgements since then are not known here. Stop "
            "`vela standalone`, copy its metadata again, to another path of ZooKeeper, and use it"
        )
