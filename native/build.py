"""Builds the extension of this room. Needs a C compiler and setuptools.

`make compile` puts it beside the compiled hot modules. Tests build it into a directory of their
own.
"""

from __future__ import annotations

import platform
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from setuptools import Extension

MODULE: Final = "native._extension"
SOURCE_DIRECTORY: Final = Path(__file__).parent / "source"
PROCESSORS: Final = ("x86_64", "AMD64")
"""Where the instructions for CRC-32C are used. Elsewhere Vela runs without the extension."""

COMPILER_FLAGS: Final = (
    *("-O2", "-Wall", "-Wextra", "-Wno-unused-parameter"),
    # A part calls another one directly, as if both were one file.
    "-fvisibility=hidden",
)

SANITIZERS: Final = (
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    *("-fno-omit-frame-pointer", "-g", "-O1"),
)
"""The options that make the compiler check every access to memory and every number (`make
sanitize`)."""


def extensions(flags: Sequence[str] = ()) -> list[Extension]:
    """The one extension, or none on other processors. Paths are relative to the project.
    `flags`: more of them for the compiler and the linker."""
    from setuptools import Extension

    if platform.machine() not in PROCESSORS:
        return []
    root = SOURCE_DIRECTORY.parent.parent
    sources = sorted(str(path.relative_to(root)) for path in SOURCE_DIRECTORY.glob("*.c"))
    headers = [str(path.relative_to(root)) for path in SOURCE_DIRECTORY.glob("*.h")]
    return [
        Extension(
            MODULE,
            sources,
            depends=headers,
            extra_compile_args=[*COMPILER_FLAGS, *flags],
            extra_link_args=list(flags),
        )
    ]


def build(directory: Path, flags: Sequence[str] = ()) -> Path | None:
    """The extension built below `directory`, or None on other processors. The current directory
    must be that of the project. `flags`: as in `extensions`."""
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    made = extensions(flags)
    if not made:
        return None
    command = build_ext(Distribution({"name": MODULE, "ext_modules": made}))
    command.build_lib = str(directory)
    command.build_temp = str(directory / "objects")
    command.ensure_finalized()
    command.run()
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    return directory.joinpath(*MODULE.split(".")).with_suffix(suffix)
