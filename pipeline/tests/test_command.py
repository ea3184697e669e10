"""A failure of a job is one line that says what to do."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from pipeline.jobs.command import EXIT_REFUSED, add_server, add_source, parser, run, source_options
from pipeline.options import source_options as read_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest


def _needs_a_package(arguments: Sequence[str]) -> int:
    import_module("package_of_nobody")
    return 0


def test_an_environment_without_spark_is_told_how_to_get_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("archive", _needs_a_package, []) == EXIT_REFUSED

    line = capsys.readouterr().err
    assert line == (
        f"vela pipeline archive: {sys.executable} has no package package_of_nobody: run `make "
        "setup-pipeline`, or install there what requirements-pipeline.lock names\n"
    )


def _options_of(*arguments: str) -> dict[str, str]:
    made = parser("archive", "")
    add_server(made)
    add_source(made)
    return source_options(made.parse_args(["--topic", "t", *arguments]))


def test_a_job_finds_bookies_that_are_named_by_ids() -> None:
    given = read_options(
        _options_of(
            "--read-engine=bookie",
            "--metadata-store-url=zk:127.0.0.1:2181",
            "--metadata-store-config-path=zoo.cfg",
            "--bookie-addresses=bk-0=127.0.0.1:3181",
        ),
        streaming=None,
    )

    assert given.read_engine == "bookie"
    assert given.metadata_store_url == "zk:127.0.0.1:2181"
    assert given.metadata_store_config_path == "zoo.cfg"
    assert given.bookie_addresses.known == {"bk-0": ("127.0.0.1", 3181)}


def test_a_job_names_no_place_of_bookies_that_was_not_given() -> None:
    assert not {"metadataStoreUrl", "metadataStoreConfigPath", "bookieAddresses"} & set(
        _options_of()
    )
