"""The named addresses of a broker, from `advertisedListeners` and `internalListenerName`. Pure.

A broker that is reached by several networks has an address in each. A client that asks for a topic
names its listener, and is answered with the addresses of that name. Brokers, and clients that name
none, get those of the internal listener: the first one unless `internalListenerName` names another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from broker.ground.config import BrokerConfig

PLAIN: Final = "pulsar"
TLS: Final = "pulsar+ssl"
_WEB: Final = frozenset({"http", "https"})


class WrongListeners(ValueError):
    """The keys name no usable listeners. The text says why."""


@final
@dataclass(frozen=True, slots=True)
class Listeners:
    """The listeners of one broker; all empty if none has a name."""

    plain: dict[str, str] = field(default_factory=dict)
    """`pulsar://host:port` by name."""
    tls: dict[str, str] = field(default_factory=dict)
    """`pulsar+ssl://host:port` by name."""
    internal: str = ""

    def of_scheme(self, scheme: str) -> dict[str, str]:
        """Their addresses of this scheme, by name."""
        return self.tls if scheme == TLS else self.plain


def listeners_of(config: BrokerConfig) -> Listeners:
    """Raises: WrongListeners."""
    found = Listeners()
    names_of: dict[str, str] = {}
    for entry in filter(None, map(str.strip, config.advertisedListeners.split(","))):
        name, _, url = (part.strip() for part in entry.partition(":"))
        scheme, place = _address(entry, name, url)
        urls = found.of_scheme(scheme)
        if name in urls:
            raise _wrong(f"listener {name!r} has two {scheme}:// addresses")
        if names_of.setdefault(place, name) != name:
            raise _wrong(f"listeners {names_of[place]!r} and {name!r} have the same address")
        urls[name] = url
    if not names_of:
        return found
    internal = config.internalListenerName or next(iter(names_of.values()))
    if internal not in names_of.values():
        raise WrongListeners(
            f"internalListenerName={internal} is no listener of advertisedListeners"
            f" ({', '.join(dict.fromkeys(names_of.values()))})"
        )
    return Listeners(found.plain, found.tls, internal)


def violated_listener_rule(config: BrokerConfig) -> str:
    """The sentence about the keys; empty: nothing is wrong."""
    try:
        listeners_of(config)
    except WrongListeners as error:
        return str(error)
    return ""


def _address(entry: str, name: str, url: str) -> tuple[str, str]:
    """Scheme and `host:port`. Raises: WrongListeners."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme in _WEB:
        raise _wrong(
            f"{entry!r}: the web service has one address, that of advertisedAddress and its port"
        )
    is_whole = parts.hostname and port and url == f"{parts.scheme}://{parts.netloc}"
    if not name or parts.scheme not in (PLAIN, TLS) or not is_whole:
        raise _wrong(f"{entry!r} is not NAME:{PLAIN}://HOST:PORT or NAME:{TLS}://HOST:PORT")
    return parts.scheme, parts.netloc


def _wrong(why: str) -> WrongListeners:
    return WrongListeners(f"advertisedListeners: {why}")
