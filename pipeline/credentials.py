"""Reads the token that options only point to, on the driver and once per query.

A token in the options of a query is part of Spark's plan, and one in the arguments of a job is in
the list of processes. `file:PATH` and `env:NAME` are the forms that Pulsar's clients know.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pipeline.options import Connection, InvalidOption, sink_options, source_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.options import SinkOptions, SourceOptions


def with_token(connection: Connection) -> Connection:
    """The connection with its token in it.

    Raises: InvalidOption: there is no token where it should be.
    """
    kind, _, where = connection.token_source.partition(":")
    if not kind:
        return connection
    if kind == "env":
        token = os.environ.get(where, "")
        missing = f"the environment variable {where} is not set"
    else:
        path = Path(unquote(where.removeprefix("//")))
        missing = f"{path} is empty"
        try:
            token = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidOption(f"the token cannot be read from {path}: {error}") from None
    if not token.strip():
        raise InvalidOption(f"there is no token: {missing}")
    return replace(connection, token=token.strip(), token_source="")


def source_options_with_token(given: Mapping[str, str], *, streaming: bool | None) -> SourceOptions:
    """As `pipeline.options.source_options`. Raises: InvalidOption."""
    options = source_options(given, streaming=streaming)
    return replace(options, connection=with_token(options.connection))


def sink_options_with_token(given: Mapping[str, str]) -> SinkOptions:
    """As `pipeline.options.sink_options`. Raises: InvalidOption."""
    options = sink_options(given)
    return replace(options, connection=with_token(options.connection))
