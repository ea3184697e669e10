"""Answers to reads on the socket of a metadata store. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metadata.node_cache import UNKNOWN
from metadata.socket_frames import Frame, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metadata.node_cache import NodeCache


def found(number: int, node: tuple[bytes, int] | None) -> Frame:
    """To GET."""
    if node is None:
        return Frame(number, Kind.ABSENT)
    return Frame(number, Kind.DONE, value=node[0], version=node[1])


def existence(number: int, exists: bool) -> Frame:
    """To EXISTS."""
    return Frame(number, Kind.DONE if exists else Kind.ABSENT)


def children(number: int, names: Sequence[str]) -> Frame:
    """To CHILDREN."""
    return Frame(number, Kind.DONE, value="\0".join(names).encode())


def from_memory(cache: NodeCache, request: Frame) -> Frame | None:
    """The answer to a read of a node that is in memory; None: the store has to be asked."""
    number, path = request.number, request.path
    if request.kind is Kind.GET:
        value = cache.value(path)
        return None if value is UNKNOWN else found(number, value)
    if request.kind is Kind.EXISTS:
        exists = cache.exists(path)
        return None if exists is None else existence(number, exists)
    if request.kind is Kind.CHILDREN:
        names = cache.names(path)
        return None if names is None else children(number, names)
    return None
