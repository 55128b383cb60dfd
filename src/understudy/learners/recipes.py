"""The algorithms without features, by name: each composes a rate, an estimator and a weight rule.

Those with features are in `linear_recipes.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from understudy.behaviors import BEHAVIOR, Logged, n_actions_of
from understudy.constraints import (
    HORIZON,
    N_ACTIONS,
    RATE,
    SMALLEST_PROBABILITY,
    Constraint,
    constrained,
    one_of,
)
from understudy.errors import InvalidArgument
from understudy.estimators import (
    ChernoffPlugIn,
    ImplicitExploration,
    ImportanceWeighting,
    Logarithmic,
    PlugIn,
)
from understudy.learners.exponential_weights import ExponentialWeights
from understudy.learners.weighted_entropy import GAIN, LOGARITHMIC, SHARE, CoverageAdaptive
from understudy.schedules import (
    GAMMA,
    Constant,
    Decaying,
    HalfOf,
    HoeffdingWidth,
    Rate,
    Schedule,
    Tabulated,
    refuse_coverage_beside_eta,
)
from understudy.theory.coverage_adaptive import (
    MULTIPLIER,
    POSITIVE_PRIOR,
    PRIOR,
    RATES,
    coverage_adaptive_tuning,
    coverage_grid_tuning,
    override_tuning,
    prod_grid_tuning,
)
from understudy.theory.coverage_ratio import COVERAGE_RATIO
from understudy.theory.rates import anytime_scale, exp3_ix_rate

AS_BEHAVIOR = "behavior"  # the prior of a learner that begins as production
ACTION_PRIOR = Constraint(
    POSITIVE_PRIOR.remedy,
    lambda value: (
        AS_BEHAVIOR
        if isinstance(value, str) and value == AS_BEHAVIOR
        else POSITIVE_PRIOR.parse(value)
    ),
    POSITIVE_PRIOR.wrong,
)
Gamma = float | ArrayLike | Callable[[int], float] | Schedule


@constrained(
    pi_b=BEHAVIOR,
    horizon=HORIZON.optional(),
    eta=RATE.optional(),
    prior=ACTION_PRIOR.optional(),
)
def exp3(
    pi_b: ArrayLike | Logged,
    *,
    horizon: int | None = None,
    eta: float | None = None,
    prior: ArrayLike | str | None = None,
) -> ExponentialWeights:
    r"""Exp3 with the behavior policy's feedback: the baseline of the paper's Figure 1.

    $$\pi_t(a) \propto \exp\Big(\eta \sum_{k<t} \frac{R_k 1\{b_k = a\}}{q(a)}\Big), \quad
    \eta = \sqrt{\log K / n}$$

    Unbiased and not pessimistic: its bound (`us.theory.exp3_bound`) needs η ≤ min q and is the
    same for every comparator, well covered or not. Without a horizon η_t = √(log K / (2t)), which
    no theorem covers.

    Args:
        pi_b: q, the behavior policy: K probabilities, or `us.Logged`.
        horizon: n, the number of rounds that will be played; None if it is not known.
        eta: η, instead of the rate that `horizon` gives.
        prior: w₁ as in `us.exp3_ix`.

    >>> import understudy as us
    >>> learner = us.exp3([0.5, 0.5], horizon=100)
    >>> state = learner.update(learner.init(), us.Feedback(action=1, reward=1.0))
    >>> learner.policy(state).round(4).tolist()
    [0.4585, 0.5415]
    """
    rate = exponential_rate(n_actions_of(pi_b), horizon, eta)
    w1 = prior_of(prior, pi_b)
    return ExponentialWeights(rate, ImportanceWeighting(pi_b), horizon, w1)  # type: ignore[arg-type] # checked above


@constrained(
    pi_b=BEHAVIOR,
    horizon=HORIZON.optional(),
    coverage=COVERAGE_RATIO.optional(),
    eta=RATE.optional(),
    gamma=GAMMA.optional(),
    prior=ACTION_PRIOR.optional(),
)
def exp3_ix(
    pi_b: ArrayLike | Logged,
    *,
    horizon: int | None = None,
    coverage: float | None = None,
    eta: float | None = None,
    gamma: Gamma | None = None,
    prior: ArrayLike | str | None = None,
) -> ExponentialWeights:
    r"""Pessimistic Exp3-IX, known behavior policy: Algorithm 1 and Theorem 1.

    $$\pi_t(a) \propto \exp\Big(\eta \sum_{k<t} \frac{R_k 1\{b_k = a\}}{q(a) + \gamma_k}\Big),
    \quad \gamma_t = \eta/2$$

    Two tunings: η = √(log K / n) for all comparators, regret √(n log K)(1 + C/2); and, for
    comparators of a known coverage C, η = √(2 log K / (C n)), regret √(2 C n log K). Without a
    horizon, η_t = √(log K / (2t)) or √(log K / (C t)) and γ_t = η_t/2: √2 times these bounds, and
    another 2.5 % of the second term, because a rate is held until t has grown by 5 %.

    Departs from the paper: the rate printed for the second tuning, √(log K / (C n)), gives only
    1.5 √(C n log K); the rate above is the one that gives the bound the paper states.

    Args:
        pi_b: q, the behavior policy: K probabilities, or `us.Logged`.
        horizon: n, the number of rounds that will be played; None if it is not known.
        coverage: C(π*; π_B) of the comparators to compete with; None for all of them.
        eta: η, instead of the rate that `horizon` and `coverage` give.
        gamma: γ_t: a number, an array, or a function of t ≥ 1. Theorem 1 covers γ_t ≥ η/2.
        prior: w₁, the first policy: K positive weights, or 'behavior' to start as a known π_B.
            Then KL(π*‖w₁) is in place of log K in the bounds (`us.theory.theorem1_bound`).

    >>> import understudy as us
    >>> learner = us.exp3_ix([0.5, 0.5], horizon=100)
    >>> state = learner.update(learner.init(), us.Feedback(action=1, reward=1.0))
    >>> learner.policy(state).round(4).tolist()
    [0.4616, 0.5384]
    """
    rate = exponential_rate(n_actions_of(pi_b), horizon, eta, coverage)
    gamma = gamma_or_default(gamma, half_rate(rate), horizon)
    w1 = prior_of(prior, pi_b)
    return ExponentialWeights(rate, ImplicitExploration(pi_b, gamma), horizon, w1)  # type: ignore[arg-type] # checked above


@constrained(
    n_actions=N_ACTIONS,
    horizon=HORIZON.optional(),
    eta=RATE.optional(),
    gamma=GAMMA.optional(),
    width=one_of("pass 'kl' for Chernoff's bounds, or leave it out", "hoeffding", "kl"),
    prior=POSITIVE_PRIOR.optional(),
)
def exp3_ix_unknown(
    n_actions: int,
    *,
    horizon: int | None = None,
    eta: float | None = None,
    gamma: Gamma | None = None,
    width: Literal["hoeffding", "kl"] = "hoeffding",
    prior: ArrayLike | None = None,
) -> ExponentialWeights:
    r"""Pessimistic Exp3-IX, unknown behavior policy: Theorem 2.

    $$\tilde r_t(b) = \frac{R}{\hat q_t(b) + \gamma_t}, \quad
    \gamma_1 = 1 + \frac\eta2, \quad
    \gamma_t = \frac\eta2 + \sqrt{\frac{\log(K (t-1)^2)}{2t-2}}, \quad \eta = \sqrt{\log K / n}$$

    with q̂_t the frequencies of the rounds before t. The width in γ_t keeps the estimate
    pessimistic while q̂_t is still wrong. States cannot be merged: q̂_t depends on the order.

    Beyond the paper: with width="kl", Chernoff's upper bound u_t(b) on q(b) takes the place of q̂_t
    (`us.estimators.ChernoffPlugIn`), and γ_t = η/2. Its regret (`us.theory.chernoff_bound`) grows
    with √C where Theorem 2's grows with C. Without a horizon η_t = √(log K / (2t)), for which no
    bound is given here.

    Args:
        n_actions: K.
        horizon: n, the number of rounds that will be played; None if it is not known.
        eta: η, instead of the rate that `horizon` gives.
        gamma: γ_t > 0 (with width="kl" also 0), instead of the theorem's: a number, an array, or a
            function of t ≥ 1.
        width: "hoeffding", as in Theorem 2, or "kl", which is sharper where q is small.
        prior: w₁, the first policy: K positive weights.

    >>> import understudy as us
    >>> learner = us.exp3_ix_unknown(2, horizon=100)
    >>> state = learner.update(learner.init(), us.Feedback(action=1, reward=1.0))
    >>> learner.policy(state).round(4).tolist()
    [0.48, 0.52]
    """
    rate = exponential_rate(n_actions, horizon, eta)
    if width == "kl":
        gamma = gamma_or_default(gamma, half_rate(rate), horizon)
        return ExponentialWeights(rate, ChernoffPlugIn(n_actions, gamma), horizon, prior)  # type: ignore[arg-type] # checked above
    gamma = gamma_or_default(gamma, HoeffdingWidth(rate, n_actions), horizon)
    return ExponentialWeights(rate, PlugIn(n_actions, gamma), horizon, prior)  # type: ignore[arg-type] # checked above


@constrained(
    pi_b=BEHAVIOR,
    horizon=HORIZON.optional(),
    coverage=COVERAGE_RATIO.optional(),
    eta=RATE.optional(),
    prior=ACTION_PRIOR.optional(),
)
def prod(
    pi_b: ArrayLike | Logged,
    *,
    horizon: int | None = None,
    coverage: float | None = None,
    eta: float | None = None,
    prior: ArrayLike | str | None = None,
) -> ExponentialWeights:
    r"""Prod with the behavior policy's feedback: the update inside the proof of Theorem 1.

    $$\pi_t(a) \propto \prod_{k<t} \Big(1 + \eta \frac{R_k 1\{b_k = a\}}{q(a)}\Big)$$

    that is, exponential weights with the gain (1/η) log(1 + η R/q). It is never below Exp3-IX's
    gain at γ = η/2, so Theorem 1 holds for it too (`us.theory.prod_bound` is never worse), also
    without a horizon, where η_t is that of Exp3-IX.

    Departs from the paper: its analysis says "η = γ gives Prod"; it is η = 2γ.

    Args:
        pi_b: q, the behavior policy: K probabilities, or `us.Logged`.
        horizon: n, the number of rounds that will be played; None if it is not known.
        coverage: C(π*; π_B) of the comparators to compete with; None for all of them.
        eta: η, instead of the rate that `horizon` and `coverage` give.
        prior: w₁ as in `us.exp3_ix`.

    >>> import understudy as us
    >>> learner = us.prod([0.5, 0.5], eta=0.5)
    >>> state = learner.update(learner.init(), us.Feedback(action=1, reward=1.0))
    >>> learner.policy(state).round(4).tolist()
    [0.3333, 0.6667]
    """
    rate = exponential_rate(n_actions_of(pi_b), horizon, eta, coverage)
    w1 = prior_of(prior, pi_b)
    return ExponentialWeights(rate, Logarithmic(pi_b, rate), horizon, w1)  # type: ignore[arg-type] # checked above


@constrained(
    pi_b=BEHAVIOR,
    horizon=HORIZON.optional(),
    multiplier=MULTIPLIER,
    rates=RATES.optional(),
    prior=PRIOR.optional(),
    gain=GAIN,
)
def coverage_adaptive(
    pi_b: ArrayLike | Logged,
    *,
    horizon: int | None = None,
    multiplier: float = 1.0,
    rates: ArrayLike | None = None,
    prior: ArrayLike | None = None,
    gain: str = "implicit",
) -> CoverageAdaptive:
    r"""One learner with regret of order √(C(π*) n) against every comparator π* at once.

    $$\pi_t(a) = w_1(a) \exp(\eta_a (G_t(a) - \Lambda_t)), \quad
    G_t(a) = \sum_{k<t} \frac{R_k 1\{b_k = a\}}{q(a) + \eta_a/2}, \quad
    \eta_a = c \sqrt{2 L_a q_j / n}$$

    with Λ_t such that the probabilities sum to 1. Rates and prior are those of
    `us.theory.coverage_adaptive_tuning`: constant in dyadic groups of q, so that a round costs
    O(groups); without a horizon η_{a,t} = c √(L_a q_j / t). Exp3-IX has to be tuned to the coverage
    of the comparator, which is not known in advance; here every action has the rate of its own
    coverage. Equal rates and a uniform prior give Exp3-IX back. Not in the paper, which leaves this
    problem open: the proof is in docs/theory.md, the bound is `us.theory.coverage_adaptive_bound`.

    With `us.Logged` the rates cannot depend on q, which changes from event to event: the grid form
    runs all rates η_0 2^{−i} beside each other (`us.theory.coverage_grid_tuning`).

    Args:
        pi_b: q, the behavior policy: K probabilities, or `us.Logged`.
        horizon: n, the number of rounds that will be played; None if it is not known.
        multiplier: c. The theorem holds for any; benign games reward larger rates.
        rates: η_a of every action, or of every level of the grid, to stay whatever the horizon.
        prior: w₁ likewise. Many different pairs of rate and prior make many groups.
        gain: 'implicit' as above, or 'logarithmic' for log(1 + ηR/q)/η, which is never below it.

    >>> import understudy as us
    >>> learner = us.coverage_adaptive([0.1, 0.45, 0.45], horizon=1000)
    >>> learner.policy(learner.init()).round(4).tolist()
    [0.0769, 0.4615, 0.4615]
    >>> state = learner.update(learner.init(), us.Feedback(action=0, reward=1.0))
    >>> learner.policy(state).round(4).tolist()
    [0.0939, 0.453, 0.453]
    """
    if isinstance(pi_b, Logged):
        own = coverage_grid_tuning(pi_b.n_actions, horizon=horizon, multiplier=multiplier)
    else:
        own = coverage_adaptive_tuning(pi_b, horizon=horizon, multiplier=multiplier)
    eta, w1 = override_tuning(own, rates, prior, multiplier)
    decaying = horizon is None and rates is None
    return CoverageAdaptive(pi_b, eta, w1, gain, horizon, decaying)  # type: ignore[arg-type] # checked above


@constrained(
    pi_b=BEHAVIOR,
    prior=ACTION_PRIOR.optional(),
    production=SHARE,
)
def prod_grid(
    pi_b: ArrayLike | Logged,
    *,
    prior: ArrayLike | str | None = None,
    production: float = 0.0,
) -> CoverageAdaptive:
    r"""Prod at all rates of a grid at once: regret in the size of the rewards, nothing to tune.

    $$G_t(a, i) = \sum_{k<t} \frac{\log(1 + \eta_i R_k 1\{b_k = a\}/q_k(a))}{\eta_i}, \quad
    \pi_t(a) = \sum_i w_1(a) w_1(i) e^{\eta_i (G_t(a, i) - \Lambda_t)}$$

    with Λ_t such that the probabilities sum to 1, and rates η_i and levels' prior w₁(i) of
    `us.theory.prod_grid_tuning`. The regret against an action is of order √(log K · Σ_t r_t/q_t):
    clicks of 2 % are learned at their own scale (`us.theory.exp4_bound`; the proof is in
    docs/theory.md). The rates are the same in all rounds: no horizon is needed, and states add up.

    Args:
        pi_b: q, the behavior policy: K probabilities, or `us.Logged`.
        prior: w₁(a): K positive weights, or 'behavior', to begin halfway between π_B and the
            uniform policy; left out: uniform.
        production: the prior share of one more expert, which does as production does. With
            `us.Logged`, `policy` then needs production's probabilities, unless its share has gone.

    >>> import understudy as us
    >>> learner = us.prod_grid([0.1, 0.45, 0.45])
    >>> state = learner.update(learner.init(), us.Feedback(action=0, reward=1.0))
    >>> learner.policy(state).round(4).tolist()
    [0.8154, 0.0923, 0.0923]
    """
    rates, levels = prod_grid_tuning()
    return CoverageAdaptive(
        pi_b,  # type: ignore[arg-type] # checked above
        rates,
        levels,
        LOGARITHMIC,
        grid=True,
        action_prior=prior_of(prior, pi_b, half=True),
        production=production,
    )


def prior_of(
    prior: ArrayLike | str | None, pi_b: ArrayLike | Logged | None, *, half: bool = False
) -> Any:
    """The prior as given; of 'behavior', a known π_B, or `half` of it and half uniform.

    An action that production never plays gets the smallest weight that there is.
    """
    if not isinstance(prior, str):
        return prior
    if pi_b is None or isinstance(pi_b, Logged):
        reason = "the behavior policy is not known beforehand"
        remedy = "pass weights; with us.Logged, production can be an expert: us.exp4, us.prod_grid"
        raise InvalidArgument("prior", prior, reason, remedy)
    q = np.asarray(pi_b)
    if half:
        return (q + 1.0 / len(q)) / 2.0
    least = np.maximum(q, SMALLEST_PROBABILITY)
    return least / least.sum()


def exponential_rate(
    n_actions: int, horizon: int | None, eta: float | None, coverage: float | None = None
) -> Rate:
    """η if it was given, else the theorem's rate for the horizon, or one that needs none."""
    if eta is not None:
        refuse_coverage_beside_eta(coverage)
        return eta
    if horizon is None:
        return Decaying(anytime_scale(n_actions, coverage))
    return exp3_ix_rate(n_actions, horizon, coverage)


def half_rate(rate: Rate) -> Schedule:
    """γ_t = η_t/2."""
    return HalfOf(rate) if isinstance(rate, Decaying) else Constant(rate / 2)


def gamma_or_default(gamma: Any, default: Schedule, horizon: int | None) -> Schedule:
    """γ_t if it was given, long enough for the horizon, else the theorem's."""
    if isinstance(gamma, Tabulated) and horizon is not None and len(gamma.gamma) < horizon:
        raise InvalidArgument(
            "gamma",
            f"an array of {len(gamma.gamma)}",
            f"the horizon is {horizon} rounds",
            "pass one entry per round, or a function of t",
        )
    return default if gamma is None else gamma
