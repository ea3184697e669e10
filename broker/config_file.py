"""Reads files, variables and options into a BrokerConfig, by the broker's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config_keys import BROKER_KEYS
from settings import reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from broker.config import BrokerConfig
    from settings.reading import LoadedConfig, Setting


def load_config(
    files: Iterable[Path],
    environment: Mapping[str, str],
    overrides: Mapping[str, object] | None = None,
    *,
    strict: bool = False,
) -> LoadedConfig[BrokerConfig]:
    """See `settings.reading.load_config`. Raises: ConfigError."""
    return reading.load_config(BROKER_KEYS, files, environment, overrides, strict=strict)


def build_config(
    settings: Iterable[Setting], overrides: Mapping[str, object], *, strict: bool = False
) -> LoadedConfig[BrokerConfig]:
    """See `settings.reading.build_config`. Raises: ConfigError."""
    return reading.build_config(BROKER_KEYS, settings, overrides, strict=strict)
