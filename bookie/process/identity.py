"""The identity of a bookie: its id, the address that it gives to clients, where it listens.

The rules are BookKeeper's. The address is `advertisedAddress`, or that of `listeningInterface`, or
of this machine, as a number unless `useHostNameAsBookieID`. A loopback address needs
`allowLoopback`. The id is `bookieId`, or address and port.
"""

from __future__ import annotations

import fcntl
import ipaddress
import re
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from bookie.errors import BookieRefusesToStart

if TYPE_CHECKING:
    from bookie.process.config import BookieProcessConfig

ANY_ADDRESS: Final = "0.0.0.0"
LOOPBACK: Final = "127.0.0.1"
_BOOKIE_ID: Final = re.compile(r"[a-zA-Z0-9:_.\-]+")
_READ_ONLY_NODE: Final = "readonly"
_SIOCGIFADDR: Final = 0x8915
_INTERFACE_NAME: Final = struct.Struct("256s")


@final
@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of one bookie process."""

    bookie_id: str
    host: str
    """The host that clients connect to."""
    bind_host: str


def identity_of(config: BookieProcessConfig, process: str = "bookie") -> Identity:
    """`process` is what a refusal calls it.

    Raises: BookieRefusesToStart: there is no address that clients could use.
    """
    host = config.advertisedAddress or _own_host(config, process)
    own_address = "" if config.advertisedAddress else _loopback_address(host)
    if own_address and not config.allowLoopback:
        raise BookieRefusesToStart(
            f"this {process} would be at {host}, where only this machine reaches it. Name its "
            "address in advertisedAddress, or set allowLoopback=true"
        )
    bind_host = config.bindAddress
    if not bind_host and config.listeningInterface:
        bind_host = interface_address(config.listeningInterface)
    if not bind_host:
        bind_host = own_address or _told_loopback(host) or ANY_ADDRESS
    bookie_id = config.bookieId or f"{host}:{config.bookiePort}"
    if not _BOOKIE_ID.fullmatch(bookie_id) or bookie_id.lower() == _READ_ONLY_NODE:
        raise BookieRefusesToStart(
            f"{bookie_id!r} cannot be the id of a bookie: letters, digits, and : - _ . only, and "
            f"not {_READ_ONLY_NODE!r}"
        )
    return Identity(bookie_id, host, bind_host)


def interface_address(name: str) -> str:
    """The IPv4 address of a network interface. Raises: BookieRefusesToStart."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            request = _INTERFACE_NAME.pack(name.encode()[:15])
            answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)
        except OSError as error:
            raise BookieRefusesToStart(
                f"listeningInterface={name}: no address of such an interface: {error.strerror}"
            ) from error
    return socket.inet_ntoa(answer[20:24])


def _own_host(config: BookieProcessConfig, process: str) -> str:
    name = socket.getfqdn()
    try:
        if config.listeningInterface:
            address = interface_address(config.listeningInterface)
            name = socket.gethostbyaddr(address)[0] if config.useHostNameAsBookieID else name
        else:
            address = socket.gethostbyname(name)
    except OSError as error:
        raise BookieRefusesToStart(
            f"the name of this machine, {name!r}, has no address ({error.strerror}): name that "
            f"of this {process} in advertisedAddress"
        ) from error
    if not config.useHostNameAsBookieID:
        return address
    return name.partition(".")[0] if config.useShortHostName else name


def _loopback_address(host: str) -> str:
    """The address of a host that is this machine only; empty if others can reach it."""
    try:
        address = socket.gethostbyname(host)
    except OSError:
        return ""
    return address if ipaddress.ip_address(address).is_loopback else ""


def _told_loopback(host: str) -> str:
    """The address of an advertised host that is this machine for every reader of it; else empty.

    A name says nothing: a machine may know its own name as 127.0.1.1, and others by an address.
    """
    if host.lower() == "localhost":
        return LOOPBACK
    try:
        return host if ipaddress.ip_address(host).is_loopback else ""
    except ValueError:
        return ""
