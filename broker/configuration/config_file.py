"""Reads files, variables and options into a BrokerConfig, by the broker's rules."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from broker.configuration.config_keys import BROKER_KEYS
from settings import reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from broker.ground.config import BrokerConfig
    from settings.reading import LoadedConfig, Setting

_PREFIX_KEY: Final = "tokenSettingPrefix"
_WITH_PREFIX: Final = (
    "tokenSecretKey",
    "tokenPublicKey",
    "tokenPublicAlg",
    "tokenAuthClaim",
    "tokenAudienceClaim",
    "tokenAudience",
    "tokenAllowedClockSkewSeconds",
)


def load_config(
    files: Iterable[Path],
    environment: Mapping[str, str],
    overrides: Mapping[str, object] | None = None,
    *,
    strict: bool = False,
) -> LoadedConfig[BrokerConfig]:
    """See `settings.reading.load_config`. Raises: ConfigError."""
    settings = [setting for path in files for setting in reading.read_properties(path)]
    settings += reading.environment_settings(environment)
    return build_config(settings, overrides or {}, strict=strict)


def build_config(
    settings: Iterable[Setting], overrides: Mapping[str, object], *, strict: bool = False
) -> LoadedConfig[BrokerConfig]:
    """See `settings.reading.build_config`. Raises: ConfigError."""
    plain = _without_prefix(list(settings))
    return reading.build_config(BROKER_KEYS, plain, overrides, strict=strict)


def _without_prefix(settings: list[Setting]) -> list[Setting]:
    """With `tokenSettingPrefix=my` the key `mytokenSecretKey` counts, and `tokenSecretKey` does
    not, as in Pulsar."""
    prefix = ""
    for setting in settings:
        prefix = setting.value if setting.key == _PREFIX_KEY else prefix
    if not prefix:
        return settings
    plain = {f"{prefix}{key}": key for key in _WITH_PREFIX}
    return [
        replace(setting, key=plain.get(setting.key, setting.key))
        for setting in settings
        if setting.key not in _WITH_PREFIX
    ]
