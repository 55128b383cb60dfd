"""The modules of the package, for tests that walk all of it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import understudy as us

__all__ = ["modules"]


def modules() -> Iterator[ModuleType]:
    """The package and everything in it, except what runs when it is imported."""
    yield us
    for found in pkgutil.walk_packages(us.__path__, "understudy."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)
