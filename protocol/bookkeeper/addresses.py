"""Where a bookie is reached: by its registration, or by its id. Pure.

A bookie registers with the addresses it is reached at (BookieServiceInfoFormat). An empty record is
legal; then the id is the address, `host:port`. Source: BookKeeper's ZKRegistrationManager and
BookieServiceInfoUtils.

Vela's own: a bookie that only processes of its user and machine reach registers the path of a Unix
socket, with a protocol of its own. (path, 0) is its address here.
"""

from __future__ import annotations

import re
from typing import Final

from google.protobuf.message import DecodeError

from protocol.bookkeeper import data_formats_pb2 as formats

BOOKIE_RPC: Final = "bookie-rpc"
"""Name of the protocol of adds and reads in a registration."""
BOOKIE_RPC_AT_PATH: Final = "bookie-rpc+unix"
"""The same at a Unix socket: the host is its path, the port is 0."""

_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:/\s]{1,253}):(\d{1,5})")


def is_path(host: str) -> bool:
    """Whether an address is that of a Unix socket. No name of a host begins with a slash."""
    return host.startswith("/")


def address_of_id(bookie_id: str) -> tuple[str, int] | None:
    """(host, port) of an id that is an address; None: it is just a name."""
    match = _ADDRESS.fullmatch(bookie_id)
    if match is None or not 0 < int(match.group(2)) < 65536:
        return None
    return match.group(1).strip("[]"), int(match.group(2))


def address_of_registration(bookie_id: str, record: bytes) -> tuple[str, int] | None:
    """Where a registered bookie takes adds and reads: (host, port), or (path, 0); None: it does not
    say."""
    info = formats.BookieServiceInfoFormat()
    try:
        info.ParseFromString(record)
    except DecodeError:
        return address_of_id(bookie_id)
    for endpoint in info.endpoints:
        if endpoint.protocol == BOOKIE_RPC_AT_PATH and is_path(endpoint.host):
            return endpoint.host, 0
        if endpoint.protocol == BOOKIE_RPC and endpoint.host and 0 < endpoint.port < 65536:
            return endpoint.host, endpoint.port
    return address_of_id(bookie_id)
