"""Compilation of kernels: once, without the GIL, cached on disk; a full disk is no error."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.errors import NumbaWarning
from numba.core.runtime import rtsys

Function = TypeVar("Function", bound=Callable[..., Any])

# numba caches the code of a function until the function's own file changes. Kernels call kernels of
# other files, so here a change of any kernel invalidates all of them.
HERE = Path(__file__).parent
SOURCES = tuple(
    (path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(HERE.glob("*.py"))
)


class ForgivingCache(FunctionCache):  # type: ignore[misc] # numba is not typed
    """numba's cache on disk; if the disk is full or missing, it warns instead of failing.

    The stamp of the sources is part of the files' names: numba writes its index before the code, so
    that after a full disk an index could otherwise lead to code of older sources.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        name = hashlib.sha256(repr(SOURCES).encode()).hexdigest()[:12]
        self._cache_file = IndexDataCacheFile(
            cache_path=self._cache_path,
            filename_base=f"{self._impl.filename_base}-{name}",
            source_stamp=SOURCES,
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        # numba first imports all that it could compile, which takes longer than all else at the
        # start of a command. Code that is only loaded needs numba's runtime. A compilation, where
        # there is nothing to load, imports the rest by itself.
        try:
            rtsys.initialize(target_context)
            return self._load_overload(sig, target_context)
        except Exception as error:  # noqa: BLE001 - a damaged file may raise anything
            return warn_of(error)

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:  # noqa: BLE001 - as above
            warn_of(error)


def warn_of(problem: Exception) -> None:
    why = getattr(problem, "strerror", None) or type(problem).__name__
    warnings.warn(
        f"compiled kernels cannot be kept on disk ({why}): every start compiles "
        "them again; set NUMBA_CACHE_DIR to a folder that can be written to",
        NumbaWarning,
        stacklevel=1,  # one place, so that Python shows it once and not for every kernel
    )


def compiled(function: Function) -> Function:
    """Compile a kernel for the types of its arguments, on the first call with them.

    The code of this folder's kernels is cached on disk; your own are compiled in every process.
    """
    if numba.config.DISABLE_JIT:
        return function
    dispatcher = numba.njit(nogil=True)(function)
    if Path(function.__code__.co_filename).parent != HERE:
        return dispatcher  # type: ignore[no-any-return] # a user's sources are not all known
    try:
        dispatcher._cache = ForgivingCache(function)  # what cache=True does, with our cache
    except Exception as error:  # noqa: BLE001 - no place at all, or a numba made otherwise
        warn_of(error)
    return dispatcher  # type: ignore[no-any-return] # numba is not typed


def inlined(function: Function) -> Function:
    """Compile a function into each of its callers, so that it may take kernels as arguments."""
    return function if numba.config.DISABLE_JIT else numba.njit(inline="always")(function)
