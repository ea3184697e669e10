"""How `vela ledger` reaches a cluster that demands TLS or credentials: keys of a bookkeeper.conf.

The option is read by the command line before the command runs, and is the same for all of them, so
it is kept with the command's context.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import click

from ledgers.remote.tls_keys import PROTECTING, ClientTlsConfig, violated_client_rule
from runtime.command_line import FilePath
from settings.rules import KeyRules

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ledgers.remote.network import Connect

_PLACE: Final = "inspection.access"


@final
@dataclass(frozen=True, kw_only=True)
class AccessConfig(ClientTlsConfig):
    """The keys. All others of the file belong to other processes."""

    metadataStoreConfigPath: str = ""


ACCESS_KEYS: Final = KeyRules(
    config_type=AccessConfig,
    aliases={},
    refused={},
    not_applicable={},
    protecting=PROTECTING | {"metadataStoreConfigPath"},
    check_together=violated_client_rule,
)


def access_option(function: Callable[..., None]) -> Callable[..., None]:
    """The option that names the file."""
    return click.option(
        "--config",
        type=FilePath(),
        multiple=True,
        expose_value=False,
        callback=_keep,
        help="A bookkeeper.conf: TLS to bookies, and TLS and credentials for ZooKeeper.",
    )(function)


def _keep(context: click.Context, _option: click.Parameter, paths: tuple[Path, ...]) -> None:
    context.meta[_PLACE] = paths


def access() -> AccessConfig:
    """The access of the command that runs. Raises: ConfigError."""
    context = click.get_current_context(silent=True)
    paths = () if context is None else context.meta.get(_PLACE, ())
    if not paths:
        return AccessConfig()
    from settings.reading import load_config

    return load_config(ACCESS_KEYS, paths, {}).config


def secured() -> Callable[[Connect], Connect] | None:
    """Makes connections to bookies secure. Raises: ConfigError, UnusableTls."""
    from ledgers.remote.tls_keys import secured as secured_by

    return secured_by(access())
