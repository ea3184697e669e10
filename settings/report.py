"""Tells the user what became of the settings: a stock file causes a few lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from settings.reading import LoadedConfig
    from settings.rules import Config

log = structlog.get_logger()


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
