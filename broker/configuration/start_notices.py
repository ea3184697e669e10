"""Notices to the operator about a configuration, before the first client connects. Pure.

One sentence each: dangers that a key causes, and keys that are set but have no effect in this mode.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Final

from bookie.config import BookieConfig
from broker.configuration.config_keys import access_notice
from broker.ground.config import DEFAULT_CONFIG
from broker.tenancy.policies.persistence import persistence_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.ground.config import BrokerConfig

_OF_THE_BOOKIES_STORAGE: Final = frozenset(field.name for field in fields(BookieConfig))
_OF_THE_BOOKIES_PORT: Final = frozenset(
    {"nettyMaxFrameSizeBytes", "maxBatchReadSize", "bookieMaxConnections"}
)


def start_notices(config: BrokerConfig, *, in_memory: bool) -> list[str]:
    """Sentences for the log, the most serious first."""
    access = access_notice(config)
    notices = [access] if access else []
    if config.authenticationEnabled and config.bookiePort >= 0:
        notices.append(
            "authenticationEnabled=true does not protect bookiePort: everyone who can connect to"
            f" that port at {config.bindAddress} can read all entries"
        )
    if not config.journalSyncData and not in_memory:
        notices.append(
            "journalSyncData=false: a power failure loses messages that were acknowledged"
        )
    ensemble_size = persistence_of(config).ensemble_size
    if ensemble_size > 1:
        notices.append(
            f"managedLedgerDefaultEnsembleSize={ensemble_size} counts "
            "as 1: standalone has one bookie, so there is one copy of every message"
        )
    if in_memory:
        ignored = _changed(config, _OF_THE_BOOKIES_STORAGE)
        if ignored:
            notices.append(f"without effect, because nothing is stored (--in-memory): {ignored}")
    if config.bookiePort < 0:
        ignored = _changed(config, _OF_THE_BOOKIES_PORT)
        if ignored:
            notices.append(f"without effect, because bookiePort is off: {ignored}")
    if config.exposeConsumerLevelMetricsInPrometheus and (
        not config.exposeTopicLevelMetricsInPrometheus
    ):
        notices.append(
            "exposeConsumerLevelMetricsInPrometheus has no effect without "
            "exposeTopicLevelMetricsInPrometheus"
        )
    return notices


def _changed(config: BrokerConfig, keys: Iterable[str]) -> str:
    """The keys of a group that do not have their default, as a list to print."""
    names = [
        field.name
        for field in fields(config)
        if field.name in keys and getattr(config, field.name) != getattr(DEFAULT_CONFIG, field.name)
    ]
    return ", ".join(names)
