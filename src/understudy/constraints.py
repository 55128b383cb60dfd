"""Constraints on arguments, declared as data.

A `Constraint` turns a value into its checked form or refuses it with a reason, and carries
values that it must refuse. Functions declare theirs with `@constrained(eta=RATE)`, records
with a class attribute `CONSTRAINTS`; the negative tests are generated from both, so a
constraint that stops refusing makes a test fail.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from understudy.errors import InvalidArgument

Array = NDArray[np.float64]
P = ParamSpec("P")
R = TypeVar("R")

SMALLEST_PROBABILITY = 1e-100  # below, 1/q and its sums leave the range of a double
LARGEST_RATE = 1e100  # as above: a rate times 1/q stays a double
LARGEST_COUNT = 2**53  # above, counts are no longer exact as floats
MOST_NUMBERS = 2**31  # in a state: 16 GiB. An update copies it, which takes seconds even there
SUM_TOLERANCE = 1e-9  # far above the rounding of a sum of 10^6 probabilities


class ConstraintViolation(Exception):
    """Why a value does not satisfy a constraint; becomes an `InvalidArgument` with its name."""


@dataclass(frozen=True)
class Constraint:
    """`parse` returns the checked value or raises `ConstraintViolation`; it must refuse `wrong`."""

    remedy: str
    parse: Callable[[Any], Any]
    wrong: tuple[object, ...]

    def __call__(self, argument: str, value: object) -> Any:
        try:
            return self.parse(value)
        except ConstraintViolation as refusal:
            raise InvalidArgument(argument, value, str(refusal), self.remedy) from None

    def optional(self) -> Constraint:
        """The same, with None let through."""
        return Constraint(
            remedy=f"{self.remedy}, or leave it out",
            parse=lambda value: None if value is None else self.parse(value),
            wrong=tuple(value for value in self.wrong if value is not None),
        )


def enforce(record: Any) -> None:
    """Check and convert the fields of a frozen dataclass that its `CONSTRAINTS` declare."""
    for name, constraint in record.CONSTRAINTS.items():
        object.__setattr__(record, name, constraint(name, getattr(record, name)))


def refuse_large_state(
    argument: str, size: int, numbers: Callable[[int], int], *, instead: str = ""
) -> None:
    """Raise `InvalidArgument` if a state of this size would have more than `MOST_NUMBERS`.

    `numbers` counts the numbers in a state of a size; `instead` is another remedy.

    >>> refuse_large_state("dimension", 10**6, lambda p: p * p)
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: dimension = 1000000: the state would have 1e+12 numbers, ...
    """
    if numbers(size) > MOST_NUMBERS:
        most = bisect_right(range(size), MOST_NUMBERS, key=numbers) - 1
        reason = (
            f"the state would have {numbers(size):.3g} numbers, and {MOST_NUMBERS} are the most"
        )
        raise InvalidArgument(argument, size, reason, f"pass at most {most}{instead}")


class Checked:
    """Base of a frozen dataclass whose declared fields are checked when it is made."""

    CONSTRAINTS: ClassVar[dict[str, Constraint]]

    def __post_init__(self) -> None:
        enforce(self)


def constrained(**constraints: Constraint) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Check and convert the named arguments before the function runs.

    >>> @constrained(eta=RATE)
    ... def double(eta: float) -> float:
    ...     return 2 * eta
    >>> double(0.5)
    1.0
    >>> double(eta=0)
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: eta = 0: it must be above 0; pass a positive number
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def check_and_call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:  # as Python would say it, with the function's name
                raise TypeError(f"{function.__name__}() {error}") from None
            bound.apply_defaults()
            for name, constraint in constraints.items():
                bound.arguments[name] = constraint(name, bound.arguments[name])
            return function(*bound.args, **bound.kwargs)

        check_and_call.CONSTRAINTS = constraints  # type: ignore[attr-defined] # for the tests
        return check_and_call

    return decorate


def _number(value: Any) -> float:
    if isinstance(value, bool | np.bool_):
        raise ConstraintViolation("it must be a number: 1.0 or 0.0, not True or False")
    if isinstance(value, str | bytes) or value is None:
        raise ConstraintViolation("it must be a number")
    if isinstance(value, np.ndarray | np.generic) and (value.ndim or value.dtype.kind not in "iuf"):
        raise ConstraintViolation("it must be a number")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ConstraintViolation("it must be a number") from None
    if not math.isfinite(number):
        raise ConstraintViolation("it must be finite")
    return number


def _integer(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise ConstraintViolation("it must be a whole number")
    try:
        return int(value.__index__())
    except (AttributeError, TypeError):
        raise ConstraintViolation("it must be a whole number") from None


def _array(value: Any, dtype: Any = np.float64) -> NDArray[Any]:
    """A read-only copy as an array of finite numbers; the caller may go on changing its own."""
    if isinstance(value, np.ma.MaskedArray):
        raise ConstraintViolation("it is a masked array, and what is masked would be read")
    try:
        given = np.asarray(value)
    except (TypeError, ValueError, OverflowError):
        raise ConstraintViolation("it must be an array of numbers") from None
    if given.dtype.kind == "b" and given.size:
        raise ConstraintViolation(
            "it holds True and False, which x.astype(float) turns into 1 and 0"
        )
    kinds = "iu" if np.dtype(dtype).kind == "i" and given.size else "iuf"
    if given.dtype.kind not in kinds:
        whole = " (x.astype(int) makes whole numbers of floats)" if given.dtype.kind == "f" else ""
        raise ConstraintViolation(
            f"it must be an array of {'whole ' if kinds == 'iu' else ''}numbers{whole}"
        )
    checked = np.array(given, dtype=dtype, order="C")
    if checked.dtype.kind == "f" and not np.isfinite(checked).all():
        where = np.argwhere(~np.isfinite(checked))[0]
        raise ConstraintViolation(f"entry {_index(where)} is not finite")
    checked.flags.writeable = False
    return checked


def dimensions_of(value: Any) -> int:
    """np.ndim, where a ragged sequence counts as one row of something that is not a number.

    >>> dimensions_of(3), dimensions_of([1, 2]), dimensions_of([[1], [1, 2]])
    (0, 1, 1)
    """
    try:
        return np.ndim(value)
    except ValueError:
        return 1


def _index(where: NDArray[np.intp]) -> str:
    return str(int(where[0])) if len(where) == 1 else str(tuple(int(i) for i in where))


def _out_of_range(array: NDArray[Any], low: float, high: float) -> tuple[str, float] | None:
    outside = (array < low) | (array > high)
    if not outside.any():
        return None
    where = np.argwhere(outside)[0]
    return _index(where), float(array[tuple(where)])


def number(
    low: float, high: float, remedy: str, *, above: bool = False, below: bool = False
) -> Constraint:
    """A finite number in [low, high]; without low itself if `above`, without high if `below`."""

    def parse(value: Any) -> float:
        checked = _number(value)
        if checked < low or (above and checked == low):
            raise ConstraintViolation(f"it must be {'above' if above else 'at least'} {low:g}")
        if checked > high or (below and checked == high):
            raise ConstraintViolation(f"it must be {'below' if below else 'at most'} {high:g}")
        return checked

    wrong: tuple[object, ...] = (math.nan, math.inf, -math.inf, "half", None, True, [0.5, 0.5])
    wrong += (low,) if above else ()
    wrong += (high,) if below else ()
    wrong += (low - max(1.0, abs(low)),) if math.isfinite(low) else ()
    wrong += (2.0 * high + 1.0,) if high < LARGEST_RATE else ()
    return Constraint(remedy, parse, wrong)


def integer(low: int, remedy: str, high: int | None = None) -> Constraint:
    """A whole number of at least `low`, and of at most `high` if there is such a limit."""

    def parse(value: Any) -> int:
        checked = _integer(value)
        if checked < low:
            raise ConstraintViolation(f"it must be at least {low}")
        if high is not None and checked > high:
            raise ConstraintViolation(f"it must be at most {high}")
        return checked

    wrong: tuple[object, ...] = (low - 1, -5, 2.5, math.nan, "3", True, None)
    return Constraint(remedy, parse, wrong if high is None else (*wrong, high + 1))


def one_of(remedy: str, *words: str) -> Constraint:
    """One of the words."""

    def parse(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise ConstraintViolation(f"it must be {' or '.join(repr(word) for word in words)}")
        return str(value)

    return Constraint(remedy, parse, (*(word.title() for word in words), "", None, 1, True))


def text(remedy: str) -> Constraint:
    """A text that is not blank."""

    def parse(value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            raise ConstraintViolation("it must be a text that is not blank")
        return str(value)

    return Constraint(remedy, parse, ("", " ", None, 1, ["name"]))


def having(remedy: str, *names: str) -> Constraint:
    """An object that can do what the names say: a learner, an adversary, …"""

    def parse(value: Any) -> Any:
        missing = [name for name in names if not hasattr(value, name)]
        if isinstance(value, type):
            raise ConstraintViolation("it is a class, not an instance of it")
        if missing:
            raise ConstraintViolation(f"it has no {', '.join(missing)}")
        return value

    return Constraint(remedy, parse, (None, "text", 3, [], {}))


def instance_of(remedy: str, *classes: type) -> Constraint:
    """An object of one of these classes."""

    def parse(value: Any) -> Any:
        if not isinstance(value, classes):
            names = " or a ".join(one.__name__ for one in classes)
            raise ConstraintViolation(f"it must be a {names}")
        return value

    return Constraint(remedy, parse, (None, "text", 3, [], {}))


def tuple_of(remedy: str, each: Constraint) -> Constraint:
    """A tuple of values that satisfy a constraint, which keeps them as they are, or converts them.

    >>> tuple_of("pass rounds", ROUNDS)("broken_at", (0, np.int64(3)))
    (0, 3)
    """

    def parse(value: Any) -> tuple[Any, ...]:
        found = tuple(each.parse(item) for item in _tuple(value))
        return value if all(map(operator.is_, found, value)) else found

    return Constraint(remedy, parse, (*TUPLE.wrong, *((wrong,) for wrong in each.wrong)))


def _truth(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ConstraintViolation("it must be True or False")
    return bool(value)


def _tuple(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, tuple):
        raise ConstraintViolation("it must be a tuple")
    return value


CALLABLE = having("pass a function", "__call__")
TUPLE = Constraint("pass a tuple", _tuple, (None, "text", 3, [1], {}))
TRUTH = Constraint("pass True or False", _truth, (None, "yes", 1, [True]))


def array(
    remedy: str,
    *,
    dimensions: tuple[int, ...] = (1,),
    dtype: Any = np.float64,
    low: float = -math.inf,
    high: float = math.inf,
) -> Constraint:
    """An array of finite numbers in [low, high]."""

    def parse(value: Any) -> NDArray[Any]:
        checked = _array(value, dtype)
        if checked.ndim not in dimensions:
            wanted = " or ".join(str(d) for d in dimensions)
            raise ConstraintViolation(f"it must have {wanted} dimension(s), not {checked.ndim}")
        if (found := _out_of_range(checked, low, high)) is not None:
            which = f"entry {found[0]}" if checked.ndim else "it"
            raise ConstraintViolation(f"{which} is {found[1]:g}, outside [{low:g}, {high:g}]")
        return checked

    deep = np.zeros((1,) * (max(dimensions) + 1))
    wrong: tuple[object, ...] = ("text", None, 1.0 if 0 not in dimensions else "1", deep, {"a": 1})
    shape = (1,) * max(dimensions)
    if np.dtype(dtype).kind == "f":
        wrong += (np.full(shape, math.nan), np.full(shape, math.inf))
    else:
        wrong += (np.full(shape, 0.5),)
    wrong += (np.full(shape, low - 1, dtype),) if math.isfinite(low) else ()
    wrong += (np.full(shape, high + 1, dtype),) if math.isfinite(high) else ()
    return Constraint(remedy, parse, wrong)


def _probabilities(value: Any) -> Array:
    checked: Array = _array(value)
    if checked.ndim != 1:
        raise ConstraintViolation(
            f"it must be one row of probabilities, not {checked.ndim} dimensions"
        )
    if len(checked) < 2:  # noqa: PLR2004 - one action is no choice
        raise ConstraintViolation(f"it has {len(checked)} action(s), and a choice needs at least 2")
    if (found := _out_of_range(checked, 0.0, math.inf)) is not None:
        raise ConstraintViolation(f"action {found[0]} has the negative probability {found[1]:g}")
    if bool(((checked > 0) & (checked < SMALLEST_PROBABILITY)).any()):
        raise ConstraintViolation(f"a positive probability is below {SMALLEST_PROBABILITY:g}")
    if abs(float(checked.sum()) - 1.0) > SUM_TOLERANCE:
        raise ConstraintViolation(f"the probabilities sum to {float(checked.sum()):.12g}, not to 1")
    within = np.minimum(checked, 1.0)  # a sum within the tolerance may leave one entry above 1
    within.flags.writeable = False
    return within


RATE = number(0.0, LARGEST_RATE, "pass a positive number", above=True)
NONNEGATIVE = number(0.0, math.inf, "pass a number of at least 0")
POSITIVE = number(0.0, math.inf, "pass a positive number", above=True)
DELTA = number(
    0.0,
    1.0,
    "pass the probability with which a statement may fail, such as 0.05",
    above=True,
    below=True,
)
FEATURE_BOUND = number(1e-100, 1e100, "pass B ≥ ‖φ(x, a)‖, a positive number")
HORIZON = integer(
    1, "pass the number of rounds that will be played, a whole number of at least 1", LARGEST_COUNT
)
ROUNDS = integer(0, "pass a number of rounds", LARGEST_COUNT)
COUNT = integer(1, "pass a whole number of at least 1", LARGEST_COUNT)
SEED = integer(0, "pass a whole number of at least 0")
N_ACTIONS = integer(2, "pass the number of actions, a whole number of at least 2", LARGEST_COUNT)
PROBABILITIES = Constraint(
    "pass one nonnegative probability per action, summing to 1 (w / w.sum() normalises weights, "
    "in float64)",
    _probabilities,
    (
        None,
        "uniform",
        0.5,
        [],
        [1.0],
        [0.5, 0.6],
        [0.5, 0.4],
        [1.5, -0.5],
        [math.nan, 1.0],
        [math.inf, 0.0],
        [[0.5, 0.5]],
        [1.0 - 1e-120, 1e-120],
        ["a", "b"],
    ),
)
