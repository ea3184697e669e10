"""What the managed ledger of a topic does of the policies of the topic. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from broker.managed_ledger.config import LedgerPolicies, RetentionPolicy
from ledgers.replication import Replication

if TYPE_CHECKING:
    from broker.tenancy.policies.effective import EffectivePolicies


def ledger_policies_of(policies: EffectivePolicies) -> LedgerPolicies:
    """What the topic's ledger does of its policies. The same object for equal ones, of which a
    broker has a few, and as many topics as it has."""
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
