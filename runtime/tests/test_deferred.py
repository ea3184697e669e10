"""Modules that are loaded with their first use, each in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from runtime.deferred import defer

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

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


def test_a_part_of_a_package_comes_without_the_rest() -> None:
    use = "from runtime.deferred import take_part; take_part('crc32c', '_crc32c')"
    look = "'importlib.metadata' in sys.modules, crc32c(b'123456789') == 0xE3069283"
    assert said(f"{use}; from crc32c import crc32c; print({look})") == "False True"


def test_what_a_part_has_not_comes_from_the_package() -> None:
    use = "from runtime.deferred import take_part; take_part('crc32c', '_crc32c')"
    assert said(f"{use}; import crc32c; print(crc32c.__version__[0].isdigit())") == "True"


@pytest.mark.parametrize("part", ["_no_such_module", "ext.none"])
def test_a_package_without_the_part_is_imported_as_ever(part: str) -> None:
    use = f"from runtime.deferred import take_part; take_part('crc32c', '{part}')"
    assert said(f"{use}; from crc32c import crc32c; print(crc32c(b'') == 0)") == "True"


def test_threads_that_ask_at_once_get_the_same_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(50):
            name = f"deferred_by_threads_{number}"
            (tmp_path / f"{name}.py").write_text("value = object()\n")
            defer(name)
            stand_in = sys.modules[name]
            start = Barrier(6)

            def ask(stand_in: ModuleType = stand_in, start: Barrier = start) -> object:
                start.wait()
                return stand_in.value

            with ThreadPoolExecutor(6) as threads:
                values = [each.result() for each in [threads.submit(ask) for _ in range(6)]]
            assert set(values) == {sys.modules.pop(name).value}
    finally:
        sys.setswitchinterval(before)
