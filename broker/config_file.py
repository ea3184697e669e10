"""Reading configuration: properties files and `PULSAR_PREFIX_<key>` variables into a BrokerConfig.

Files are Java properties as Pulsar uses them: `key=value` lines, `#` comments. A variable overrides
the files, a later file an earlier one. Everything a user can get wrong ends in one `ConfigError`
whose text is the one line to print: where, which key, what is wrong, what is allowed.

A stock `broker.conf`, `standalone.conf` or `bookkeeper.conf` of real Pulsar must be accepted, and a
misspelt key must not. So the keys of real Pulsar that Vela does not act on are listed, with their
stock values, in `pulsar_keys.conf`: they are accepted, reported by one line with their number, and
by one line each where the value is not the stock one. Some of them change what a user may rely on
(authentication, TLS): those are refused unless they keep their stock value.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from broker.config import Bounds, BrokerConfig, Pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ENVIRONMENT_PREFIX: Final = "PULSAR_PREFIX_"
_KNOWN_KEYS_FILE: Final = Path(__file__).with_name("pulsar_keys.conf")
_TRUE: Final = frozenset({"true"})
_FALSE: Final = frozenset({"false"})
_RENAMED: Final = {
    "journalDirectory": "journalDirectories",
    "brokerServicePurgeInactiveFrequencyInSeconds": "brokerDeleteInactiveTopicsFrequencySeconds",
    "managedLedgerMaxUnackedRangesToPersistInZooKeeper": (
        "managedLedgerMaxUnackedRangesToPersistInMetadataStore"
    ),
}
"""Older names of keys that Pulsar still reads; ignored where the value is blank or negative."""


class ConfigError(Exception):
    """A configuration cannot be used; the text is one line for the user."""


@final
@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One `key=value` as somebody wrote it, and where."""

    key: str
    value: str
    source: str


@final
@dataclasses.dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The configuration and what the user should be told about it."""

    config: BrokerConfig
    without_effect: tuple[Setting, ...]
    """Known keys of Pulsar that Vela does not act on and whose value is not the stock one."""
    without_effect_count: int
    """All known keys that Vela does not act on, those with stock values included."""


def load_config(
    files: Iterable[Path],
    environment: Mapping[str, str],
    overrides: Mapping[str, object] | None = None,
) -> LoadedConfig:
    """Read `files` in order, then the environment, then already typed `overrides` (the CLI's).

    Raises: ConfigError.
    """
    settings = [setting for path in files for setting in read_properties(path)]
    settings += environment_settings(environment)
    return build_config(settings, overrides or {})


def read_properties(path: Path) -> list[Setting]:
    """The settings of one properties file.

    Raises: ConfigError: not readable, or a line that is no setting.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {path}: it is not UTF-8 text") from error
    settings: list[Setting] = []
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, separator, value = stripped.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"{path}:{number}: expected key=value, found {stripped!r}")
        settings.append(Setting(key.strip(), value.strip(), f"{path}:{number}"))
    return settings


def environment_settings(environment: Mapping[str, str]) -> list[Setting]:
    """The settings given as `PULSAR_PREFIX_<key>` variables, in the order of their names."""
    return [
        Setting(name.removeprefix(ENVIRONMENT_PREFIX), value.strip(), name)
        for name, value in sorted(environment.items())
        if name.startswith(ENVIRONMENT_PREFIX)
    ]


def build_config(settings: Iterable[Setting], overrides: Mapping[str, object]) -> LoadedConfig:
    """Type and check settings; the last one of a key wins, and a blank one means the default.

    Raises: ConfigError.
    """
    hints = _key_types()
    values: dict[str, Any] = {}
    last: dict[str, Setting] = {}
    for setting in settings:
        last[setting.key] = setting
    unused: list[Setting] = []
    for setting in last.values():
        key = _current_name(setting, last)
        if key in hints:
            if setting.value:
                values[key] = _parse(setting, hints[key])
        else:
            unused.append(setting)
    changed = _check_unused(unused)
    values.update({key: value for key, value in overrides.items() if value is not None})
    config = BrokerConfig(**values)
    _check_together(config)
    return LoadedConfig(config, changed, len(unused))


def as_properties(config: BrokerConfig) -> dict[str, str]:
    """Every key with its value as Pulsar would print it (`brokers/configuration/runtime`)."""
    return {field.name: _text(getattr(config, field.name)) for field in dataclasses.fields(config)}


def typed_values(config: BrokerConfig) -> dict[str, Any]:
    """Every key with its typed value."""
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


def _current_name(setting: Setting, given: Mapping[str, Setting]) -> str:
    renamed = _RENAMED.get(setting.key)
    if renamed is None or not setting.value or setting.value.startswith("-"):
        return setting.key
    return setting.key if renamed in given else renamed


