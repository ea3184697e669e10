"""Builds a wheel with the compiled hot modules, which pyproject.toml alone cannot describe.

With VELA_WHEEL=compiled in the environment (`make wheel`) the result of `make compile` goes into
the wheel, in `vela_compiled`, where `broker.hot_modules` looks for it; the wheel then fits this
interpreter and platform only. Without it (`pip install .`) the wheel is pure Python.
"""

import os
import shutil
import sys
from pathlib import Path

from setuptools import Distribution, setup
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
        from broker.hot_modules import (
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


if os.environ.get("VELA_WHEEL") == "compiled":
    setup(distclass=CompiledDistribution, cmdclass={"build_py": BuildWithCompiledModules})
else:
    setup()
