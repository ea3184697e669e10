"""The connection of a client, whatever protocol it speaks.

The door of each protocol implements it, once for its producers (`ProducerSession`) and once for its
consumers (`ConsumerSession`). A class and no Protocol, because compiled code calls the methods of a
class directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from collections.abc import Collection

    from security.caller import Caller


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientConnection:
    """See the module docstring. Identity is the object: what two producers (or two consumers) have
    as their session is the same object if, and only if, they are on the same connection."""

    __slots__ = ("caller", "client_version", "features", "peer", "remote_address")

    def __init__(
        self, peer: str, client_version: str, caller: Caller, features: Collection[str] = ()
    ) -> None:
        self.peer = peer
        """`host:port` of the other side."""
        self.remote_address = f"/{peer}"
        """As statistics show it."""
        self.client_version = client_version
        """The client's library, as statistics show it."""
        self.caller = caller
        """On whose behalf it produces and consumes."""
        self.features = features
        """The features that the client announces, by Pulsar's names."""

    async def is_alive(self, timeout_seconds: float) -> bool:
        """Whether the client gives a sign of life within the time. Asked before another one gets
        what this one holds."""
        raise NotImplementedError

    def close(self, reason: str) -> None:
        """End the connection. The reason is for the log."""
        raise NotImplementedError
