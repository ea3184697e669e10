"""The request of a client to create a producer.

Separate from `Producer`, which is compiled: mypyc does not support this form of dataclass.
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
    """The parameters of CommandProducer, without the topic."""

    producer_id: int
    name: str
    """Chosen by the broker when the client gave none."""
    user_provided_name: bool
    epoch: int = 0
    access_mode: int = SHARED
    topic_epoch: int | None = None
    """The epoch an exclusive producer was given before; older than the topic's means fenced."""
    encrypted: bool = False
    schema_version: bytes = b""
    metadata: Mapping[str, str] = field(default_factory=dict)
    txn_enabled: bool = False
