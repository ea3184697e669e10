"""One listening port with TLS: its contexts, and what its connections share."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from security.handshakes import Handshakes
from security.tls import TlsContexts
from security.tls_transport import TlsTransport

if TYPE_CHECKING:
    from runtime.transport import Transport
    from security.tls_rules import TlsRules


@final
class TlsPort:
    """See the module docstring. `run` uses files that have changed."""

    def __init__(self, rules: TlsRules) -> None:
        """Reads the files. Raises: UnusableTls."""
        self._contexts = TlsContexts(rules)
        self.handshakes = Handshakes()

    async def run(self) -> None:
        """Until cancelled."""
        await self._contexts.run()

    def over(self, below: Transport) -> TlsTransport:
        """The transport of a new connection."""
        return TlsTransport(below, self._contexts.current, self.handshakes)
