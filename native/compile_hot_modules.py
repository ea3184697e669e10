"""`python -m native.compile_hot_modules`: compiles the hot modules with mypyc, and the extension of
`native`. Needs a C compiler.

Skipped when the last build was made from the same sources. The build is complete before its
fingerprint is written, so an interrupted one is never used.
"""

from __future__ import annotations

import compileall
import os
import shutil
import sys

import native.build
from native.hot_modules import (
    BUILD_DIRECTORY,
    FINGERPRINT_FILE,
    GROUP,
    HOT_MODULES,
    ROOMS,
    ROOT,
    fingerprint,
    source_path,
)


def compile_hot_modules() -> None:
    """Build everything again below BUILD_DIRECTORY."""
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    FINGERPRINT_FILE.unlink(missing_ok=True)
    shutil.rmtree(BUILD_DIRECTORY, ignore_errors=True)
    os.chdir(ROOT)
    sources = [str(source_path(module).relative_to(ROOT)) for module in HOT_MODULES]
    extensions = mypycify(
        sources, opt_level="2", group_name=GROUP, target_dir=str(BUILD_DIRECTORY / "c")
    )
    extensions += native.build.extensions()
    command = build_ext(Distribution({"name": GROUP, "ext_modules": extensions}))
    command.build_lib = str(BUILD_DIRECTORY)
    command.build_temp = str(BUILD_DIRECTORY / "objects")
    command.ensure_finalized()
    command.run()


def compile_to_bytecode() -> None:
    """Translate what has changed of the other modules to Python's bytecode, also where the
    environment forbids the interpreter to write it (PYTHONDONTWRITEBYTECODE): without it a start
    takes twice the time."""
    for room in ROOMS:
        compileall.compile_dir(ROOT / room, quiet=1)


def main() -> int:
    """Exit status 0 also without a C compiler: the broker then runs from its sources."""
    compile_to_bytecode()
    wanted = fingerprint()
    if FINGERPRINT_FILE.is_file() and FINGERPRINT_FILE.read_text() == wanted:
        return 0
    if shutil.which(os.environ.get("CC", "cc")) is None:
        print("no C compiler: Vela runs from its sources", file=sys.stderr)
        return 0
    compile_hot_modules()
    FINGERPRINT_FILE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
