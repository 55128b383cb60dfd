"""Names of 0.5 that still work, each with a `DeprecationWarning`; they go with 0.7."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Container
from typing import Any

MEMBERS = {  # of learners, estimators, certificates and games
    "form": "spec",
    "reads_past": "order_dependence",
    "remembers": "accepts_memory",
    "of_sums": "from_sufficient_statistics",
    "earn": "expected_reward",
    "meet": "play_adaptive",
    "stretch": "chunk_size",
}


def warn_of_old_name(old: str, new: str, *, stacklevel: int) -> None:
    """Warn the caller, `stacklevel` frames up, that a name was renamed."""
    message = f"{old} is now {new}; the old name goes with 0.7"
    warnings.warn(message, DeprecationWarning, stacklevel=stacklevel + 1)


class OldName:
    """A member under its old name: `form = OldName()` answers with `spec`, and warns.

    The new name is that of `MEMBERS`, unless it is given.
    """

    def __init__(self, new: str | None = None) -> None:
        self.new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self.new = name, self.new or MEMBERS[name]

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        assert self.new is not None  # since `__set_name__`
        warn_of_old_name(f"{owner.__name__}.{self.name}", self.new, stacklevel=2)
        return getattr(instance, self.new)


def adopt_old_members(cls: type, base: type, fields: Container[str] = ()) -> None:
    """Give a class that was written for 0.5 the new names of the members that it defines.

    A member that `base` only declares does not count as defined; a field of an instance does.
    """

    def defines(name: str) -> bool:
        missing = object()
        own = getattr(cls, name, missing)
        return name in fields if own is missing else own is not getattr(base, name, missing)

    for old, new in MEMBERS.items():
        if defines(old) and not defines(new):
            warn_of_old_name(f"{cls.__name__}.{old}", new, stacklevel=4)
            setattr(cls, new, property(operator.attrgetter(old)))


def old_module_names(module: str, renamed: dict[str, Any]) -> Callable[[str], Any]:
    """The `__getattr__` of a module whose names were renamed: old name → object of today."""

    def find(name: str) -> Any:
        if name not in renamed:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_of_old_name(f"{module}.{name}", renamed[name].__name__, stacklevel=2)
        return renamed[name]

    return find
