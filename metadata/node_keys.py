"""Maps paths of the metadata tree to ordered keys, and finds children among them.

A path `/a/b/c` is stored under the key `\\0a\\0b\\0c`. The separator sorts before every character
of a name, so all nodes below a node follow it directly and no sibling comes in between (with `/` as
separator `/a-b` would sort between `/a` and `/a/c`). Children of a node are then found by skipping:
after a child, jump past its whole subtree. A child that only has nodes below it and no value of its
own is listed too, as ZooKeeper lists parents.

Pure. Names may not be empty and may not contain control characters.
"""

from __future__ import annotations

from typing import Final

SEPARATOR: Final = b"\x00"
_AFTER_SUBTREE: Final = b"\x01"


def node_key(path: str) -> bytes:
    """The ordered key of a path. Raises ValueError for a path that is not absolute and clean."""
    if path == "/":
        return b""
    if not path.startswith("/") or path.endswith("/") or "//" in path:
        raise ValueError(f"metadata path {path!r} must start with / and have no empty names")
    encoded = path.encode()
    if min(encoded) < 0x20:
        raise ValueError(f"metadata path {path!r} has a control character")
    return encoded.replace(b"/", SEPARATOR)


def child_name(parent_key: bytes, key: bytes) -> bytes | None:
    """The child of the parent to which a key belongs (itself or below it); None: not below it."""
    prefix = parent_key + SEPARATOR
    if not key.startswith(prefix):
        return None
    end = key.find(SEPARATOR, len(prefix))
    return key[len(prefix) :] if end < 0 else key[len(prefix) : end]


def first_child_key(parent_key: bytes) -> bytes:
    """The start of a node's children."""
    return parent_key + SEPARATOR


def after_child_key(parent_key: bytes, name: bytes) -> bytes:
    """The first possible key after a child and everything below it."""
    return parent_key + SEPARATOR + name + _AFTER_SUBTREE
