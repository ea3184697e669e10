"""Reads properties files and `PULSAR_PREFIX_<key>` variables into a frozen dataclass of keys.

Files are Java properties as in Pulsar (`settings.properties`). A variable overrides the
files, a later file an earlier one. Every user error ends in one `ConfigError` whose text is the
line to print: the place, the key, the error, the allowed values.

The stock files of real Pulsar and BookKeeper are accepted. A key is of one of these kinds:

- keys with an effect (the fields of the dataclass), under their present or an older name;
- known keys without an effect: counted, and named when their value is not a stock one;
- keys that do not apply to this process: a notice each;
- keys that protect data, with a value that cannot be honoured: refused;
- unknown keys: reported and ignored (Pulsar ignores them silently), or refused when `strict`. A key
  that resembles one for security or durability is taken for a misspelling and always refused.

`settings.rules.KeyRules` says which key is of which kind. Each process makes its own.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, final

import structlog

from settings.kinds import Bounds, Limit, Pattern
from settings.plain_file import read_plain_file
from settings.properties import WrongProperty, parse_properties
from settings.rules import Config, nearest, parse_stock_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from settings.rules import KeyRules, Keys

ENVIRONMENT_PREFIX: Final = "PULSAR_PREFIX_"
_KNOWN_KEYS_FILE: Final = Path(__file__).with_name("upstream_keys.conf")
FILE_BYTES_MAX: Final = 4 * 1024 * 1024
"""A stock file has 100 KB."""
_TRUE: Final = frozenset({"true"})
_FALSE: Final = frozenset({"false"})


_SECRET: Final = re.compile(
    r"password|secret|token|credential|basicAuthConf|AuthenticationParameters", re.IGNORECASE
)
"""Keys whose values are not logged."""
log = structlog.get_logger()


class ConfigError(Exception):
    """A configuration cannot be used. The text is one line for the user."""


@final
@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One `key=value` as written, and its place."""

    key: str
    value: str
    source: str

    @property
    def shown_value(self) -> str:
        """The value in the form in which it may be logged."""
        return "..." if _SECRET.search(self.key) else self.value


@final
@dataclasses.dataclass(frozen=True, slots=True)
class Notice:
    """A notice about an accepted setting."""

    setting: Setting
    text: str


@final
@dataclasses.dataclass(frozen=True, slots=True)
class LoadedConfig(Generic[Config]):
    """The configuration and the notices for the user."""

    config: Config
    notices: tuple[Notice, ...]
    """Settings whose effect may differ from the expectation of their author."""
    without_effect_count: int
    """Known keys of upstream without effect here, including those with stock values."""
    unknown: tuple[str, ...]
    """Keys unknown to both upstream and Vela that resemble no other key."""


def load_config(
    rules: KeyRules[Config],
    files: Iterable[Path],
    environment: Mapping[str, str],
    overrides: Mapping[str, object] | None = None,
    *,
    strict: bool = False,
) -> LoadedConfig[Config]:
    """Read `files` in order, then the environment, then already typed `overrides` (the CLI's).

    `strict` refuses unknown keys. Raises: ConfigError.
    """
    settings = [setting for path in files for setting in read_properties(path)]
    settings += environment_settings(environment)
    return build_config(rules, settings, overrides or {}, strict=strict)


