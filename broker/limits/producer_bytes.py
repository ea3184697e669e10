"""Bounds what the names and the metadata of all producers take in memory. Pure.

Clients choose both, and the broker keeps them as long as the producer is open or waits. One
connection may take a quarter of the bound, so that no single client locks out the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from protocol.errors import TooManyRequests

if TYPE_CHECKING:
    from collections.abc import Mapping

ConnectionT = TypeVar("ConnectionT")

_SHARE_OF_CONNECTION: Final = 4


@final
class ProducerBytes(Generic[ConnectionT]):
    """Invariant: `bytes_held` is the sum over the connections."""

    __slots__ = ("_by_connection", "bytes_held", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._by_connection: dict[ConnectionT, int] = {}

    def take(self, connection: ConnectionT, size_bytes: int) -> None:
        """A producer of the connection takes so much.

        Raises: TooManyRequests: that is more than there is.
        """
        held = self._by_connection.get(connection, 0)
        if held + size_bytes > self.bytes_max // _SHARE_OF_CONNECTION:
            raise TooManyRequests(
                f"names and metadata of the producers of this connection take {held} bytes, which"
                " is a quarter of maxProducerMetadataSizeInMB: close some of them"
            )
        if self.bytes_held + size_bytes > self.bytes_max:
            raise TooManyRequests(
                f"names and metadata of all producers take {self.bytes_held} bytes, which is"
                " maxProducerMetadataSizeInMB: try again later"
            )
        self._by_connection[connection] = held + size_bytes
        self.bytes_held += size_bytes

    def give_back(self, connection: ConnectionT, size_bytes: int) -> None:
        """A producer of the connection, which took so much, has left."""
        left = self._by_connection[connection] - size_bytes
        self.bytes_held -= size_bytes
        if left:
            self._by_connection[connection] = left
        else:
            del self._by_connection[connection]


def producer_bytes(name: str, metadata: Mapping[str, str]) -> int:
    """The bytes of UTF-8 that the name and the metadata of a producer take."""
    size_bytes = len(name.encode())
    for key, value in metadata.items():
        size_bytes += len(key.encode()) + len(value.encode())
    return size_bytes
