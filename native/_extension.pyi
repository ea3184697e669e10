# The functions that source/extension.h lists. Their docstrings are in native/pure.

from array import array

from native.pure.broadcast import AckTable
from native.pure.records import Rows

def ack_table() -> AckTable: ...
def batch_rows(content: bytes, count: int) -> tuple[bytes, int] | None: ...
def crc32c(data: bytes | bytearray | memoryview, value: int = 0, start: int = 0, /) -> int: ...
def crc32c_payloads(bodies: list[bytes], ledger_id: int, first_entry_id: int) -> list[bytes]: ...
def message_frames(
    slots: array[int], consumers: array[int], rest: bytes, data: bytes
) -> list[bytes]: ...
def message_heads(
    slots: array[int], consumers: array[int], rest: bytes, payload_size: int
) -> bytes: ...
def send_strip(
    descriptor: int, heads: bytes, at: int, offset: int, payload: bytes, bytes_max: int
) -> int: ...
def strip_place(
    heads: bytes, at: int, offset: int, payload_size: int, count: int
) -> tuple[int, int]: ...
def update_slots(
    slots: array[int], column: array[int], keep: int, value: int, step: int
) -> tuple[int, int]: ...
def crc32c_bodies(
    ledger_id: int,
    first_entry_id: int,
    last_add_confirmed: int,
    length: int,
    payloads: list[bytes],
    are_intact: bool,
) -> list[tuple[bytes, bytes]]: ...
def put_records(
    bodies: list[tuple[bytes, bytes]],
    into: bytearray | memoryview,
    at: int,
    checksum: int,
) -> tuple[int, int]: ...
def read_sends(
    data: bytes, start: int, frame_size_max: int
) -> tuple[int, bytes, list[bytes], int, int, int, int]: ...
def log_records(
    rows: Rows,
    ledger_id: int,
    first_entry_id: int,
    location: int,
    bodies: list[tuple[bytes, bytes]],
    size_bytes: int,
    /,
) -> bytes: ...
def message_run(
    consumer: bytes,
    ledger: bytes,
    partition: bytes,
    options: bytes,
    entry_ids: list[int],
    payloads: list[bytes],
) -> bytes: ...
