"""Decides which callers are served: protection against web pages opened by users of this network.

A page from anywhere can make a browser send requests to addresses that only the browser reaches.
Two rules prevent that. They do not affect clients that are not browsers.

- The `Host` of a request must be a name or address of this broker. A page whose own name suddenly
  resolves to the broker (DNS rebinding) sends the page's name.
- A request that writes must not come from a foreign page. Browsers send the origin of a page in
  `Origin` and `Sec-Fetch-Site`. The content types that a form can send are refused for POST, as
  every endpoint takes JSON: a browser asks for permission (a preflight request) before it sends
  that, and never gets it.

Pure. RFC 9110 7.2 (Host), RFC 6454 (Origin), W3C Fetch Metadata, the Fetch standard's
"CORS-safelisted request-header".
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final, final

from web.errors import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ALLOWED_HOSTS_KEY: Final = "webServiceAllowedHosts"
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OF_FORMS: Final = frozenset(
    {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data"}
)
_FOREIGN_SITES: Final = frozenset({"cross-site", "same-site"})
_MISDIRECTED: Final = 421
_SHOWN_MAX: Final = 100


@final
class CallerRules:
    """The names of one broker and the additional names in its configuration."""

    def __init__(self, own_names: Iterable[str], allowed_hosts: Iterable[str]) -> None:
        """`allowed_hosts`: names, `*.suffix` for all names below one, `*` for every name."""
        self._names = frozenset({"localhost", *(_plain(name) for name in own_names if name)})
        allowed = [_plain(name) for name in allowed_hosts]
        self._any = "*" in allowed
        self._listed = frozenset(name for name in allowed if not name.startswith("*"))
        self._suffixes = tuple(name[1:] for name in allowed if name.startswith("*."))

    def check(self, method: str, headers: Mapping[str, str], local_address: str) -> None:
        """`headers` with lower-case names; `local_address`: where the connection arrived.

        Raises: RequestRefused.
        """
        host = headers.get("host")
        if host is not None:  # HTTP/1.0 may omit it, and no browser does
            name = host_name(host)
            if not (self._is_own(name, local_address) or self._is_allowed(name)):
                raise RequestRefused(
                    _MISDIRECTED,
                    f"{name[:_SHOWN_MAX]!r} is not a name or address of this broker; "
                    f"to serve it under this name, add it to {ALLOWED_HOSTS_KEY} in the "
                    "broker's configuration",
                )
        if method not in _READING:
            self._check_writer(method, headers, host or "")

    def _check_writer(self, method: str, headers: Mapping[str, str], host: str) -> None:
        origin = headers.get("origin")
        if origin is None:
            foreign = headers.get("sec-fetch-site", "").lower() in _FOREIGN_SITES
        else:
            foreign = not (_is_same(origin, host) or self._is_allowed(_origin_host(origin)))
        if foreign:
            raise RequestRefused(
                403,
                f"A page of {(origin or 'another site')[:_SHOWN_MAX]} may not change anything "
                f"here; to allow it, add its host to {ALLOWED_HOSTS_KEY} in the broker's "
                "configuration",
            )
        content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        if content_type in _OF_FORMS and (method == "POST" or (method != "DELETE" and has_body)):
            raise RequestRefused(
                415,
                f"A {method} with Content-Type {content_type} is refused, because any web page can "
                "send it; use application/json",
            )

    def _is_own(self, name: str, local_address: str) -> bool:
        if name in self._names:
            return True
        address = _address(name)
        if address is None:
            return False
        return address.is_loopback or address == _address(local_address.partition("%")[0])

    def _is_allowed(self, name: str) -> bool:
        if not name:
            return False
        return self._any or name in self._listed or name.endswith(self._suffixes)


def host_name(host: str) -> str:
    """The name or address in a `Host` header, lower case, without port, brackets, last dot.

    Raises: RequestRefused: it is not valid.
    """
    name = _plain(host)
    if not name or not name.isascii() or any(char in name for char in " /@\\\t,"):
        raise RequestRefused(400, f"The Host header is malformed: {host[:_SHOWN_MAX]!r}")
    return name


def _plain(host: str) -> str:
    text = host.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    if text.count(":") == 1:
        text = text.partition(":")[0]
    return text.removesuffix(".")


def _is_same(origin: str, host: str) -> bool:
    """Whether an `Origin` names the host and port of the request. A proxy may have terminated TLS,
    so the scheme is not compared."""
    scheme, separator, authority = origin.strip().lower().partition("://")
    if not separator:
        return False
    default = {"http": ":80", "https": ":443"}.get(scheme, "")
    return authority.removesuffix(default) == host.strip().lower().removesuffix(default)


def _origin_host(origin: str) -> str:
    return _plain(origin.partition("://")[2])


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
