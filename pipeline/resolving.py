"""Reads what the options of a read only point to, on the driver and once per query: the token, and
the addresses of bookies that are named by ids.

A bookie that gets another address while a query runs is reached again once the query is started
again; `readEngine=auto` reads through the broker until then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pipeline.bookies.addresses import BookieAddresses
from pipeline.credentials import source_options_with_token
from pipeline.options import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.options import SourceOptions


def resolved_source_options(given: Mapping[str, str], *, streaming: bool | None) -> SourceOptions:
    """As `pipeline.options.source_options`. Raises: InvalidOption."""
    return with_registrations(source_options_with_token(given, streaming=streaming))


def with_registrations(options: SourceOptions) -> SourceOptions:
    """With the addresses of `metadataStoreUrl`. Those of `bookieAddresses` come before them.

    Raises: InvalidOption: the store cannot be read.
    """
    if not options.metadata_store_url or options.read_engine == "broker":
        return options
    # Only here: it needs packages that the executors do not.
    from pipeline.bookies.registrations import RegistrationsNotRead, registered_addresses

    try:
        found = registered_addresses(options.metadata_store_url, options.metadata_store_config_path)
    except RegistrationsNotRead as error:
        raise InvalidOption(f"metadataStoreUrl: {error}") from error
    addresses = BookieAddresses({**found, **options.bookie_addresses.known})
    return replace(options, bookie_addresses=addresses, metadata_store_url="")
