"""The policies of a topic that its managed ledger carries out. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from broker.managed_ledger.config import LedgerPolicies, RetentionPolicy
from ledgers.replication import Replication

if TYPE_CHECKING:
    from broker.tenancy.policies.effective import EffectivePolicies


def ledger_policies_of(policies: EffectivePolicies) -> LedgerPolicies:
    """The policies that the topic's ledger carries out. Equal ones are the same object: a broker
    has few of them and many topics."""
    stored = policies.persistence
    return _shared(
        LedgerPolicies(
            retention=RetentionPolicy(
                time_minutes=policies.retention_minutes, size_mb=policies.retention_megabytes
            ),
            replication=Replication(
                stored.ensemble_size,
                stored.write_quorum_size,
                stored.ack_quorum_size,
                policies.bookie_groups,
            ),
            mark_delete_rate_max=stored.mark_delete_rate_max,
        )
    )


@lru_cache(maxsize=64)
def _shared(policies: LedgerPolicies) -> LedgerPolicies:
    return policies
