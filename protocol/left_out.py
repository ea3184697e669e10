"""The values that stand for fields that a request leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

EPOCH_UNSET: Final = -1
"""The epoch of a consumer whose client has given none."""
NO_PROPERTIES: Final[Mapping[str, str]] = {}
"""Shared by all requests without properties. It is never changed."""
