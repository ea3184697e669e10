"""A look at all that is to be copied, before anything is written.

It finds what the new store or the new cluster could not take, and the digest by which an
interrupted copy is recognised.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from cli.metadata_copy.names import ClusterName, NotCopied, check_node
from protocol.bookkeeper.ledger_metadata import InvalidMetadata, decode_ledger_metadata
from protocol.bookkeeper.paths import ID_SEQUENCE_PATH, SHORT_LEDGER_ID_END, ledger_id_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.metadata_copy.source import Source


@final
@dataclass(frozen=True, slots=True)
class Survey:
    """Everything that is to be copied."""

    node_count: int
    ledger_count: int
    next_ledger_id: int
    digest: str
    """The digest of all paths and values, sequences, bookies, and the name of the cluster."""


def copied_nodes(source: Source, name: ClusterName) -> Iterator[tuple[str, bytes]]:
    """Path and value of every node in the new store. Raises: NotCopied, MetadataUnavailable."""
    for path, value in source.tree.nodes():
        new_path = name.path(path)
        if new_path is not None:
            yield new_path, name.value(path, value)


def survey(source: Source, name: ClusterName, node_bytes_max: int) -> Survey:
    """Raises: NotCopied, MetadataUnavailable."""
    digest = hashlib.sha256()
    nodes = ledgers = 0
    next_id = source.sequences.get(ID_SEQUENCE_PATH, 0)
    if next_id >= SHORT_LEDGER_ID_END:
        raise NotCopied(f"the next ledger id is {next_id}: ZooKeeper counts to 2^31-1")

    def add(*parts: bytes) -> None:
        for part in parts:
            digest.update(len(part).to_bytes(8, "big") + part)

    for path, value in copied_nodes(source, name):
        check_node(path, value, node_bytes_max)
        add(path.encode(), value)
        nodes += 1
        ledger_id = ledger_id_of(path)
        if ledger_id is not None:
            ledgers += 1
            _check_ledger(source, path, value, ledger_id, next_id)
    for path in sorted(source.sequences):
        add(path.encode(), b"%d" % source.sequences[path])
    for bookie_id in sorted(source.bookies):
        add(bookie_id.encode(), source.bookies[bookie_id].joining.encode())
    add(name.name.encode())
    return Survey(nodes, ledgers, next_id, digest.hexdigest())


def _check_ledger(source: Source, path: str, value: bytes, ledger_id: int, next_id: int) -> None:
    """Raises: NotCopied: it is damaged, or on a bookie that would not be in the new cluster."""
    try:
        ensembles = decode_ledger_metadata(value).ensembles
    except InvalidMetadata as error:
        raise NotCopied(f"{path} is damaged: {error}. Restore it from a backup") from error
    if ledger_id >= next_id:
        raise NotCopied(
            f"ledger {ledger_id} exists, and the next id to be given is {next_id}: the metadata "
            "are damaged. Restore them from a backup"
        )
    for bookie_id in sorted({each for ensemble in ensembles.values() for each in ensemble}):
        if bookie_id not in source.bookies:
            raise NotCopied(
                f"ledger {ledger_id} is on bookie {bookie_id!r}, which has no directories in "
                f"{source.data_directory}: mount them again, or name those of the configuration "
                "(--config)"
            )
