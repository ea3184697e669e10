"""Configuration keys that can be changed while the broker runs, like Pulsar's dynamic
configuration.

Values are stored in the metadata store as given and read back unchanged. A value that is valid for
its key overrides the configuration files; an invalid one has no effect. Only keys that are read at
every use can be dynamic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from broker.config_file import build_config
from settings.reading import ConfigError, Setting, typed_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.config import BrokerConfig

log = structlog.get_logger()

DYNAMIC_KEYS: Final = (
    "allowAutoSubscriptionCreation",
    "allowAutoTopicCreation",
    "allowAutoTopicCreationType",
    "brokerDeleteInactiveTopicsMode",
    "defaultNumPartitions",
    "forceDeleteNamespaceAllowed",
    "forceDeleteTenantAllowed",
    "isSchemaValidationEnforced",
    "maxConsumersPerTopic",
    "maxProducersPerTopic",
    "maxSubscriptionsPerTopic",
    "maxTopicsPerNamespace",
    "schemaCompatibilityStrategy",
)


def with_dynamic(config: BrokerConfig, dynamic: Mapping[str, str]) -> BrokerConfig:
    """The configuration of the files with the dynamic values over it."""
    values = typed_values(config)
    for key, value in dynamic.items():
        if key not in DYNAMIC_KEYS:
            continue
        try:
            changed = build_config([Setting(key, value, "dynamic configuration")], {}).config
        except ConfigError as error:
            log.warning("dynamic configuration has no effect", reason=str(error))
            continue
        values[key] = getattr(changed, key)
    return type(config)(**values)
