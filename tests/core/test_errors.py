"""Our errors: one short line each, picklable, and all in one tree."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tests.core.test_constraints import Unprintable
from understudy import errors
from understudy.errors import InvalidArgument

pytestmark = pytest.mark.plain


@pytest.mark.parametrize(
    "value",
    [
        np.arange(10**6),
        list(range(10**5)),
        "line\nbreak" * 1000,
        np.eye(50),
        Unprintable(),
        type("Long" * 100, (Unprintable,), {})(),
        type("Multiline", (), {"__repr__": lambda _: "a\nb\r\nc\x0bd\u2028e"})(),
    ],
    ids=["array", "list", "text", "matrix", "failing repr", "long name", "multiline repr"],
)
def test_messages_stay_one_short_line(value: object) -> None:
    message = str(InvalidArgument("eta", value, "it is wrong", "pass another"))
    assert len(message.splitlines()) == 1
    assert len(message) < 120
    assert message.startswith("eta = ")
    assert message.endswith(": it is wrong; pass another")


def raisable() -> list[errors.UnderstudyError]:
    """One of each of our errors, with the value that tends to trouble pickle."""
    four = ("eta", np.arange(3), "it is wrong", "pass another")
    return [
        InvalidArgument(*four),
        errors.InvalidEvent(*four),
        errors.InadmissibleRate(*four, largest=0.25),
        errors.InvalidLog(*four),
        errors.InvalidSnapshot(*four),
        errors.UnknownCell(*four),
        errors.NotMergeable("no"),
        errors.NotSaveable("no"),
        errors.BrokenLaw("no"),
        errors.MissingExtra("no"),
        errors.Refused(422, "invalid", "no", (("reward", "it is above 1"),)),
        errors.ServiceUnavailable("no"),
        errors.Undelivered("no"),
        errors.StoreUnavailable("no"),
        errors.StoreInUse("no"),
        errors.UnderstudyError("no"),
    ]


@pytest.mark.parametrize("error", raisable(), ids=lambda error: type(error).__name__)
def test_errors_travel_between_processes(error: errors.UnderstudyError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert repr(vars(again)) == repr(vars(error))


@pytest.mark.parametrize(
    "value", [lambda x: x, Unprintable(), (i for i in [1])], ids=["function", "object", "generator"]
)
def test_errors_travel_whatever_value_they_complain_about(value: object) -> None:
    error = InvalidArgument("gamma", value, "it is wrong", "pass another")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.argument == "gamma"


def test_all_errors_are_in_the_tree() -> None:
    """And those of them that a caller would expect of Python are that, too."""
    kinds = {type(error) for error in raisable()}
    public = {getattr(errors, name) for name in errors.__all__}
    assert kinds == {kind for kind in public if issubclass(kind, errors.UnderstudyError)}
    assert issubclass(InvalidArgument, ValueError)
    assert issubclass(errors.NotMergeable, TypeError)
    assert issubclass(errors.InfiniteCoverage, errors.UnderstudyWarning)
