"""Tokens that are kept out of plans and lists of processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.credentials import sink_options_with_token, source_options_with_token
from pipeline.options import InvalidOption

if TYPE_CHECKING:
    from pathlib import Path

PLUGIN = {
    "topic": "t",
    "pulsar.client.authPluginClassName": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
}


def token_of(params: str) -> str:
    given = {**PLUGIN, "pulsar.client.authParams": params}
    options = source_options_with_token(given, streaming=False)
    assert sink_options_with_token(given).connection == options.connection
    return options.connection.token


def test_a_token_can_be_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    path.write_text("secret\n")

    assert token_of(f"file:{path}") == "secret"
    assert token_of(path.as_uri()) == "secret"


def test_a_token_can_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CITY_TOKEN", "secret")

    assert token_of("env:CITY_TOKEN") == "secret"


def test_a_token_that_is_not_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CITY_TOKEN", raising=False)
    (tmp_path / "empty").write_text("\n")

    with pytest.raises(InvalidOption, match="environment variable CITY_TOKEN is not set"):
        token_of("env:CITY_TOKEN")
    with pytest.raises(InvalidOption, match=r"the token cannot be read from .*away"):
        token_of(f"file:{tmp_path}/away")
    with pytest.raises(InvalidOption, match="empty is empty"):
        token_of(f"file:{tmp_path}/empty")
