"""`us.logs` as Python calls it: frames in, values out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import duckdb
import polars as pl

import understudy as us

from .compare import EXPECTED, INPUTS
from .values import figures_of, log_of, plain

__all__ = ["ASKED", "RESULTS", "policy_path", "probabilities_of"]

CONTEXTS = (
    {"age": 51.5, "city": "Oslo", "visits": 3},
    {"age": None, "city": "Turin", "visits": None},
)


def policy_path(name: str) -> str:
    """The policy.json that 0.5.0 gave for a case."""
    return str(EXPECTED / "learn" / name / "policy.json")


@cache
def _plain() -> pl.DataFrame:
    return pl.read_csv(INPUTS / "plain-1.csv")


def _numbers(found: Any) -> dict[str, Any]:
    """What a result says in numbers."""
    answer: dict[str, Any] = {"verdict": found.verdict, "table": found.table.to_dicts()}
    if getattr(found, "certified", None) is not None:
        answer["certified"] = figures_of(found.certified)
    if isinstance(getattr(found, "policy", None), us.logs.Policy):
        answer["probabilities"] = found.policy.probabilities()
        answer["rows"] = found.policy.rows
    return plain(answer)  # type: ignore[no-any-return] # of a dict it is one


def _of_polars() -> Any:
    return us.logs.learn(
        _plain(), learner="coverage-adaptive", actions=["mug", "book", "lamp", "pen"]
    )


def _of_arrow() -> Any:
    behavior: dict[str | int, float] = {"mug": 0.4, "book": 0.3, "lamp": 0.2, "pen": 0.1}
    return us.logs.learn(_plain().to_arrow(), learner="prod", behavior=behavior, horizon=300)


def _of_bandit_feedback() -> Any:
    feedback = us.logs.to_bandit_feedback(log_of("first", ("propensities",)), n_actions=4)
    return us.logs.learn(feedback, learner="exp3-ix")


def _resumed() -> Any:
    later = pl.read_csv(INPUTS / "plain-2.csv")
    return us.logs.learn(later, resume=policy_path("adaptive"))


def _judged() -> Any:
    policy = us.logs.Policy.load(policy_path("exp3-ix-given"))
    return us.logs.certify(pl.read_csv(INPUTS / "plain-2.csv"), policy)


def _judged_by_labels() -> Any:
    return us.logs.certify(_plain(), {"mug": 0.25, "lamp": 0.75}, actions=INPUTS / "actions.txt")


def _covered() -> Any:
    return us.logs.coverage(_plain(), [{"mug": 0.25, "lamp": 0.75}, policy_path("exp3-ix")])


@contextlib.contextmanager
def _relation() -> Iterator[Any]:
    with duckdb.connect() as connection:
        yield connection.read_csv(str(INPUTS / "plain-1.csv"))


def _summed() -> dict[str, Any]:
    with _relation() as frame:
        return _numbers(us.logs.learn(frame, learner="exp3-ix", horizon=200))


def _round_trip() -> dict[str, Any]:
    feedback = us.logs.to_bandit_feedback(log_of("first", ("propensities",)), n_actions=4)
    return {"rows": us.logs.from_bandit_feedback(feedback).to_dicts(), **plain(feedback)}


# By name: what it gives, and whether it is computed in no order.
RESULTS: dict[str, tuple[Any, bool]] = {
    "polars": (lambda: _numbers(_of_polars()), False),
    "arrow": (lambda: _numbers(_of_arrow()), False),
    "bandit feedback": (lambda: _numbers(_of_bandit_feedback()), False),
    "round trip": (_round_trip, False),
    "resumed": (lambda: _numbers(_resumed()), False),
    "certify": (lambda: _numbers(_judged()), False),
    "certify labels": (lambda: _numbers(_judged_by_labels()), False),
    "coverage": (lambda: _numbers(_covered()), False),
    "duckdb": (_summed, True),
}


# The contexts at which policies of LEARN are asked; all others take none.
ASKED: dict[str, tuple[dict[str, Any] | None, ...]] = {
    "contexts": CONTEXTS,
    "contexts-horizon": CONTEXTS,
    "contexts-given": ({"age": 30.0}, {"age": None}),
    "contexts-estimated": ({"city": "Bari"}, {"city": "Turin"}),
    "vw-lines-contexts": ({"age": 30, "new": 1, "item^price": 2},),
    "dsjson-contexts": ({"User.age": 30, "User.city": "Rome"},),
}


def probabilities_of(name: str) -> list[dict[str, float]]:
    """What the policy of a case would do now, in some contexts if it looks at them."""
    policy = us.logs.Policy.load(policy_path(name))
    wanted = ASKED.get(name, (None,))
    return [{str(a): p for a, p in policy.probabilities(of).items()} for of in wanted]
