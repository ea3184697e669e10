"""Builds a wheel with the compiled hot modules, which pyproject.toml alone cannot describe.

With VELA_WHEEL=compiled in the environment (`make wheel`) the result of `make compile` goes into
the wheel, in `vela_compiled`, where `native.hot_modules` looks for it; the wheel then fits this
interpreter and platform only. Without it (`pip install .`) the wheel is pure Python.
"""

import os
import shutil
import sys
import tomllib
from pathlib import Path

from setuptools import Distribution, find_packages, setup
from setuptools.command.build_py import build_py

TREE = Path(__file__).resolve().parent


class CompiledDistribution(Distribution):
    """Not pure, although no extension module is built here."""

    def has_ext_modules(self) -> bool:
        """Whether the wheel is tied to an interpreter and a platform."""
        return True


class BuildWithCompiledModules(build_py):
    """Adds the extension modules of `make compile` to the Python modules."""

    def run(self) -> None:
        """Raises: SystemExit: there is no build of these sources."""
        super().run()
        sys.path.insert(0, str(TREE))
        from native.hot_modules import (
            BUILD_DIRECTORY,
            FINGERPRINT_FILE,
            WHEEL_DIRECTORY,
            fingerprint,
        )

        if not FINGERPRINT_FILE.is_file() or FINGERPRINT_FILE.read_text() != fingerprint():
            sys.exit("build/compiled was not made from these sources: run `make compile`")
        target = Path(self.build_lib) / WHEEL_DIRECTORY
        shutil.rmtree(target, ignore_errors=True)
        for extension in sorted(BUILD_DIRECTORY.rglob("*.so")):
            place = target / extension.relative_to(BUILD_DIRECTORY)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(extension, place)
        shutil.copyfile(FINGERPRINT_FILE, target / FINGERPRINT_FILE.name)


def packages() -> list[str]:
    """Those of the rooms that are part of the product, without tests."""
    vela = tomllib.loads((TREE / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["vela"]
    rooms = [room for room in vela["rooms"] if room not in vela["not-packed"]]
    return find_packages(
        str(TREE),
        include=[pattern for room in rooms for pattern in (room, f"{room}.*")],
        exclude=["*.tests", "*.tests.*", "*.testing", "*.testing.*"],
    )


if os.environ.get("VELA_WHEEL") == "compiled":
    setup(
        packages=packages(),
        distclass=CompiledDistribution,
        cmdclass={"build_py": BuildWithCompiledModules},
    )
else:
    setup(packages=packages())
