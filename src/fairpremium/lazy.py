"""Modules and exports that are loaded when they are first used."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["defer_module", "lazy_exports"]


def lazy_exports(package: str, homes: Mapping[str, str]) -> tuple[list[str], Callable[[str], Any]]:
    """Return ``__all__`` and ``__getattr__`` of a package whose modules each export some names, separated by spaces."""
    home_of = {name: module for module, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home_of[name]}"), name)

    return sorted(home_of), load


def defer_module(name: str) -> None:
    """Let a module be loaded when something of it is first used, not when another module imports it.

    It changes what all code of the process imports, so it is for the start of a command, never for a library.
    A module that is loaded already stays.
    """
    if name not in sys.modules:
        sys.modules[name] = _DeferredModule(name)


class _DeferredModule(ModuleType):
    """Stands for a module until it is used, and then hands on what is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)
