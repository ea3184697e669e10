"""Modules that are loaded with their first use, each in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADED = "'asyncio.base_events' in sys.modules"


def said(program: str) -> str:
    """What a program prints that has deferred asyncio."""
    prepared = f"import sys; from runtime.deferred import defer; defer('asyncio'); {program}"
    done = subprocess.run(
        [sys.executable, "-c", prepared], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def test_an_import_of_a_deferred_module_loads_nothing() -> None:
    assert said(f"import asyncio; import asyncio as other; print({LOADED})") == "False"


@pytest.mark.parametrize(
    "use",
    [
        "import asyncio; asyncio.sleep",
        "from asyncio import sleep",
        "import asyncio.events",
        "from asyncio.events import get_event_loop_policy",
    ],
)
def test_the_first_use_loads_it(use: str) -> None:
    assert said(f"{use}; print({LOADED})") == "True"


def test_an_early_import_keeps_working_after_the_module_is_loaded() -> None:
    use = "import asyncio as early; early.sleep; import asyncio"
    assert said(f"{use}; print(early.sleep is asyncio.sleep)") == "True"


def test_a_module_that_is_loaded_stays() -> None:
    assert said("import json; defer('json'); print(json is sys.modules['json'])") == "True"


def test_what_a_module_has_not_is_an_attribute_error() -> None:
    assert said("import asyncio; print(hasattr(asyncio, 'no such thing'))") == "False"
