from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.bookkeeper.digests import Digest, DigestMismatch, DigestType, entry_metadata

ids = st.integers(0, 2**63 - 1)


@given(st.sampled_from(DigestType), st.binary(max_size=20), ids, ids, st.binary(max_size=300))
def test_an_entry_reads_back(
    kind: DigestType, password: bytes, ledger_id: int, entry_id: int, payload: bytes
) -> None:
    digest = Digest(kind, password)
    head = digest.head(ledger_id, entry_id, entry_id - 1, len(payload), payload)
    body = head + payload

    assert len(head) == digest.head_size_bytes
    assert digest.verify(memoryview(body), ledger_id, entry_id) == payload
    assert digest.verified_payload(body, ledger_id, entry_id) == payload
    assert entry_metadata(body) == (ledger_id, entry_id, entry_id - 1, len(payload))


@given(st.sampled_from(DigestType), ids, st.lists(st.binary(max_size=30), max_size=5))
def test_heads_of_consecutive_entries_are_those_of_each(
    kind: DigestType, ledger_id: int, payloads: list[bytes]
) -> None:
    digest = Digest(kind, b"secret")
    expected = []
    length = 1_000
    for entry_id, payload in enumerate(payloads, 7):
        length += len(payload)
        expected.append((digest.head(ledger_id, entry_id, 3, length, payload), payload))

    assert digest.bodies(ledger_id, 7, 3, 1_000, payloads) == expected


@given(
    st.sampled_from([DigestType.CRC32, DigestType.HMAC, DigestType.CRC32C]),
    st.binary(min_size=1, max_size=100),
    st.data(),
)
def test_any_flipped_bit_is_found(kind: DigestType, payload: bytes, data: st.DataObject) -> None:
    digest = Digest(kind, b"secret")
    body = bytearray(digest.head(7, 8, 6, 999, payload) + payload)
    bit = data.draw(st.integers(0, len(body) * 8 - 1))
    body[bit // 8] ^= 1 << bit % 8

    with pytest.raises(DigestMismatch):
        digest.verify(body, 7, 8)
    with pytest.raises(DigestMismatch):
        digest.verified_payload(bytes(body), 7, 8)


@given(
    st.sampled_from([DigestType.CRC32, DigestType.HMAC, DigestType.CRC32C]),
    st.lists(st.binary(max_size=40), min_size=1, max_size=5),
    st.data(),
)
def test_a_run_is_read_up_to_its_first_damaged_entry(
    kind: DigestType, payloads: list[bytes], data: st.DataObject
) -> None:
    digest = Digest(kind, b"secret")
    bodies = [head + payload for head, payload in digest.bodies(7, 3, 2, 0, payloads)]
    assert digest.verified_payloads(bodies, 7, 3) == (payloads, "")

    damaged = data.draw(st.integers(0, len(bodies) - 1))
    bodies[damaged] = bodies[damaged][:-1] + bytes([bodies[damaged][-1] ^ 1])
    found, problem = digest.verified_payloads(bodies, 7, 3)
    assert found == payloads[:damaged]
    assert f"entry 7:{3 + damaged}: {kind.name} digest does not match" in problem


def test_another_entry_than_asked_for_is_refused() -> None:
    digest = Digest(DigestType.CRC32C)
    body = digest.head(1, 2, 1, 3, b"abc") + b"abc"

    with pytest.raises(DigestMismatch, match="asked for entry 1:3, got 1:2"):
        digest.verify(body, 1, 3)
    with pytest.raises(DigestMismatch, match="asked for entry 2:2"):
        digest.verify(body, 2, 2)


@given(st.sampled_from(DigestType), st.binary(max_size=60))
def test_arbitrary_bodies_never_raise_anything_else(kind: DigestType, body: bytes) -> None:
    digest = Digest(kind)
    for check in (
        lambda: digest.verify(body, 1, 2),
        lambda: entry_metadata(body),
        lambda: digest.verify_explicit_lac(body, 1),
    ):
        try:
            check()
        except DigestMismatch:
            continue


def test_a_wrong_password_is_found_with_hmac() -> None:
    body = Digest(DigestType.HMAC, b"one").head(1, 0, -1, 1, b"x") + b"x"

    with pytest.raises(DigestMismatch, match="HMAC"):
        Digest(DigestType.HMAC, b"two").verify(body, 1, 0)


def test_explicit_lac_of_another_ledger_is_refused() -> None:
    digest = Digest(DigestType.CRC32C)

    with pytest.raises(DigestMismatch, match="of ledger 1, not 2"):
        digest.verify_explicit_lac(digest.explicit_lac(1, 7), 2)
