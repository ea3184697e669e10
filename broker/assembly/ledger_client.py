"""The configuration of the ledger client from that of the broker."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from broker.tenancy.policies.persistence import persistence_of
from ledgers.client import LedgerClientConfig
from protocol.bookkeeper.digests import DigestType

if TYPE_CHECKING:
    from broker.ground.config import BrokerConfig

_DIGEST_TYPES: Final = {
    "CRC32C": DigestType.CRC32C,
    "CRC32": DigestType.CRC32,
    "MAC": DigestType.HMAC,
    "DUMMY": DigestType.DUMMY,
}


def ledger_client_config(config: BrokerConfig) -> LedgerClientConfig:
    """For one bookie, so that there is one copy of every entry."""
    return LedgerClientConfig(
        digest_type=_DIGEST_TYPES[config.managedLedgerDigestType],
        password=config.managedLedgerPassword.encode(),
    )


def replicating(config: BrokerConfig) -> LedgerClientConfig:
    """The same for several bookies."""
    persistence = persistence_of(config)
    return replace(
        ledger_client_config(config),
        ensemble_size=persistence.ensemble_size,
        write_quorum_size=persistence.write_quorum_size,
        ack_quorum_size=persistence.ack_quorum_size,
    )
