"""Modules of the standard library that are loaded when they are first used, not when they are
imported.

Packages that Vela needs import some modules for functions that Vela never calls. They would cost
each start some milliseconds, and the process some megabytes. (`importlib.util.LazyLoader` loads a
module in Python 3.11 as soon as a second one imports it.)
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from types import ModuleType
from typing import Final

_removal: Final = Lock()
"""One thread removes a stand-in; all wait for the import itself, which has locks of its own."""


class _Deferred(ModuleType):
    """Stands for a module until an attribute of it is asked for."""

    def __getattr__(self, name: str) -> object:
        """Called for what a bare module has not."""
        with _removal:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def defer(name: str) -> None:
    """Let imports of a top-level module load it with the first use of an attribute, or with the
    first import of a module within it. Nothing happens if it is loaded already."""
    if name not in sys.modules:
        sys.modules[name] = _Deferred(name)


def take_part(package: str, part: str) -> None:
    """Let imports of a package give what one module in it has, without its `__init__`, which is run
    if something else of it is asked for. Nothing happens if the package is loaded already, or has
    no such module."""
    found = None if package in sys.modules else find_spec(package)
    if found is None or found.submodule_search_locations is None:
        return
    stand_in = sys.modules[package] = _Deferred(package)
    stand_in.__path__ = list(found.submodule_search_locations)
    try:
        content = vars(import_module(f"{package}.{part}"))
    except ImportError:
        del sys.modules[package]
        return
    stand_in.__dict__.update({name: value for name, value in content.items() if name[0] != "_"})
