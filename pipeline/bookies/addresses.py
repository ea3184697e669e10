"""Where bookies are reached, by their names. Pure, and small enough to go with every task.

A bookie is named by its address, or by an id that says nothing (`bookieId` in its configuration;
the standalone server of Pulsar 5.0 calls its bookie `bk-0`). The addresses of the latter are in
their registrations in the metadata store (`registrations`), or come from the user where nobody else
can read that store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from pipeline.bookies.errors import BookiesNotReachable
from protocol.bookkeeper.addresses import address_of_id

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
@dataclass(frozen=True, slots=True)
class BookieAddresses:
    """`known`: (host, port) by bookie id. Other bookies are at the address that their id is."""

    known: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def of(self, bookie_id: str) -> tuple[str, int]:
        """(host, port). Raises: BookiesNotReachable: the text says which option would give it."""
        address = self.known.get(bookie_id) or address_of_id(bookie_id)
        if address is None:
            raise BookiesNotReachable(
                f"bookie {bookie_id!r} is not named by host:port: set bookiePort on a server of "
                "Vela, set the option metadataStoreUrl or bookieAddresses for one of Pulsar, or "
                "read through the broker"
            )
        return address


BY_ID: Final = BookieAddresses()
"""Of bookies that are named by their addresses."""


def parse_bookie_addresses(text: str) -> dict[str, tuple[str, int]]:
    """(host, port) by bookie id, from `bk-0=host:3181,bk-1=[::1]:3181`.

    Raises: ValueError: the text says what is wrong.
    """
    known: dict[str, tuple[str, int]] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        bookie_id, _, where = part.partition("=")
        address = address_of_id(where.strip())
        if not bookie_id.strip() or address is None:
            raise ValueError(f"{part!r} is not of the form id=host:port")
        known[bookie_id.strip()] = address
    return known
