"""Configuration files of real Pulsar: those of the distribution with other values of some keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path


def properties(keys: Mapping[str, object]) -> str:
    """The text of a file with these keys alone."""
    return "".join(f"{key}={value}\n" for key, value in keys.items())


def with_keys(stock: Path, keys: Mapping[str, object]) -> str:
    """The text of this file with these values; keys that it does not name are added at its end."""
    return without_keys(stock, (), keys)


def without_keys(stock: Path, removed: Collection[str], keys: Mapping[str, object]) -> str:
    """The same, and without the lines of the keys removed, so that the defaults hold for them."""
    left = dict(keys)
    lines: list[str] = []
    for line in stock.read_text().splitlines():
        key = line.partition("=")[0].strip()
        if key not in removed:
            lines.append(f"{key}={left.pop(key)}" if key in left else line)
    return "\n".join(lines) + "\n" + properties(left)
