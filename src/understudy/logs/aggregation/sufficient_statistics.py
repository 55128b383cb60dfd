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
from understudy.certificates import (
    AnyCertificate,
    Certificate,
    DifferenceCertificate,
    FixedPolicy,
)
from understudy.certificates.difference import certificate_against
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
from understudy.logs.statistics import BaselineSums
from understudy.types import Integers

REWARDS = {"rewards": nw.col(REWARD)}
OWN_ACTION = "own action"  # values that belong to the action of a row
OWN_PROPENSITY, OWN_RATE, OWN_TARGET = "own q", "own rate", "own target"
OWN_BASELINE = "own baseline"


@dataclass(frozen=True, eq=False)
class SummedState:
    """The state of a learner, the rows and rewards of each action, and rejected rows by reason."""

    state: Scores | LeveledScores
    counts: Integers
    rewards: Array
    reject_counts: dict[str, int]


@dataclass(frozen=True, eq=False)
class SummedCertificate:
    """The certificate of a fixed policy, rejected rows by reason, and the sums of its baseline.

    Those of production are its rewards in the valid rows, and their number.
    """

    certificate: Certificate
    reject_counts: dict[str, int]
    baseline: BaselineSums
    baseline_reward: Certificate | None = None

    @property
    def of_gain(self) -> AnyCertificate:
        """The certificate of the gain over the baseline, if need be from one of its reward."""
        if self.baseline_reward is None:
            return self.certificate
        return DifferenceCertificate(self.certificate, self.baseline_reward)


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
    against: ArrayLike | None = None,
    flipped: bool = False,
    only_valid: bool = False,
) -> SummedCertificate:
    """The certificate of a fixed policy, from all valid rows of a log in any order.

    It equals that of `us.Certificate.observe` with constant centers, up to rounding, but the round
    of a promotion is not known. The policy must not have been chosen by this log.

    The frame is read two or three times. `policy` has the probability of every action; without it,
    `columns.target` names the column with the probability of the logged action. `behavior` has the
    probability of every label, if production always played with these. Where propensities are
    logged, bets have centers if `least_propensity` is declared. There are none for a policy that is
    `partial`: it may play actions beside these. The gain is over the policy `against`, or over
    production. If the scale of rewards is `flipped`, the smallest is the best. Rejected rows count
    with the worst that they may have been, unless `only_valid` rows count.

    >>> log = pl.DataFrame({"action": ["a", "b"] * 500, "reward": [0, 1] * 500, "propensity": 0.5})
    >>> known = {"policy": [0.1, 0.9], "least_propensity": 0.5}
    >>> summed = certify_sums(log, Columns(), actions=Actions(("a", "b")), **known)
    >>> summed.certificate.rounds, round(summed.certificate.lower), summed.certificate.promoted
    (1000, 882, True)
    """
    fixed = None if behavior is None else behavior_vector(behavior, actions)
    known = Logged(len(actions), least_propensity) if fixed is None else fixed
    centers = None if rules == FIRST_RULES else CENTERS
    plain = Certificate(known, confidence, lambdas=lambdas, rules=rules, centers=centers)
    empty, other = plain, None
    if against is not None:
        other = FixedPolicy(against).probabilities
        paired = certificate_against(plain, other)
        empty = paired if isinstance(paired, Certificate) else plain
    rows = rows_of(
        frame,
        columns,
        reward_range=reward_range,
        propensities=fixed is None,
        limits=limits_of(least_propensity, actions) if fixed is None else (0.0, 1.0),
        flipped=flipped,
    )
    groups = group(rows, columns, REWARDS, actions, fixed)
    own = {OWN_ACTION: np.ones(len(actions))}  # null in rows without a known action
    if fixed is not None:
        own[OWN_PROPENSITY] = fixed
    if policy is not None:
        own[OWN_TARGET] = FixedPolicy(policy).probabilities
    q = PROPENSITY if fixed is None else OWN_PROPENSITY
    pi = TARGET if policy is None else OWN_TARGET
    if other is not None:
        own[OWN_BASELINE] = other
    ratio = math.inf if partial else _largest_ratio(known, policy)
    every = rows.beside(_own(groups, own))
    totals, S, sums = _evidence(every, q, pi, empty, ratio, only_valid=only_valid)
    rounds = groups.rounds if only_valid else int(groups.table[ROWS].sum())
    known_ratio = math.isfinite(ratio)
    certificate = empty.from_sufficient_statistics(rounds, S, totals, centered=known_ratio)
    if other is None:
        earned = float(groups.sums("rewards").sum())
        production = BaselineSums(earned, float(groups.rounds), rows=groups.rounds)
        return SummedCertificate(certificate, groups.reject_counts, production)
    earned, weights, squares, weighted = sums.tolist()
    baseline = BaselineSums(earned, weights, squares, weighted, groups.rounds)
    reward = None
    if empty is plain:
        ratio = _largest_ratio(known, other)
        totals, S, _ = _evidence(every, q, OWN_BASELINE, plain, ratio, only_valid=only_valid)
        known_ratio = math.isfinite(ratio)
        reward = plain.from_sufficient_statistics(rounds, S, totals, centered=known_ratio)
    return SummedCertificate(certificate, groups.reject_counts, baseline, reward)


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
    rows: Rows, q: str, pi: str, certificate: Certificate, ratio: float, *, only_valid: bool
) -> tuple[Array, Array, Array]:
    """Σ R, Σ w R, Σ w, Σ w², and S_i = Σ log(1 + λ_i x) of all bets: all in one pass.

    Then, if there is a baseline, Σ w₀R, Σ w₀, Σ (w − w₀)² and Σ (w − w₀)²R of valid rows. Rows that
    are not valid count with the least that they may have been, as they do in order
    (`certificate_path.with_unusable`): with any w, unless the reward of a policy's row is all they
    lack.
    """
    valid, R, w = nw.col(VALID), nw.col(REWARD), nw.col("w")
    has_weight = valid if pi == TARGET else nw.col(HAS_WEIGHT)
    weight = nw.when(has_weight).then(nw.col(pi) / nw.col(q)).otherwise(0.0)
    used = nw.when(valid).then(w).otherwise(0.0)
    totals = {"R": R, "wR": used * R, "w": used, "ww": used * used}
    base: nw.Expr | float = 1.0
    beside: dict[str, nw.Expr] = {}
    if OWN_BASELINE in rows.own:
        w0 = nw.when(valid).then(nw.col("w0")).otherwise(0.0)
        d = used - w0
        beside = {"w0R": w0 * R, "w0": w0, "dd": d * d, "ddR": d * d * R}
    if certificate.against is not None:
        base = nw.col("w0")
    most = certificate.bets.most
    production = certificate.against is None
    if certificate.centered:
        least_rest = nw.when(nw.col(HAS_REWARD)).then(1.0 - R).otherwise(1.0)
        factors = [
            nw.when(valid)
            .then(_factor(term, w, base, 1.0 - R if term[0] in (UPPER, LOSS) else R))
            .otherwise(
                nw.when(has_weight)
                .then(_least_of_weight(term, w, base))
                .otherwise(
                    _least(
                        term,
                        least_rest if term[0] in (UPPER, LOSS) else R,
                        ratio - 1.0 if term[0] in (LOWER, UPPER) or production else ratio,
                        most,
                    )
                )
            )
            for term in certificate.bets.terms(ratio, production=production)
        ]
    else:
        parts = [(used * R, 0), (used * (1.0 - R), 1), ((used - 1.0) * R, 2)]
        factors = [1.0 + x * float(each) for x, i in parts for each in certificate.grids[i]]
    logs = {f"S{i}": factor.log() for i, factor in enumerate(factors)}
    every = rows.with_rejected(positive=q)
    if only_valid:
        every = every.filter(valid)
    marks = valid, nw.col(HAS_REWARD), nw.col(HAS_WEIGHT)
    weights = [weight.alias("w")]
    if beside:
        own = nw.when(nw.col(HAS_WEIGHT)).then(nw.col(OWN_BASELINE) / nw.col(q)).otherwise(0.0)
        weights.append(own.alias("w0"))
    found = totals | beside | logs
    terms = every.select(R, *marks, *weights).select(
        *(term.alias(name) for name, term in found.items())
    )
    collected = collect(terms.select(*(nw.col(name).sum() for name in found)))
    sums = collected.fill_null(0.0).to_numpy()[0]
    first, last = len(totals), len(totals) + len(beside)
    return sums[:first], sums[last:], sums[first:last]


