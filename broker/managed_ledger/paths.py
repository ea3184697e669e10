"""The paths of topic and cursor records in the metadata store.

The name of a managed ledger is Pulsar's "persistence naming": `tenant/namespace/persistent/topic`
with the topic's local name URL-encoded. A cursor lies below its topic under its URL-encoded name.
Encoding is that of Java's URLEncoder, because the names must be byte for byte the same.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote_plus, unquote_plus

MANAGED_LEDGERS_ROOT: Final = "/managed-ledgers"


def encode_name(name: str) -> str:
    """Java's URLEncoder with UTF-8: letters, digits and `.-*_` stay, a space becomes `+`."""
    return quote_plus(name, safe="*").replace("~", "%7E")


def decode_name(encoded: str) -> str:
    """Decode the name."""
    return unquote_plus(encoded)


def ledger_info_path(name: str) -> str:
    """The record of a managed ledger."""
    return f"{MANAGED_LEDGERS_ROOT}/{name}"


def cursor_info_path(name: str, cursor_name: str) -> str:
    """The record of one of its cursors."""
    return f"{MANAGED_LEDGERS_ROOT}/{name}/{encode_name(cursor_name)}"
