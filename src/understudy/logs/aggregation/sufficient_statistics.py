"""Sufficient statistics: a learner's state or a fixed policy's certificate from sums over rows.

Neither depends on the order of rows (docs/theory.md), so any engine can compute the sums. The
learner must have a fixed rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from understudy.behaviors import Behavior, Logged
from understudy.certificates import Certificate, FixedPolicy
from understudy.certificates.evidence import CENTERS, FIRST_RULES, LOSS, LOWER, RULES, UPPER
from understudy.certificates.targets import largest_ratio, ratio_of_policy
from understudy.constraints import Array
from understudy.errors import NotMergeable
from understudy.estimators import GainFormula
from understudy.learners import CoverageAdaptive, ExponentialWeights, LeveledScores, Scores
from understudy.logs.action_files import behavior_vector
from understudy.logs.aggregation.aggregates import (
    HAS_REWARD,
    HAS_WEIGHT,
    ROWS,
    VALID,
    Groups,
    Rows,
    collect,
    group,
    limits_of,
    rows_of,
)
from understudy.logs.schema import ACTION, PROPENSITY, REWARD, TARGET, Actions, Columns
from understudy.types import Integers

REWARDS = {"rewards": nw.col(REWARD)}
OWN_ACTION = "own action"  # values that belong to the action of a row
OWN_PROPENSITY, OWN_RATE, OWN_TARGET = "own q", "own rate", "own target"


@dataclass(frozen=True, eq=False)
class SummedState:
    """The state of a learner, the rows and rewards of each action, and rejected rows by reason."""

    state: Scores | LeveledScores
    counts: Integers
    rewards: Array
    reject_counts: dict[str, int]


@dataclass(frozen=True, eq=False)
class SummedCertificate:
    """The certificate of a fixed policy, and rejected rows by reason."""

    certificate: Certificate
    reject_counts: dict[str, int]


def learn_sums(
    frame: Any,
    columns: Columns,
    learner: ExponentialWeights | CoverageAdaptive,
    *,
    actions: Actions,
    reward_range: tuple[float, float] = (0.0, 1.0),
) -> SummedState:
    """The state of a learner after all valid rows of a log, in any order: `replay`, up to rounding.

    The frame is read once, and once more if rows are rejected. The learner has a fixed rate, and
    the `actions` are in its order; if it was made with `us.Logged`, propensities are read.

    >>> import understudy as us
    >>> log = pl.DataFrame({"action": ["a", "b", "b"], "reward": [1, 0, 1]})
    >>> learner = us.exp3_ix([0.5, 0.5], horizon=3)
    >>> summed = learn_sums(log, Columns(), learner, actions=Actions(("a", "b")))
    >>> state, _ = learner.replay(learner.init(), us.Log([0, 1, 1], [1.0, 0.0, 1.0]))
    >>> np.allclose(learner.policy(summed.state), learner.policy(state))
    True
    """
    gain = _gain_of(learner)
    fixed = None if isinstance(gain.behavior, Logged) else gain.behavior
    limits = gain.behavior.range if isinstance(gain.behavior, Logged) else (0.0, 1.0)
    rows = rows_of(
        frame, columns, reward_range=reward_range, propensities=fixed is None, limits=limits
    )
    if fixed is None:
        R, q = nw.col(REWARD), nw.col(PROPENSITY)
        gains = {
            f"gain {i}": gain(R, q, rate, log1p=_log1p)
            for i, rate in enumerate(gain.rates.tolist())
        }
        groups = group(rows, columns, REWARDS | gains, actions)
        sums = np.stack([groups.sums(name) for name in gains])
    else:
        groups = group(rows, columns, REWARDS, actions, fixed)
        sums = _sums_of_fixed(gain, fixed, rows, columns, groups)[np.newaxis]
    state = (
        learner.from_sufficient_statistics(sums, groups.rounds)
        if isinstance(learner, CoverageAdaptive)
        else learner.from_sufficient_statistics(sums[0], groups.rounds)
    )
    return SummedState(state, groups.counts, groups.sums("rewards"), groups.reject_counts)


def certify_sums(
    frame: Any,
    columns: Columns,
    *,
    actions: Actions,
    policy: ArrayLike | None = None,
    behavior: Mapping[Any, float] | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
    confidence: float = 0.95,
    lambdas: ArrayLike | None = None,
    least_propensity: float | None = None,
    rules: int = RULES,
    partial: bool = False,
) -> SummedCertificate:
    """The certificate of a fixed policy, from all valid rows of a log in any order.

    It equals that of `us.Certificate.observe` with constant centers, up to rounding, but the round
    of a promotion is not known. The policy must not have been chosen by this log.

    The frame is read two or three times. `policy` has the probability of every action; without it,
    `columns.target` names the column with the probability of the logged action. `behavior` has the
    probability of every label, if production always played with these. Where propensities are
    logged, bets have centers if `least_propensity` is declared. There are none for a policy that is
    `partial`: it may play actions beside these.

    >>> log = pl.DataFrame({"action": ["a", "b"] * 500, "reward": [0, 1] * 500, "propensity": 0.5})
    >>> known = {"policy": [0.1, 0.9], "least_propensity": 0.5}
    >>> summed = certify_sums(log, Columns(), actions=Actions(("a", "b")), **known)
    >>> summed.certificate.rounds, round(summed.certificate.lower), summed.certificate.promoted
    (1000, 882, True)
    """
    fixed = None if behavior is None else behavior_vector(behavior, actions)
    known = Logged(len(actions), least_propensity) if fixed is None else fixed
    centers = None if rules == FIRST_RULES else CENTERS
    empty = Certificate(known, confidence, lambdas=lambdas, rules=rules, centers=centers)
    rows = rows_of(
        frame,
        columns,
        reward_range=reward_range,
        propensities=fixed is None,
        limits=limits_of(least_propensity, actions) if fixed is None else (0.0, 1.0),
    )
    groups = group(rows, columns, REWARDS, actions, fixed)
    own = {OWN_ACTION: np.ones(len(actions))}  # null in rows without a known action
    if fixed is not None:
        own[OWN_PROPENSITY] = fixed
    if policy is not None:
        own[OWN_TARGET] = FixedPolicy(policy).probabilities
    q = PROPENSITY if fixed is None else OWN_PROPENSITY
    pi = TARGET if policy is None else OWN_TARGET
    ratio = math.inf if partial else _largest_ratio(known, policy)
    totals, S = _evidence(rows.beside(_own(groups, own)), q, pi, empty, ratio)
    rounds = int(groups.table[ROWS].sum())
    return SummedCertificate(
        empty.from_sufficient_statistics(rounds, S, totals, centered=math.isfinite(ratio)),
        groups.reject_counts,
    )


def _gain_of(learner: Any) -> GainFormula:
    """The gain formula of a learner whose state is a sum over rows; `NotMergeable` for others."""
    formula: GainFormula | None = getattr(learner, "gain_formula", None)
    if formula is None:
        raise NotMergeable(
            "the state of this learner is no sum over rows in any order; take exp3, exp3_ix, prod "
            "or coverage_adaptive with a horizon and a known behavior, or replay the log in its "
            "order"
        )
    return formula


def _log1p(x: nw.Expr) -> nw.Expr:
    """log(1 + x) on every engine, corrected for the rounding of 1 + x (Kahan)."""
    rounded = 1.0 + x
    log: nw.Expr = nw.when(rounded > 1.0).then(rounded.log() * (x / (rounded - 1.0))).otherwise(x)
    return log


def _sums_of_fixed(
    gain: GainFormula, q: Array, rows: Rows, columns: Columns, groups: Groups
) -> Array:
    """The gains for a fixed behavior: R times a factor per action, or another pass."""
    rates = np.broadcast_to(gain.rates, q.shape)
    if not gain.logarithmic:
        factors: Array = gain(1.0, np.where(q > 0.0, q, 1.0), rates)
        return groups.sums("rewards") * factors
    own = rows.beside(_own(groups, {OWN_PROPENSITY: q, OWN_RATE: rates}))
    R, own_q, rate = nw.col(REWARD), nw.col(OWN_PROPENSITY), nw.col(OWN_RATE)
    term = gain(R, own_q, rate, log1p=_log1p)
    return group(own, columns, {"gain": term}, groups.actions, q).sums("gain")


def _evidence(
    rows: Rows, q: str, pi: str, certificate: Certificate, ratio: float
) -> tuple[Array, Array]:
    """Σ R, Σ w R, Σ w, Σ w², and S_i = Σ log(1 + λ_i x) of all bets: all in one pass.

    Rows that are not valid count with the least that they may have been, as they do in order
    (`study.with_unusable`): with any w, unless the reward of a policy's row is all they lack.
    """
    valid, R, w = nw.col(VALID), nw.col(REWARD), nw.col("w")
    has_weight = nw.col(HAS_WEIGHT) if pi == OWN_TARGET else valid
    weight = nw.when(has_weight).then(nw.col(pi) / nw.col(q)).otherwise(0.0)
    used = nw.when(valid).then(w).otherwise(0.0)
    totals = {"R": R, "wR": used * R, "w": used, "ww": used * used}
    if certificate.centered:
        least_rest = nw.when(nw.col(HAS_REWARD)).then(1.0 - R).otherwise(1.0)
        factors = [
            nw.when(valid)
            .then(_factor(part, bet, center, w, 1.0 - R if part in (UPPER, LOSS) else R))
            .otherwise(
                nw.when(has_weight)
                .then(_least_of_weight(part, bet, center, w))
                .otherwise(
                    _least(part, bet, center, least_rest if part in (UPPER, LOSS) else R, ratio)
                )
            )
            for part, bet, center in certificate.bets.terms(ratio)
        ]
    else:
        parts = [(used * R, 0), (used * (1.0 - R), 1), ((used - 1.0) * R, 2)]
        factors = [1.0 + x * float(each) for x, i in parts for each in certificate.grids[i]]
    logs = {f"S{i}": factor.log() for i, factor in enumerate(factors)}
    every = rows.with_rejected(positive=q)
    marks = valid, nw.col(HAS_REWARD), nw.col(HAS_WEIGHT)
    terms = every.select(R, *marks, weight.alias("w")).select(
        *(term.alias(name) for name, term in (totals | logs).items())
    )
    collected = collect(terms.select(*(nw.col(name).sum() for name in totals | logs)))
    sums = collected.fill_null(0.0).to_numpy()[0]
    return sums[: len(totals)], sums[len(totals) :]


def _factor(part: int, bet: float, center: float, w: nw.Expr, R: nw.Expr) -> nw.Expr:
    """1 + λ x of a usable row; `R` is 1 − R for the upper bound and the loss."""
    if part in (LOWER, UPPER):
        return 1.0 + bet * (w * (R - center) + center)
    return 1.0 + bet * ((w - 1.0) * (R - center))


def _least(part: int, bet: float, center: float, R: nw.Expr, ratio: float) -> nw.Expr | float:
    """The least of 1 + λ x over all w up to `ratio`, where R is at most this."""
    most = 1.0 - bet * center * max(0.0, ratio - 1.0) if center else 1.0
    if part in (LOWER, UPPER):
        return most
    none = 1.0 - bet * R  # without the center: production may have had no choice
    return nw.when(none < most).then(none).otherwise(most)


def _least_of_weight(part: int, bet: float, center: float, w: nw.Expr) -> nw.Expr:
    """The least of 1 + λ x over all rewards, where w is known."""
    x = (1.0 - w) * center
    if part in (LOWER, UPPER):
        return 1.0 + bet * x
    return 1.0 + bet * (x + nw.when(w < 1.0).then(w - 1.0).otherwise(0.0))


def _largest_ratio(known: Behavior, policy: ArrayLike | None) -> float:
    """W of all rows: that of the policy, or of any policy if a column has its probabilities."""
    return largest_ratio(known) if policy is None else ratio_of_policy(np.asarray(policy), known)


def _own(groups: Groups, values: Mapping[str, Array]) -> pl.DataFrame:
    """A table of the labels of the log, with the values of their actions."""
    known = groups.indices >= 0
    own = {name: column[groups.indices[known]] for name, column in values.items()}
    return (
        groups.table.filter(pl.Series(known))
        .select(ACTION)
        .with_columns(**{name: pl.Series(column) for name, column in own.items()})
    )
