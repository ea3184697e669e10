"""The consumers of a subscription as a sequence, without building a list of 100,000 each time.

It is a view: length and membership are cheap, iteration is in order of arrival, and access by index
walks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, final, overload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from broker.topics.subscription.consumer import Consumer


@final
class ConsumerSequence(Sequence["Consumer"]):
    """See the module docstring."""

    __slots__ = ("_attached",)

    def __init__(self, attached: Mapping[Consumer, int]) -> None:
        self._attached = attached

    def __len__(self) -> int:
        return len(self._attached)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._attached)

    def __contains__(self, consumer: object) -> bool:
        return consumer in self._attached

    @overload
    def __getitem__(self, index: int) -> Consumer: ...

    @overload
    def __getitem__(self, index: slice) -> list[Consumer]: ...

    def __getitem__(self, index: int | slice) -> Consumer | list[Consumer]:
        if isinstance(index, slice):
            return list(self._attached)[index]
        if index < 0:
            index += len(self._attached)
        for consumer in islice(self._attached, max(index, 0), None):
            return consumer
        raise IndexError(index)
