"""The levels that set policies: the topic, then its namespace. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = Any


@final
class Levels(NamedTuple):
    """Fields as in the record of a namespace."""

    topic: Mapping[str, Json]
    namespace: Mapping[str, Json]

    def said(self, field: str, fallback: Json = None) -> Json:
        """The value of the nearest level that has one. null says nothing."""
        return next((each[field] for each in self if each.get(field) is not None), fallback)

    def limit(self, field: str, fallback: int) -> int:
        """The same for a limit. A negative one says nothing."""
        given = (each.get(field) for each in self)
        return next((int(each) for each in given if each is not None and each >= 0), fallback)
