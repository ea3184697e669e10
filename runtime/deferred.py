"""Modules of the standard library that are loaded when they are first used, not when they are
imported.

Packages that Vela needs import some modules for functions that Vela never calls. They would cost
each start some milliseconds, and the process some megabytes. (`importlib.util.LazyLoader` loads a
module in Python 3.11 as soon as a second one imports it.)
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType


class _Deferred(ModuleType):
    """Stands for a module until an attribute of it is asked for."""

    def __getattr__(self, name: str) -> object:
        """Called for what a bare module has not."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def defer(name: str) -> None:
    """Let imports of a top-level module load it with the first use of an attribute, or with the
    first import of a module within it. Nothing happens if it is loaded already."""
    if name not in sys.modules:
        sys.modules[name] = _Deferred(name)