def _check_unused(settings: list[Setting]) -> tuple[Setting, ...]:
    """Refuse unknown keys and unsupported values; return the known ones that differ from stock."""
    if not settings:
        return ()
    known = _known_keys()
    changed: list[Setting] = []
    for setting in settings:
        stock = known.get(setting.key)
        if stock is None:
            if setting.key in _RENAMED:
                continue
            raise ConfigError(
                f"{setting.source}: unknown key {setting.key!r}{_suggestion(setting.key, known)}"
            )
        if setting.value in stock or not setting.value:
            continue
        reason = _REFUSED.get(setting.key)
        if reason is not None:
            raise ConfigError(
                f"{setting.source}: {setting.key}={setting.value} is not supported: {reason}"
            )
        changed.append(setting)
    return tuple(changed)


_REFUSED: Final = {
    "authenticationEnabled": "Vela does not authenticate clients yet",
    "authorizationEnabled": "Vela does not authorize clients yet",
    "brokerServicePortTls": "Vela has no TLS listener yet",
    "webServicePortTls": "Vela has no TLS listener yet",
    "tlsEnabled": "Vela has no TLS listener yet",
    "transactionCoordinatorEnabled": "Vela has no transactions yet",
    "journalWriteData": "Vela never acknowledges an entry that is not in the journal",
    "metadataStoreUrl": "Vela keeps its metadata in its own data directory",
    "configurationMetadataStoreUrl": "Vela keeps its metadata in its own data directory",
    "zookeeperServers": "Vela keeps its metadata in its own data directory",
}
"""Keys that a user relies on when they are set: silence would be worse than a refusal."""


def _suggestion(key: str, known: Mapping[str, object]) -> str:
    import difflib

    names = [*(_key_types()), *known]
    by_folded = {name.lower(): name for name in names}
    close = difflib.get_close_matches(key.lower(), by_folded, n=1, cutoff=0.75)
    return f" (did you mean {by_folded[close[0]]!r}?)" if close else ""


def _key_types() -> dict[str, Any]:
    return {
        name: hint
        for name, hint in typing.get_type_hints(BrokerConfig, include_extras=True).items()
        if name in BrokerConfig.__dataclass_fields__
    }


def _known_keys() -> dict[str, frozenset[str]]:
    known: dict[str, frozenset[str]] = {}
    for line in _KNOWN_KEYS_FILE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            key, _, stock = line.partition("=")
            known[key] = frozenset(stock.split("|"))
    return known


def _parse(setting: Setting, hint: Any) -> object:  # noqa: ANN401 - a typing form
    bounds: Bounds | Pattern | None = None
    if typing.get_origin(hint) is typing.Annotated:
        hint, bounds = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        choices = typing.get_args(hint)
        if setting.value not in choices:
            raise _invalid(setting, "one of " + ", ".join(choices))
        return setting.value
    if typing.get_origin(hint) is tuple:
        return tuple(part.strip() for part in setting.value.split(",") if part.strip())
    if hint is bool:
        folded = setting.value.lower()
        if folded not in _TRUE | _FALSE:
            raise _invalid(setting, "true or false")
        return folded in _TRUE
    if isinstance(bounds, Pattern):
        _check_pattern(setting)
        return setting.value
    if hint is str:
        return setting.value
    assert hint in (int, float), f"{setting.key} has a type that is not parsed: {hint}"
    return _number(setting, hint, bounds)


def _check_pattern(setting: Setting) -> None:
    try:
        re.compile(setting.value)
    except re.error as error:
        raise _invalid(setting, f"a regular expression, but {error}") from error


def _number(setting: Setting, kind: type[int] | type[float], bounds: Bounds | None) -> float:
    allowed = "a whole number" if kind is int else "a number"
    if bounds is not None and bounds.minimum is not None:
        allowed += f" of at least {bounds.minimum:g}"
        if bounds.maximum is not None:
            allowed += f" and at most {bounds.maximum:.10g}"
    try:
        value = kind(setting.value)
    except ValueError:
        raise _invalid(setting, allowed) from None
    too_low = bounds is not None and bounds.minimum is not None and not value >= bounds.minimum
    too_high = bounds is not None and bounds.maximum is not None and not value <= bounds.maximum
    if too_low or too_high:
        raise _invalid(setting, allowed)
    return value


def _invalid(setting: Setting, allowed: str) -> ConfigError:
    return ConfigError(
        f"{setting.source}: invalid value {setting.value!r} for {setting.key}: expected {allowed}"
    )


def _check_together(config: BrokerConfig) -> None:
    """Rules between keys."""
    ensemble = config.managedLedgerDefaultEnsembleSize
    write = config.managedLedgerDefaultWriteQuorum
    ack = config.managedLedgerDefaultAckQuorum
    if not ensemble >= write >= ack:
        raise ConfigError(
            "managedLedgerDefaultEnsembleSize >= managedLedgerDefaultWriteQuorum >= "
            f"managedLedgerDefaultAckQuorum must hold, found {ensemble}, {write}, {ack}"
        )
    if config.minorCompactionThreshold > config.majorCompactionThreshold:
        raise ConfigError(
            "minorCompactionThreshold must not be above majorCompactionThreshold, found "
            f"{config.minorCompactionThreshold:g} and {config.majorCompactionThreshold:g}"
        )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    assert not isinstance(value, types.NoneType)
    return str(value)
