"""The addresses at which clients reach a broker. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The addresses of a broker for clients. An empty one: that port is off. There is at least one
    of each kind."""

    broker_service_url: str
    """`pulsar://host:port`."""
    web_service_url: str
    """`http://host:port`."""
    advertised_listeners: Mapping[str, str] = field(default_factory=dict)
    """Broker service URLs by the name of a listener."""
    broker_service_url_tls: str = ""
    """`pulsar+ssl://host:port`."""
    web_service_url_tls: str = ""
    """`https://host:port`."""
    advertised_listeners_tls: Mapping[str, str] = field(default_factory=dict)
    """The same with TLS."""

    @property
    def broker_id(self) -> str:
        """Pulsar's name of a broker: the host and port of its web service, without TLS if it has
        one."""
        return (self.web_service_url or self.web_service_url_tls).partition("://")[2]

    def has_listener(self, name: str) -> bool:
        """Whether clients may ask for this listener; the empty name is that of none."""
        return (
            not name or name in self.advertised_listeners or name in self.advertised_listeners_tls
        )

    def url(self, listener: str) -> str:
        """The broker service URL for clients that asked for this listener."""
        fallback = "" if listener in self.advertised_listeners_tls else self.broker_service_url
        return self.advertised_listeners.get(listener, fallback)

    def url_tls(self, listener: str) -> str:
        """The same with TLS."""
        fallback = "" if listener in self.advertised_listeners else self.broker_service_url_tls
        return self.advertised_listeners_tls.get(listener, fallback)

    def web_url(self, scheme: str) -> str:
        """The web service URL for a client that came by `http` or `https`; empty: there is none."""
        return self.web_service_url_tls if scheme == "https" else self.web_service_url

    @property
    def preferred_web_url(self) -> str:
        """The one that Pulsar names where it names one: with TLS if there is one."""
        return self.web_service_url_tls or self.web_service_url

    @property
    def service_urls(self) -> list[str]:
        """All that are on: of the binary protocol, then of HTTP; without TLS first."""
        urls = (
            self.broker_service_url,
            self.broker_service_url_tls,
            self.web_service_url,
            self.web_service_url_tls,
        )
        return [url for url in urls if url]
