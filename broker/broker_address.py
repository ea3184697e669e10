"""The addresses at which clients reach a broker. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The addresses of a broker for clients."""

    broker_service_url: str
    web_service_url: str
    advertised_listeners: Mapping[str, str] = field(default_factory=dict)
    """Broker service URLs by the name of a listener."""

    def url(self, listener: str) -> str:
        """The broker service URL for clients that asked for this listener."""
        return self.advertised_listeners.get(listener, self.broker_service_url)
