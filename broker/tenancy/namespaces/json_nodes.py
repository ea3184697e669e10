"""JSON values in the metadata store: read, create, and change by compare-and-set.

A value that is no JSON object is damaged. Reading it raises MetadataError with the path of its
node, and never returns "no value".
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from metadata.store import MUST_NOT_EXIST, VersionConflict
from protocol.errors import MetadataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from metadata.store import MetadataStore

Json = dict[str, Any]


async def read_json(store: MetadataStore, path: str) -> Json | None:
    """The value at the path, or None when there is no node. Raises: MetadataError."""
    found = await read_json_version(store, path)
    return None if found is None else found[0]


async def read_json_version(store: MetadataStore, path: str) -> tuple[Json, int] | None:
    """The same with its version. Raises: MetadataError."""
    found = await store.get(path)
    return None if found is None else (_parse(found[0], path), found[1])


async def create_json(store: MetadataStore, path: str, value: Json) -> bool:
    """Write a node that must not exist. False: it did."""
    try:
        await store.put(path, _encode(value), MUST_NOT_EXIST)
    except VersionConflict:
        return False
    return True


async def change_json(
    store: MetadataStore, path: str, change: Callable[[Json], Json | None]
) -> Json | None:
    """Replace the value by `change(value)`, again if another session wrote in between.

    `change` must not modify its argument and may raise. None from it means "leave as it is".
    Returns the value that is stored now, None when there is no node. Raises: MetadataError.
    """
    while True:
        found = await store.get(path)
        if found is None:
            return None
        value, version = _parse(found[0], path), found[1]
        changed = change(value)
        if changed is None:
            return value
        try:
            await store.put(path, _encode(changed), version)
        except VersionConflict:
            continue
        return changed


def damaged(path: str, reason: object) -> MetadataError:
    """The refusal of what needs the record at this path."""
    return MetadataError(
        f"The record at {path} is damaged: {reason}. Restore it from a backup, or delete it"
    )


def _parse(data: bytes, path: str) -> Json:
    try:
        value = json.loads(data.decode())
        if not isinstance(value, dict):
            raise ValueError("it is not a JSON object")
        if b"\\ud" in data.lower():  # half a character is valid JSON, and cannot be written again
            _encode(value)
    except (ValueError, RecursionError) as error:
        raise damaged(path, error) from None
    return value


def _encode(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
