"""What a client asks for when it creates a producer.

Apart from `Producer` itself, which is compiled: mypyc does not know this form of dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping

SHARED = 0
EXCLUSIVE = 1
WAIT_FOR_EXCLUSIVE = 2
EXCLUSIVE_WITH_FENCING = 3
"""ProducerAccessMode numbers."""

ACCESS_MODE_NAMES = {
    SHARED: "Shared",
    EXCLUSIVE: "Exclusive",
    WAIT_FOR_EXCLUSIVE: "WaitForExclusive",
    EXCLUSIVE_WITH_FENCING: "ExclusiveWithFencing",
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRequest:
    """What CommandProducer asks for, apart from the topic."""

    producer_id: int
    name: str
    """Chosen by the broker when the client gave none."""
    user_provided_name: bool
    epoch: int = 0
    access_mode: int = SHARED
    topic_epoch: int | None = None
    """What an exclusive producer was given before; older than the topic's means fenced."""
    encrypted: bool = False
    schema_version: bytes = b""
    metadata: Mapping[str, str] = field(default_factory=dict)
    txn_enabled: bool = False
