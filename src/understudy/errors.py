"""Every exception that this library raises on purpose.

    UnderstudyError
    ├── InvalidArgument (ValueError)   an argument that cannot be used as it is
    │   ├── InvalidEvent               feedback or a log that does not fit the learner
    │   ├── InadmissibleRate           a learning rate that voids the guarantee
    │   ├── InvalidSnapshot            a file or text that is not a snapshot of ours
    │   ├── InvalidLog                 a file that cannot be read as a log
    │   └── UnknownCell (KeyError)     a cell that a sweep does not have
    ├── NotMergeable (TypeError)       states whose learner reads the past
    ├── NotSaveable (TypeError)        a learner that JSON cannot hold
    ├── BrokenLaw (AssertionError)     a learner that fails `us.check_learner`
    ├── StoreUnavailable (OSError)     the store of a live service cannot be used now
    │   └── StoreInUse                 another server writes to it
    ├── ServiceUnavailable (ConnectionError)   a live service does not answer
    ├── Refused                        a live service refused a request
    ├── Undelivered                    events that did not reach a live service
    └── MissingExtra (ImportError)     an optional dependency is not installed

    UnderstudyWarning (UserWarning)
    └── InfiniteCoverage               a comparator that the behavior never shows

`InvalidArgument` carries its four parts as attributes: which argument, which value, why
it is refused, and what to pass instead.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "BrokenLaw",
    "InadmissibleRate",
    "InfiniteCoverage",
    "InvalidArgument",
    "InvalidEvent",
    "InvalidLog",
    "InvalidSnapshot",
    "MissingExtra",
    "NotMergeable",
    "NotSaveable",
    "Refused",
    "ServiceUnavailable",
    "StoreInUse",
    "StoreUnavailable",
    "Undelivered",
    "UnderstudyError",
    "UnderstudyWarning",
    "UnknownCell",
]

# Characters, so that a message stays a line or two; paths are cut late, as their middle says where.
LONGEST_VALUE, LONGEST_MESSAGE, LONGEST_PATH = 60, 160, 300
FIELDS_SHOWN = 5  # of a refused request: a program that is wrong repeats itself


def shorten(value: object, longest: int = LONGEST_VALUE) -> str:
    """The value as Python writes it, on one line; the middle of a long text is left out.

    >>> shorten([1, 2]), shorten("/a/very/long/path/to/log.csv", longest=20)
    ('[1, 2]', "'/a/very/l…/log.csv'")
    """
    try:
        text = " ".join(repr(value).split())
    except Exception as error:  # noqa: BLE001 - a foreign __repr__ may raise anything
        text = f"<{type(value).__name__} whose repr fails: {type(error).__name__}>"
    tail = (longest - 1) // 2
    return text if len(text) <= longest else text[: longest - 1 - tail] + "…" + text[-tail:]


def first_line(error: BaseException) -> str:
    """The first line of an error's message, without the advice below it.

    >>> first_line(ValueError("no such page\\n\\nConsider another."))
    'no such page'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:LONGEST_MESSAGE] if lines else type(error).__name__


