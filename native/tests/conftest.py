"""Both forms of each function: `native.pure`, and the extension, built for these tests."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import pkgutil
import shutil
from typing import TYPE_CHECKING

import pytest

from native import pure
from native.build import MODULE, SANITIZERS, SOURCE_DIRECTORY, build

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

PURE = {
    part.name: importlib.import_module(f"native.pure.{part.name}")
    for part in pkgutil.iter_modules(pure.__path__)
}
"""The twins, by the name of the part; a part of this name has one file of tests."""


@pytest.fixture(scope="session")
def extension(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("no C compiler")
    flags = SANITIZERS if os.environ.get("VELA_SANITIZED") == "1" else ()
    before = os.getcwd()
    os.chdir(SOURCE_DIRECTORY.parent.parent)
    try:
        path: Path | None = build(tmp_path_factory.mktemp("native"), flags)
    finally:
        os.chdir(before)
    if path is None:
        pytest.skip("the extension is not made for this processor")
    loader = importlib.machinery.ExtensionFileLoader(MODULE, str(path))
    spec = importlib.util.spec_from_loader(MODULE, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(params=["pure", "extension"])
def native(request: pytest.FixtureRequest) -> ModuleType:
    """The functions of the part that the test's file is named after."""
    if request.param == "extension":
        return request.getfixturevalue("extension")
    return PURE[request.path.stem.removeprefix("test_")]