def read_properties(path: Path) -> list[Setting]:
    """The settings of one properties file.

    Raises: ConfigError: not readable, or a line that is no setting.
    """
    try:
        data = read_plain_file(path, FILE_BYTES_MAX)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from error
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"cannot read {path}: it has more than {FILE_BYTES_MAX} bytes")
    try:
        found = parse_properties(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {path}: it is not UTF-8 text") from error
    except WrongProperty as error:
        raise ConfigError(f"{path}:{error.line}: {error}") from error
    return [Setting(each.key, each.value, f"{path}:{each.line}") for each in found]


def environment_settings(environment: Mapping[str, str]) -> list[Setting]:
    """The settings given as `PULSAR_PREFIX_<key>` variables, in the order of their names."""
    return [
        Setting(name.removeprefix(ENVIRONMENT_PREFIX), value.strip(), name)
        for name, value in sorted(environment.items())
        if name.startswith(ENVIRONMENT_PREFIX)
    ]


def build_config(
    rules: KeyRules[Config],
    settings: Iterable[Setting],
    overrides: Mapping[str, object],
    *,
    strict: bool = False,
) -> LoadedConfig[Config]:
    """Type and check settings. The last value of a key wins; a blank one means the default, except
    for a key that may be off (None).

    Raises: ConfigError.
    """
    hints = _key_types(rules.config_type)
    last = {setting.key: setting for setting in settings}
    values: dict[str, Any] = {}
    sorter = _UnusedSettings(rules, [*hints, *rules.aliases], strict)
    for setting in last.values():
        key = _current_name(rules, setting, last)
        if key is None:
            continue
        if key not in hints or key in rules.refused:
            sorter.add(setting)
        elif setting.value:
            values[key] = _parse(setting, hints[key])
        elif _may_be_off(hints[key]):
            values[key] = None
    values.update({key: value for key, value in overrides.items() if value is not None})
    try:
        config = rules.config_type(**values)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    violation = rules.check_together(config)
    if violation:
        raise ConfigError(violation)
    sorter.judge_excused(config)
    return LoadedConfig(
        config, tuple(sorter.notices), sorter.without_effect_count, tuple(sorter.unknown)
    )


def as_properties(config: Keys) -> dict[str, str]:
    """Every key with its value in Pulsar's text form (`brokers/configuration/runtime`)."""
    return {field.name: _text(getattr(config, field.name)) for field in dataclasses.fields(config)}


def typed_values(config: Keys) -> dict[str, Any]:
    """Every key with its typed value."""
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


def _current_name(
    rules: KeyRules[Config], setting: Setting, given: Mapping[str, Setting]
) -> str | None:
    """The key that a setting sets; None: another setting of the same key overrides it."""
    alias = rules.aliases.get(setting.key)
    if alias is not None:
        current = given.get(alias.key)
        counts = _is_given(setting) and (alias.wins or current is None or not current.value)
        return alias.key if counts else None
    for older, alias in rules.aliases.items():
        if alias.key == setting.key and alias.wins and older in given and _is_given(given[older]):
            return None
    return setting.key


def _is_given(older: Setting) -> bool:
    return bool(older.value) and not older.value.startswith("-")


@final
class _UnusedSettings:
    """Sorts the settings of keys without effect."""

    def __init__(self, rules: KeyRules[Any], own_names: list[str], strict: bool) -> None:
        self._rules = rules
        self._known = parse_stock_values(_KNOWN_KEYS_FILE.read_text(encoding="utf-8"))
        self._names = [*own_names, *self._known]
        self._strict = strict
        self.notices: list[Notice] = []
        self._excused: list[Setting] = []
        self.unknown: list[str] = []
        self.without_effect_count = 0

    def add(self, setting: Setting) -> None:
        """Raises: ConfigError."""
        stock = self._known.get(setting.key)
        if stock is None:
            self._add_unknown(setting)
            return
        self.without_effect_count += 1
        if setting.value in stock or not setting.value:
            return
        reason = self._rules.refused.get(setting.key)
        if reason is not None:
            if setting.key not in self._rules.excused:
                raise _unsupported(setting, reason)
            self._excused.append(setting)
            return
        reason = self._rules.not_applicable.get(setting.key)
        self.notices.append(
            Notice(setting, f"has no effect: {reason}" if reason else "has no effect")
        )

    def judge_excused(self, config: object) -> None:
        """Raises: ConfigError: the whole configuration does not make a refused value harmless."""
        for setting in self._excused:
            excuse = self._rules.excused[setting.key](config)
            if not excuse:
                raise _unsupported(setting, self._rules.refused[setting.key])
            self.notices.append(Notice(setting, excuse))

    def _add_unknown(self, setting: Setting) -> None:
        like = nearest(setting.key, self._names)
        told = f"unknown key {setting.key!r}"
        if like is not None:
            told += f" (did you mean {like!r}?)"
        if like is not None and self._rules.is_critical(like):
            raise ConfigError(
                f"{setting.source}: {told}: refused, because security or durability depends on "
                f"{like}; correct or remove the line"
            )
        if self._strict:
            raise ConfigError(f"{setting.source}: {told}: refused, because of --strict-config")
        if like is None:
            self.unknown.append(setting.key)
        else:
            self.notices.append(Notice(setting, f"unknown key, ignored (did you mean {like!r}?)"))


def _unsupported(setting: Setting, reason: str) -> ConfigError:
    return ConfigError(
        f"{setting.source}: {setting.key}={setting.value} is not supported: {reason}"
    )


def _key_types(config_type: type[Keys]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(config_type)}
    return {
        name: hint
        for name, hint in typing.get_type_hints(config_type, include_extras=True).items()
        if name in names
    }


def _may_be_off(hint: Any) -> bool:  # noqa: ANN401 - a typing form
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    return isinstance(hint, types.UnionType)


def _parse(setting: Setting, hint: Any) -> object:  # noqa: ANN401 - a typing form
    bounds: Bounds | Limit | Pattern | None = None
    if typing.get_origin(hint) is typing.Annotated:
        hint, bounds = typing.get_args(hint)
    if _may_be_off(hint):
        hint = typing.get_args(hint)[0]
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
    if isinstance(bounds, Limit):
        return max(0, _number(setting, hint, None))
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


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return "" if value is None else str(value)


def report_settings(loaded: LoadedConfig[Config], start_notices: Iterable[str]) -> None:
    """Log settings without the effect that their author may expect, and other notices."""
    for notice in loaded.notices:
        setting = notice.setting
        log.warning(notice.text, key=setting.key, value=setting.shown_value, source=setting.source)
    if loaded.unknown:
        log.warning("unknown keys, ignored", keys=", ".join(loaded.unknown))
    for text in start_notices:
        log.warning(text)
    if loaded.without_effect_count:
        log.info(
            "known keys of Pulsar that have no effect in Vela", count=loaded.without_effect_count
        )
