"""The share of the turns that a connection uses: that of the tenant for which it works.

A connection without producers and consumers belongs to the address of its peer, so that a tenant
whose clients only connect, or do so over and over, has the turns of its hosts. The first producer
or consumer puts it into the share of its tenant, with all other connections of that tenant. A
connection of several tenants (a proxy's) gets a share of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from runtime.transport import Transport


@final
class Share:
    """The share of one connection."""

    __slots__ = ("_tenant", "_transport")

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._tenant: str | None = None
        """None: it has worked for no tenant yet; empty: for several."""

    def used_by(self, tenant: str) -> None:
        """A producer or consumer on one of this tenant's topics was opened."""
        if self._tenant is None:
            self._tenant = tenant
            self._transport.use_share(f"tenant {tenant}")
        elif self._tenant and self._tenant != tenant:
            self._tenant = ""
            self._transport.use_share(f"connection {self._transport.peer}")
