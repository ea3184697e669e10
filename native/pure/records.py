"""Records of entry logs and their rows in the index. Pure.

Formats: `docs/formats/entry-log.md` and `docs/formats/index.md`, which are BookKeeper's.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, Protocol

_pack_length: Final = Struct(">I").pack
_pack_key: Final = Struct(">qq").pack
_pack_location: Final = Struct(">Q").pack
_INT32_MAX: Final = (1 << 31) - 1
_INT64_MAX: Final = (1 << 63) - 1


class Rows(Protocol):
    """Takes rows, in their order."""

    def __setitem__(self, key: bytes, value: bytes, /) -> None:
        """Add a row."""


def log_records(
    rows: Rows,
    ledger_id: int,
    first_entry_id: int,
    location: int,
    bodies: list[tuple[bytes, bytes]],
    size_bytes: int,
) -> bytes:
    """The records of consecutive entries of a ledger, as they follow each other in an entry log,
    `size_bytes` together. Their rows are set in `rows`.
    `location`: of the first one, which is after its length.

    Raises: TypeError: a body is not (head, payload), both bytes. ValueError: the records have
    another size. OverflowError: a number is too large for its field.
    """
    too_large = first_entry_id + len(bodies) - 1 > _INT64_MAX or location + size_bytes > _INT64_MAX
    if too_large or location < 0 or not 0 <= size_bytes <= _INT32_MAX:
        raise OverflowError("a number is too large for its field")
    records = bytearray()
    sizes: list[int] = []
    for body in bodies:
        if not isinstance(body, tuple) or len(body) != 2:
            raise TypeError(f"expected (head, payload), {type(body).__name__} found")
        size = 0
        for part in body:
            if not isinstance(part, bytes):
                raise TypeError(f"expected bytes, {type(part).__name__} found")
            size += len(part)
        records += _pack_length(size)
        records += body[0]
        records += body[1]
        sizes.append(size)
    if len(records) != size_bytes:
        raise ValueError(f"the records have {len(records)} bytes, and {size_bytes} were said")
    for entry_id, size in enumerate(sizes, first_entry_id):
        rows[_pack_key(ledger_id, entry_id)] = _pack_location(location)
        location += size + 4
    return bytes(records)
