"""One comparison for all golden files: every number by its bits, every key, no prose."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numba
import numpy as np

__all__ = [
    "CLOSED",
    "EXPECTED",
    "INPUTS",
    "LEFT_OUT",
    "assert_same",
    "fingerprint",
    "read",
    "without_prose",
]

INPUTS = Path(__file__).parent / "inputs"
EXPECTED = Path(__file__).parent / "expected"

# What is not compared, by name: English, and what the clock or the release decides. The key must
# be there all the same. Where a name has more than one meaning, `[list]`, `[text]` or `[phrase]`
# (a text of three words or more) says which values of it are left out.
LEFT_OUT = frozenset(
    {
        "theorem",  # policy.json: sentences about the learner
        "unmet",
        "words",  # --json and the live service: verdicts as sentences
        "facts",
        "assumptions",
        "warnings",
        "coverage[list]",  # of --json: sentences; in rows of actions `coverage` is a number
        "name[phrase]",  # of a candidate: "the understudy's policy now"; "uniform" is compared
        "file[phrase]",  # "all files, as duckdb read them"; the name of a file is compared
        "findings",
        "message",  # of an HTTP refusal; `error` is its code, and is compared
        "events_per_second",  # depends on the clock
        "version[text]",  # of the release; the version of a file format is a number
    }
)
# Where keys are data, not names of fields: more of them would be a change.
CLOSED = frozenset({"quarantined", "refused", "reasons", "probabilities"})
MARK = "(left out)"
PHRASE = 2  # words; more are a phrase
MOST = 20  # differences that a failure shows
RELATIVE = 1e-9  # what machines that round otherwise must agree to
ABSOLUTE = 1e-9  # compensated sums keep rounding errors as numbers of their own


def read(*parts: str) -> Any:
    """A JSON file of `expected/`; large ones are compressed."""
    path = EXPECTED.joinpath(*parts)
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    return json.loads(gzip.decompress(path.with_name(f"{path.name}.gz").read_bytes()))


def assert_same(expected: Any, found: Any, where: str = "", *, rounded: bool = False) -> None:
    """Fail with the first differences of what 0.5.0 gave and what is given now.

    Keys may be added, none may be missing. Numbers are compared by their bits if this machine
    computes as the one that wrote the files (`fingerprint`), otherwise, and where `rounded`, to
    1e-9.
    """
    exact = not rounded and rounds_alike()
    differing = list(islice(_differences(expected, found, where, exact), MOST))
    assert not differing, "\n".join(["not what 0.5.0 gives:", *differing])


def _differences(expected: Any, found: Any, where: str, exact: bool) -> Iterable[str]:
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        yield from _of_mappings(expected, found, where, exact)
    elif _is_list(expected) and _is_list(found):
        if len(expected) != len(found):
            yield f"{where}: {len(found)} entries, not {len(expected)}"
        for i, (old, new) in enumerate(zip(expected, found, strict=False)):
            yield from _differences(old, new, f"{where}[{i}]", exact)
    elif not _equal(expected, found, exact):
        yield f"{where}: {found!r}, not {expected!r}"


def _of_mappings(
    expected: Mapping[str, Any], found: Mapping[str, Any], where: str, exact: bool
) -> Iterable[str]:
    if where.rpartition(".")[2] in CLOSED:
        yield from (f"{where}: {key!r} is new" for key in found if key not in expected)
    for key, value in expected.items():
        place = f"{where}.{key}"
        if key not in found:
            yield f"{place} is missing"
        elif value != MARK and not _is_left_out(key, value):
            yield from _differences(value, found[key], place, exact)


def _is_left_out(key: str, value: Any) -> bool:
    kind = "list" if _is_list(value) else ""
    if isinstance(value, str):
        kind = "phrase" if len(value.split()) > PHRASE else "text"
    return key in LEFT_OUT or f"{key}[{kind}]" in LEFT_OUT


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _equal(expected: Any, found: Any, exact: bool) -> bool:
    if type(expected) is not type(found):
        return False
    if not isinstance(expected, float):
        return bool(expected == found)
    if math.isnan(expected) or math.isnan(found):
        return math.isnan(expected) and math.isnan(found)
    if exact:
        return struct.pack("<d", expected) == struct.pack("<d", found)
    return math.isclose(expected, found, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def without_prose(value: Any) -> Any:
    """The same with a mark in place of all that is not compared."""
    if isinstance(value, Mapping):
        return {
            key: MARK if _is_left_out(key, inner) else without_prose(inner)
            for key, inner in value.items()
        }
    return [without_prose(inner) for inner in value] if _is_list(value) else value


@functools.cache
def rounds_alike() -> bool:
    """Whether this machine rounds as the one that wrote the files."""
    return bool(fingerprint() == read("fingerprint.json"))


@functools.cache
def fingerprint() -> dict[str, str]:
    """What this machine makes of functions that processors and libraries round differently.

    Nothing of Understudy is in it: a change of our code must not look like another machine.
    """
    x = np.linspace(-3.0, 3.0, 257) * math.pi / 3.0
    positive = np.abs(x) + 1e-3
    matrix = np.cos(np.outer(x[:6], x[100:106])) + 3.0 * np.eye(6)
    arrays = {
        "exp": np.exp(x),
        "log": np.log(positive),
        "log1p": np.log1p(positive),
        "power": positive**1.5,
        "sums": np.array([x.sum(), positive.sum(), positive.mean(), x @ positive, np.var(x)]),
        "inverse": np.linalg.inv(matrix),
        "eigenvalues": np.linalg.eigvalsh(matrix + matrix.T),
        "einsum": np.einsum("ij,jk,k->i", matrix, matrix, x[:6]),
        "kernel": _kernel(x),
    }
    # Where nothing is compiled, NumPy takes the place of some loops, and rounds in another order.
    compiled = {"compiled": str(not numba.config.DISABLE_JIT)}
    return compiled | {name: _digest(array) for name, array in arrays.items()}


def _digest(array: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(array, dtype="<f8").tobytes()).hexdigest()[:16]


def _loop(x: Any) -> Any:
    found = np.empty(x.shape[0])
    total, level = 0.0, 1.0
    for i in range(x.shape[0]):
        weight = math.exp(0.1 * x[i]) / (0.3 + abs(x[i]))
        total += math.log1p(weight) * level
        level = 0.9 * level + 0.1 * math.sqrt(weight)
        found[i] = total / (1.0 + math.log(1.0 + i))
    return found


def _kernel(x: Any) -> Any:
    """A loop compiled as our kernels are."""
    return (_loop if numba.config.DISABLE_JIT else numba.njit(nogil=True)(_loop))(x)
