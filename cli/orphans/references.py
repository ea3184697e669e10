"""Which ledgers the records of the metadata store name.

Pure. A record that cannot be understood may name any ledger, so it is an error. Beside its own
ledger a cursor names a ledger of virtual cursors (Vela), the ledger of a compacted topic and those
of an index of delayed messages (real Pulsar), as far as they are in its record: the properties of
its position may be in the cursor's ledger.

Sources: CompactedTopicImpl and BucketDelayedDeliveryTracker of Pulsar 4.0.
"""

from __future__ import annotations

from typing import Final

from broker.managed_ledger.cursor_record import INLINE, attached_ledger, decode_cursor_record
from broker.managed_ledger.ledger_record import damaged, decode_ledger_record
from broker.tenancy.schemas.schema_format import DamagedSchema, decode_locator

_COMPACTED_LEDGER: Final = "CompactedTopicLedger"
_DELAYED_BUCKET: Final = "#pulsar.internal.delayed.bucket"


def named_by_list(data: bytes, path: str) -> frozenset[int]:
    """By the record of a managed ledger, also those that were offloaded. Raises: MetadataError."""
    return frozenset(row.ledger_id for row in decode_ledger_record(data, path).rows)


def named_by_cursor(data: bytes, path: str) -> frozenset[int]:
    """By the record of a cursor. Raises: MetadataError."""
    try:
        record = decode_cursor_record(data, path)
    except (ValueError, OverflowError) as error:
        raise damaged(path, str(error)) from error
    named = {record.cursor_ledger_id} - {INLINE}
    attached = attached_ledger(record.properties)
    if attached is not None:
        named.add(attached)
    if record.position is not None and _COMPACTED_LEDGER in record.position.properties:
        named.add(record.position.properties[_COMPACTED_LEDGER])
    for key, value in record.properties.items():
        if key.startswith(_DELAYED_BUCKET):
            if not (value.isascii() and value.isdecimal()):
                raise damaged(path, f"{key} is {value}")
            named.add(int(value))
    return frozenset(named)


def named_by_locator(data: bytes, path: str) -> frozenset[int]:
    """By the list of a topic's schemas. Raises: MetadataError."""
    try:
        return frozenset(each.ledger_id for each in decode_locator(data)) if data else frozenset()
    except DamagedSchema as error:
        raise damaged(path, str(error)) from error
