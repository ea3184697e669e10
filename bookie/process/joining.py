"""A bookie with data joins a cluster whose metadata were copied from those that it had before.

`vela copy-metadata` leaves a node for each bookie of the copied metadata, which names the set of
its directories. The first start of the bookie in the new cluster takes them over: it writes the
cluster's id into their cookies and stores its own cookie. Before, the metadata that were copied can
still be used; afterwards, they are refused.

A bookie with a ledger that the copied metadata do not know is refused before that: it went on with
the former metadata after the copy, and the new cluster would delete that ledger.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from bookie.bookie import Bookie
from bookie.cookie import adopt, refuse_other_cluster, set_id_of
from bookie.disk import RealDisk
from bookie.errors import BookieRefusesToStart
from bookie.process.cluster import StoredCookies
from metadata.store import NodeNotFound
from protocol.bookkeeper.paths import cookie_path

if TYPE_CHECKING:
    from bookie.config import BookieConfig
    from bookie.process.cluster import Cluster
    from metadata.store import MetadataStore

log = structlog.get_logger()

JOINING_ROOT: Final = "/vela/joining-bookies"


def joining_path(bookie_id: str) -> str:
    """The node of a bookie that may join."""
    return f"{JOINING_ROOT}/{bookie_id}"


@final
@dataclass(frozen=True, slots=True)
class Joining:
    """The content of the node."""

    set_id: str
    """Of the bookie's directories (docs/formats/cookie.md)."""
    former_instance_id: str | None
    """The cluster that their cookies may name; None: an embedded bookie."""

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps(
            {"set": self.set_id, "formerInstanceId": self.former_instance_id}
        ).encode()

    @classmethod
    def decode(cls, path: str, data: bytes) -> Joining:
        """Raises: BookieRefusesToStart: it is damaged."""
        try:
            fields = json.loads(data)
            set_id, former = fields["set"], fields["formerInstanceId"]
            if not isinstance(set_id, str) or not isinstance(former, str | None):
                raise TypeError("a field is no text")
        except (ValueError, KeyError, TypeError) as error:
            raise BookieRefusesToStart(
                f"{path} in the metadata store is damaged ({error!r}): copy the metadata again, to "
                "another path of ZooKeeper"
            ) from error
        return cls(set_id, former)


async def join(config: BookieConfig, store: MetadataStore, cluster: Cluster) -> None:
    """Take the directories over, if the metadata say so. The caller has locked them.

    Raises: BookieRefusesToStart: these are other directories, or they were used with the former
        metadata after the copy. Nothing is changed then. StorageError, MetadataUnavailable.
    """
    path = joining_path(config.bookieId)
    found = await store.get(path)
    if found is None:
        return
    joining = Joining.decode(path, found[0])
    disk, cookies = RealDisk(), StoredCookies(store)
    instance_id = await cookies.instance_id()
    set_id = await trio.to_thread.run_sync(set_id_of, config, disk)
    if set_id != joining.set_id:
        raise BookieRefusesToStart(
            f"the metadata were copied for the directories of bookie {config.bookieId!r} with the "
            f"set id {joining.set_id}, and {', '.join(config.ledgerDirectories)} have "
            f"{'no data of a bookie' if set_id is None else f'the set id {set_id}'}: name the "
            "right ones in journalDirectories and ledgerDirectories"
        )
    known = joining.former_instance_id, instance_id
    await trio.to_thread.run_sync(refuse_other_cluster, config, disk, *known)
    await cluster.refuse_older_metadata(await _ledger_ids(config))
    await adopt(config, disk, cookies)
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


async def _ledger_ids(config: BookieConfig) -> list[int]:
    """The ledgers of the bookie, after it recovered as one without a cluster: so the former
    metadata can still be used when these are refused. Raises: StorageError."""
    try:
        bookie = await Bookie.open(config)
    except OSError as error:
        raise BookieRefusesToStart(f"cannot open the bookie's storage: {error}") from error
    try:
        return list(bookie.ledger_ids())
    finally:
        with trio.CancelScope(shield=True):
            await bookie.aclose()