Term = tuple[int, float, float]  # part, λ and center of a bet


def _factor(term: Term, w: nw.Expr, base: nw.Expr | float, R: nw.Expr) -> nw.Expr:
    """1 + λ x of a usable row; `R` is 1 − R for the upper bound and the loss."""
    part, bet, center = term
    if part in (LOWER, UPPER):
        return 1.0 + bet * (w * (R - center) + center)
    return 1.0 + bet * ((w - base) * (R - center))


def _least(term: Term, R: nw.Expr, excess: float, base: float) -> nw.Expr | float:
    """The least of 1 + λ x over all weights up to `excess` above the mean, where R is at most this.

    `base` is the largest weight of the baseline.
    """
    part, bet, center = term
    most = 1.0 - bet * center * max(0.0, excess) if center else 1.0
    if part in (LOWER, UPPER):
        return most
    none = 1.0 - bet * base * R  # without the center: production may have had no choice
    return nw.when(none < most).then(none).otherwise(most)


def _least_of_weight(term: Term, w: nw.Expr, base: nw.Expr | float) -> nw.Expr:
    """The least of 1 + λ x over all rewards, where w is known."""
    part, bet, center = term
    if part in (LOWER, UPPER):
        return 1.0 + bet * ((1.0 - w) * center)
    d = w - base
    return 1.0 + bet * (nw.when(d < 0.0).then(d).otherwise(0.0) - d * center)


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
