"""What the names and the metadata of producers may take."""

from __future__ import annotations

import pytest

from broker.limits.producer_bytes import ProducerBytes, producer_bytes
from protocol.errors import TooManyRequests


def test_a_connection_has_a_quarter_and_all_have_the_whole():
    held = ProducerBytes(100)
    held.take("a", 20)
    held.take("a", 5)
    with pytest.raises(TooManyRequests, match="this connection take 25 bytes"):
        held.take("a", 1)
    for connection in "bcd":
        held.take(connection, 25)
    with pytest.raises(TooManyRequests, match="all producers take 100 bytes"):
        held.take("e", 1)
    held.give_back("a", 20)
    held.take("e", 20)
    for connection, size in (("a", 5), ("b", 25), ("c", 25), ("d", 25), ("e", 20)):
        held.give_back(connection, size)
    assert (held.bytes_held, held._by_connection) == (0, {})


def test_bytes_are_those_of_utf_8():
    assert producer_bytes("é", {"k": "v", "ké": "vé"}) == 2 + 2 + 6