class Verbatim:
    """Stands in messages for a value that cannot be pickled; its repr is the value's text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _portable(value: object) -> object:
    try:
        pickle.dumps(value)
    except Exception:  # noqa: BLE001 - a foreign __reduce__ may raise anything
        return Verbatim(shorten(value))
    return value


class UnderstudyError(Exception):
    """The base class of every exception that Understudy raises on purpose."""


class InvalidArgument(UnderstudyError, ValueError):
    """An argument that cannot be used, with the reason and the remedy.

    >>> raise InvalidArgument("eta", -1, "a rate is positive", "pass eta > 0")
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: eta = -1: a rate is positive; pass eta > 0
    """

    def __init__(self, argument: str, value: object, reason: str, remedy: str) -> None:
        self.argument = argument
        self.value = value
        self.reason = reason
        self.remedy = remedy
        super().__init__(argument, value, reason, remedy)

    def __str__(self) -> str:
        return f"{self.argument} = {shorten(self.value)}: {self.reason}; {self.remedy}"

    def __reduce__(self) -> tuple[object, ...]:  # workers send errors home by pickle
        return (type(self), (self.argument, _portable(self.value), self.reason, self.remedy))


class InvalidEvent(InvalidArgument):
    """An event that does not fit the learner; nothing of its log is learned."""


class InadmissibleRate(InvalidArgument):
    """A learning rate above the largest one for which the guarantee holds (`largest`)."""

    def __init__(
        self, argument: str, value: object, reason: str, remedy: str, *, largest: float
    ) -> None:
        super().__init__(argument, value, reason, remedy)
        self.largest = largest

    def __reduce__(self) -> tuple[object, ...]:
        return (functools.partial(type(self), largest=self.largest), super().__reduce__()[1])


class InvalidSnapshot(InvalidArgument):
    """Text that is not a snapshot of ours, or one that was damaged."""


class InvalidLog(InvalidArgument):
    """A file, or a frame, that cannot be read as a log, or a row of it; `value` is its name."""

    def __str__(self) -> str:
        return (
            f"{self.argument} = {shorten(self.value, LONGEST_PATH)}: {self.reason}; {self.remedy}"
        )


class UnknownCell(InvalidArgument, KeyError):
    """A game, learner or seed that a sweep does not have."""


class NotMergeable(UnderstudyError, TypeError):
    """Two states cannot be added because the learner's estimate reads the past."""


class NotSaveable(UnderstudyError, TypeError):
    """A learner or state holds something that JSON cannot."""


class BrokenLaw(UnderstudyError, AssertionError):
    """A learner does not obey a law that every learner must."""


class StoreUnavailable(UnderstudyError, OSError):
    """The store of a live service cannot be used now; a later attempt may succeed."""


class StoreInUse(StoreUnavailable):
    """Another server is the one writer of this store."""


class ServiceUnavailable(UnderstudyError, ConnectionError):
    """A live service answered none of several attempts; it may have received the request.

    Send events again: their ids make them count once.
    """


class Refused(UnderstudyError):
    """A live service refused a request; the same request would be refused again.

    `status` is the status of HTTP, `error` a short name of the reason, such as "late" or
    "conflict", and `fields` pairs each invalid field with its reason.

    >>> raise Refused(422, "invalid", "the event is not valid", (("reward", "it is above 1"),))
    Traceback (most recent call last):
    understudy.errors.Refused: 422 invalid: the event is not valid (reward: it is above 1)
    """

    def __init__(
        self, status: int, error: str, message: str, fields: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self.status = status
        self.error = error
        self.message = message
        self.fields = fields
        super().__init__(status, error, message, fields)

    def __str__(self) -> str:
        every = [f"{field}: {message}" for field, message in self.fields]
        shown = [] if every == [self.message] else every[:FIELDS_SHOWN]
        shown += [f"and {more} more"] if (more := len(every) - FIELDS_SHOWN) > 0 else []
        fields = f" ({'; '.join(shown)})" if shown else ""
        return " ".join(f"{self.status} {self.error}: {self.message}{fields}".split())


class Undelivered(UnderstudyError):
    """Events of a background thread did not reach the study; the message says why."""


class MissingExtra(UnderstudyError, ImportError):
    """A feature needs an optional dependency; the message names the command to type."""


@contextmanager
def require_extra(extra: str, what: str) -> Iterator[None]:
    """Raise `MissingExtra`, which says what to install, if an import inside fails.

    >>> with require_extra("live", "the live service"):
    ...     raise ModuleNotFoundError(name="uvicorn")
    Traceback (most recent call last):
    understudy.errors.MissingExtra: the live service needs uvicorn; install it with: ...
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if str(error.name).startswith("understudy"):
            raise
        raise MissingExtra(
            f"{what} needs {error.name}; install it with: pip install 'understudy[{extra}]'"
        ) from None


class UnderstudyWarning(UserWarning):
    """The base class of our warnings."""


class InfiniteCoverage(UnderstudyWarning):
    """The comparator puts mass where the behavior policy has none."""
