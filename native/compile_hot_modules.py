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
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from setuptools.command.build_ext import build_ext


def compile_hot_modules() -> None:
    """Build everything again below BUILD_DIRECTORY.

    Each module becomes a file of C of its own, so that all processors compile at once: of one file
    with all of them, a compiler takes three times as long, and one processor. Functions that
    modules call in each other are hidden outside of the library, so that calls stay direct. Without
    symbols for a debugger the code is the same, and made sooner.
    """
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    FINGERPRINT_FILE.unlink(missing_ok=True)
    shutil.rmtree(BUILD_DIRECTORY, ignore_errors=True)
    os.chdir(ROOT)
    sources = [str(source_path(module).relative_to(ROOT)) for module in HOT_MODULES]
    extensions = mypycify(
        sources,
        opt_level="2",
        debug_level="0",
        multi_file=True,
        group_name=GROUP,
        target_dir=str(BUILD_DIRECTORY / "c"),
    )
    for each in extensions:
        each.extra_compile_args.append("-fvisibility=hidden")
    extensions += native.build.extensions()
    command = build_ext(Distribution({"name": GROUP, "ext_modules": extensions}))
    command.build_lib = str(BUILD_DIRECTORY)
    command.build_temp = str(BUILD_DIRECTORY / "objects")
    command.parallel = os.cpu_count()
    command.ensure_finalized()
    _compile_files_at_once(command)
    command.run()


def _compile_files_at_once(command: build_ext) -> None:
    """As many as there are processors, the longest first. `command`: of setuptools, which compiles
    the files of an extension one after the other."""
    build = command.build_extensions

    def build_extensions() -> None:
        compile_some = command.compiler.compile

        def compile_all(sources: list[str], **how: object) -> list[str]:
            longest_first = sorted(sources, key=os.path.getsize, reverse=True)
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                made = pool.map(lambda source: compile_some([source], **how), longest_first)
                return [each for objects in made for each in objects]

        command.compiler.compile = compile_all
        build()

    command.build_extensions = build_extensions


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
