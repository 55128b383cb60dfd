"""The paper's algorithms by name: each a few lines that compose a rate, an estimator, a rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from numpy.typing import ArrayLike

from understudy.behaviors import BEHAVIOR, Logged
from understudy.constraints import (
    COUNT,
    FEATURE_BOUND,
    HORIZON,
    N_ACTIONS,
    POSITIVE,
    RATE,
    TRUTH,
    Array,
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
from understudy.learners.lin_prod import LinProd, LinProdCompact, LinProdUnknown
from understudy.learners.linear import DisjointFeatures, Features, SharedFeatures
from understudy.learners.weighted_entropy import GAIN, CoverageAdaptive
from understudy.schedules import (
    GAMMA,
    Constant,
    Decaying,
    HalfOf,
    HoeffdingWidth,
    Rate,
    Schedule,
    Tabulated,
)
from understudy.theory.coverage_adaptive import (
    MULTIPLIER,
    PRIOR,
    RATES,
    coverage_adaptive_tuning,
    coverage_grid_tuning,
    resolved,
)
from understudy.theory.coverage_ratio import COVARIANCES, COVERAGE_RATIO
from understudy.theory.rates import (
    anytime_scale,
    exp3_ix_rate,
    kappa_from_feature_bound,
    largest_lin_prod_rate,
    lin_prod_rate,
)

Gamma = float | ArrayLike | Callable[[int], float] | Schedule


@constrained(pi_b=BEHAVIOR, horizon=HORIZON.optional(), eta=RATE.optional())
def exp3(
    pi_b: ArrayLike | Logged, *, horizon: int | None = None, eta: float | None = None
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

    >>> import understudy as us
    >>> learner = us.exp3([0.5, 0.5], horizon=100)
    >>> state = learner.update(learner.init(), us.Feedback(action=1, reward=1.0))
    >>> learner.policy(state).round(4).tolist()
    [0.4585, 0.5415]
    """
    rate = exponential_rate(count(pi_b), horizon, eta)
    return ExponentialWeights(rate, ImportanceWeighting(pi_b), horizon)  # type: ignore[arg-type] # checked above


@constrained(
    pi_b=BEHAVIOR,
    horizon=HORIZON.optional(),
    coverage=COVERAGE_RATIO.optional(),
    eta=RATE.optional(),
    gamma=GAMMA.optional(),
)
def exp3_ix(
    pi_b: ArrayLike | Logged,
    *,
    horizon: int | None = None,
    coverage: float | None = None,
    eta: float | None = None,
    gamma: Gamma | None = None,
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

    >>> import understudy as us
    >>> learner = us.exp3_ix([0.5, 0.5], horizon=100)
    >>> state = learner.update(learner.init(), us.Feedback(action=1, reward=1.0))
    >>> learner.policy(state).round(4).tolist()
    [0.4616, 0.5384]
    """
    rate = exponential_rate(count(pi_b), horizon, eta, coverage)
    gamma = gamma_or(gamma, half_of(rate), horizon)
    return ExponentialWeights(rate, ImplicitExploration(pi_b, gamma), horizon)  # type: ignore[arg-type] # checked above


@constrained(
    n_actions=N_ACTIONS,
    horizon=HORIZON.optional(),
    eta=RATE.optional(),
    gamma=GAMMA.optional(),
    width=one_of("pass 'kl' for Chernoff's bounds, or leave it out", "hoeffding", "kl"),
)
def exp3_ix_unknown(
    n_actions: int,
    *,
    horizon: int | None = None,
    eta: float | None = None,
    gamma: Gamma | None = None,
    width: Literal["hoeffding", "kl"] = "hoeffding",
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

    >>> import understudy as us
    >>> learner = us.exp3_ix_unknown(2, horizon=100)
    >>> state = learner.update(learner.init(), us.Feedback(action=1, reward=1.0))
    >>> learner.policy(state).round(4).tolist()
    [0.48, 0.52]
    """
    rate = exponential_rate(n_actions, horizon, eta)
    if width == "kl":
        gamma = gamma_or(gamma, half_of(rate), horizon)
        return ExponentialWeights(rate, ChernoffPlugIn(n_actions, gamma), horizon)
    gamma = gamma_or(gamma, HoeffdingWidth(rate, n_actions), horizon)
    return ExponentialWeights(rate, PlugIn(n_actions, gamma), horizon)


@constrained(
    pi_b=BEHAVIOR,
    horizon=HORIZON.optional(),
    coverage=COVERAGE_RATIO.optional(),
    eta=RATE.optional(),
)
def prod(
    pi_b: ArrayLike | Logged,
    *,
    horizon: int | None = None,
    coverage: float | None = None,
    eta: float | None = None,
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

    >>> import understudy as us
    >>> learner = us.prod([0.5, 0.5], eta=0.5)
    >>> state = learner.update(learner.init(), us.Feedback(action=1, reward=1.0))
    >>> learner.policy(state).round(4).tolist()
    [0.3333, 0.6667]
    """
    rate = exponential_rate(count(pi_b), horizon, eta, coverage)
    return ExponentialWeights(rate, Logarithmic(pi_b, rate), horizon)  # type: ignore[arg-type] # checked above


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
    eta, w1 = resolved(own, rates, prior, multiplier)
    decaying = horizon is None and rates is None
    return CoverageAdaptive(pi_b, eta, w1, gain, horizon, decaying)  # type: ignore[arg-type] # checked above


KNOWN_COVARIANCE = {
    "V": COVARIANCES,
    "n_actions": N_ACTIONS,
    "horizon": HORIZON.optional(),
    "eta": RATE.optional(),
    "kappa": POSITIVE.optional(),
    "feature_bound": FEATURE_BOUND.optional(),
    "coverage": POSITIVE.optional(),
}


@constrained(**KNOWN_COVARIANCE)
def lin_prod(
    V: ArrayLike,
    *,
    n_actions: int,
    horizon: int | None = None,
    eta: float | None = None,
    kappa: float | None = None,
    feature_bound: float | None = None,
    coverage: float | None = None,
) -> LinProd:
    r"""LinProd for linear contextual bandits: Algorithm 2 and Theorem 3, the exact product.

    $$\hat\theta_t = V^{-1} \varphi(X_t, b) R, \qquad
    \pi_t(a|x) \propto \prod_{k<t} (1 + \eta \langle\hat\theta_k, \varphi(x,a)\rangle)$$

    Two tunings, each capped at the largest admissible rate 1/(2κ): η = √(log K / n), and
    η = √(log K / (C_φ n)) for a known feature coverage. `learner.capped` says whether the cap bit.

    Departs from the paper: it asks λ_min(V) ≥ 2η sup‖φ‖²; the weaker η κ ≤ ½ with
    κ = sup φᵀV⁻¹φ suffices, by Cauchy–Schwarz in the norm of V⁻¹.

    Args:
        V: E[Σ_a π_B(a|X) φ(X,a) φ(X,a)ᵀ], (d, d); or (K, p, p) for disjoint features.
        n_actions: K.
        horizon: n, the number of rounds that will be played.
        eta: η, instead of the rate that `horizon` and `coverage` give; refused above 1/(2κ).
        kappa: an upper bound on φ(x,a)ᵀ V⁻¹ φ(x,a) over all contexts and actions.
        feature_bound: B ≥ ‖φ(x,a)‖ instead; then κ = B²/λ_min(V).
        coverage: C_φ(π*; π_B) of the comparators to compete with; None for all of them.

    >>> import numpy as np, understudy as us
    >>> learner = us.lin_prod(np.eye(2) / 2, n_actions=2, horizon=100, kappa=2.0)
    >>> event = us.Feedback(action=1, reward=1.0, features=np.eye(2))
    >>> state = learner.update(learner.init(), event)
    >>> learner.policy(state, np.eye(2)).round(4).tolist()
    [0.4616, 0.5384]
    """
    features = features_of(V, n_actions)  # type: ignore[arg-type] # checked above
    kappa = kappa_of(features, kappa, feature_bound)
    rate, capped = capped_rate(n_actions, kappa, eta, horizon, coverage)
    return LinProd(rate, features, kappa, feature_bound, horizon, capped)


@constrained(**KNOWN_COVARIANCE)
def lin_prod_compact(
    V: ArrayLike,
    *,
    n_actions: int,
    horizon: int | None = None,
    eta: float | None = None,
    kappa: float | None = None,
    feature_bound: float | None = None,
    coverage: float | None = None,
) -> LinProdCompact:
    r"""LinProd in constant memory: Theorem 3 at a cost per round that does not grow.

    $$\hat\theta_t = V^{-1} \varphi(X_t, b) R, \qquad
    \pi_t(a|x) \propto \exp\big(\eta \langle\Theta, \varphi(x,a)\rangle
    - \eta^2 \varphi(x,a)^\top S \varphi(x,a)\big), \quad
    \Theta = \sum_{k<t} \hat\theta_k, \; S = \sum_{k<t} \hat\theta_k \hat\theta_k^\top$$

    Since $e^{z - z^2} \le 1 + z$ for z ≥ −½, the proof of Theorem 3 holds word for word
    (docs/theory.md). States are sums: they can be merged. The tunings are those of `lin_prod`.

    Without `horizon` and `eta` no horizon is needed: the rate falls as
    η_t = min(1/(2κ), √(log K / (2 C_φ t))), C_φ = 1 unless a `coverage` is given, held until t has
    grown by 5 %, and every gain z − η z² keeps the rate of its round
    (`us.theory.lin_prod_anytime_bound`). Such states cannot be merged.

    V must be fixed before the rounds that are learned from: known, or estimated on a part of the
    log that is neither learned from nor certified.

    Args:
        V: E[Σ_a π_B(a|X) φ(X,a) φ(X,a)ᵀ], (d, d); or (K, p, p) for disjoint features.
        n_actions: K.
        horizon: n, the number of rounds that will be played; None if it is not known.
        eta: η, instead of the rate that `horizon` and `coverage` give; refused above 1/(2κ).
        kappa: an upper bound on φ(x,a)ᵀ V⁻¹ φ(x,a) over all contexts and actions.
        feature_bound: B ≥ ‖φ(x,a)‖ instead; then κ = B²/λ_min(V).
        coverage: C_φ(π*; π_B) of the comparators to compete with; None for all of them.

    >>> import numpy as np, understudy as us
    >>> learner = us.lin_prod_compact(np.eye(2) / 2, n_actions=2, horizon=100, kappa=2.0)
    >>> event = us.Feedback(action=1, reward=1.0, features=np.eye(2))
    >>> state = learner.update(learner.init(), event)
    >>> learner.policy(state, np.eye(2)).round(4).tolist()
    [0.4654, 0.5346]
    """
    features = features_of(V, n_actions)  # type: ignore[arg-type] # checked above
    kappa = kappa_of(features, kappa, feature_bound)
    if eta is None and horizon is None:
        decaying = Decaying(lin_prod_rate(n_actions, 2, coverage))  # at t, the rate of n = 2t
        capped = decaying.scale > largest_lin_prod_rate(kappa)
        return LinProdCompact(decaying, features, kappa, feature_bound, horizon, capped)
    rate, capped = capped_rate(n_actions, kappa, eta, horizon, coverage)
    return LinProdCompact(rate, features, kappa, feature_bound, horizon, capped)


@constrained(
    n_actions=N_ACTIONS,
    dimension=COUNT,
    feature_bound=FEATURE_BOUND,
    horizon=HORIZON.optional(),
    eta=RATE.optional(),
    beta=POSITIVE.optional(),
    disjoint=TRUTH,
)
def lin_prod_unknown(
    *,
    n_actions: int,
    dimension: int,
    feature_bound: float,
    horizon: int | None = None,
    eta: float | None = None,
    beta: float | None = None,
    disjoint: bool = False,
) -> LinProdUnknown:
    r"""LinProd in constant memory with an estimate of V: a heuristic, without a guarantee.

    $$M_t = (\hat V_t + \beta I)^{-1}, \qquad \hat\theta_t = M_t \varphi(X_t, b) R, \qquad
    \beta = 2 \eta B^2$$

    V̂_t is the average of φ(X_k, b_k) φ(X_k, b_k)ᵀ over rounds before t; M changes when t has
    grown by 5 %. The weights are those of `lin_prod_compact`. β ≥ 2ηB² keeps |η⟨θ̂, φ⟩| ≤ ½ always,
    so that the weights stay sane, but that is all: the estimates are biased, and unlike Theorem 2's
    their bias has no sign, so its argument does not carry over (docs/theory.md).

    States cannot be merged: M_t depends on the order.

    Args:
        n_actions: K.
        dimension: d of the features (K, d); or p of contexts (p,) if they are disjoint.
        feature_bound: B ≥ ‖φ(x,a)‖, over all contexts and actions.
        horizon: n, the number of rounds that will be played; it gives η = √(log K / n).
        eta: η, instead of the rate that `horizon` gives.
        beta: β, instead of 2ηB², and not below it.
        disjoint: whether φ(x, a) = e_a ⊗ x, each action with a block of parameters of its own.

    >>> import numpy as np, understudy as us
    >>> learner = us.lin_prod_unknown(n_actions=2, dimension=2, feature_bound=1.0, horizon=100)
    >>> log = us.Log([1, 1, 1], [1.0, 1.0, 0.0], features=np.stack([np.eye(2)] * 3))
    >>> state, _ = learner.replay(learner.init(), log)
    >>> learner.policy(state, np.eye(2)).round(4).tolist()
    [0.4216, 0.5784]
    """
    rate = rate_or_horizon(eta, horizon, lambda n: lin_prod_rate(n_actions, n))
    beta = 2 * rate * feature_bound**2 if beta is None else beta
    return LinProdUnknown(rate, n_actions, dimension, feature_bound, beta, disjoint, horizon)


def exponential_rate(
    n_actions: int, horizon: int | None, eta: float | None, coverage: float | None = None
) -> Rate:
    """η if it was given, else the theorem's rate for the horizon, or one that needs none."""
    if horizon is None and eta is None:
        return Decaying(anytime_scale(n_actions, coverage))
    return rate_or_horizon(eta, horizon, lambda n: exp3_ix_rate(n_actions, n, coverage), coverage)


def half_of(rate: Rate) -> Schedule:
    """γ_t = η_t/2."""
    return HalfOf(rate) if isinstance(rate, Decaying) else Constant(rate / 2)


def rate_or_horizon(
    eta: float | None,
    horizon: int | None,
    tuning: Callable[[int], float],
    coverage: float | None = None,
) -> float:
    """η if it was given, else the theorem's rate for the horizon."""
    if eta is None and horizon is None:
        raise InvalidArgument(
            "horizon",
            None,
            "the theorem's learning rate depends on the number of rounds",
            "pass horizon=n or eta; lin_prod_compact needs neither",
        )
    if eta is not None and coverage is not None:
        raise InvalidArgument(
            "coverage", coverage, "eta fixes the rate already", "pass one of the two"
        )
    if eta is not None:
        return eta
    assert horizon is not None
    return tuning(horizon)


def gamma_or(gamma: Any, default: Schedule, horizon: int | None) -> Schedule:
    """γ_t if it was given, long enough for the horizon, else the theorem's."""
    if isinstance(gamma, Tabulated) and horizon is not None and len(gamma.gamma) < horizon:
        raise InvalidArgument(
            "gamma",
            f"an array of {len(gamma.gamma)}",
            f"the horizon is {horizon} rounds",
            "pass one entry per round, or a function of t",
        )
    return default if gamma is None else gamma


def count(pi_b: Any) -> int:
    """K of a checked behavior."""
    return pi_b.n_actions if isinstance(pi_b, Logged) else len(pi_b)


def capped_rate(
    n_actions: int, kappa: float, eta: float | None, horizon: int | None, coverage: float | None
) -> tuple[float, bool]:
    """η as given, or the theorem's for the horizon but at most 1/(2κ), and whether that cap bit."""
    wanted = rate_or_horizon(
        eta, horizon, lambda n: lin_prod_rate(n_actions, n, coverage), coverage
    )
    largest = largest_lin_prod_rate(kappa)
    capped = eta is None and wanted > largest
    return (largest if capped else wanted), capped


def features_of(V: Array, n_actions: int) -> Features:
    """V (d, d): shared features; V (K, p, p): one block per action."""
    if V.ndim == 2:  # noqa: PLR2004 - a matrix
        return SharedFeatures(V, n_actions)
    if len(V) != n_actions:
        raise InvalidArgument(
            "V",
            V.shape,
            f"disjoint features need one block per action, and n_actions = {n_actions}",
            f"pass V of shape ({n_actions}, p, p)",
        )
    return DisjointFeatures(V)


def kappa_of(features: Features, kappa: float | None, feature_bound: float | None) -> float:
    """κ as given, or B²/λ_min(V)."""
    if (kappa is None) == (feature_bound is None):
        why = "which V alone does not tell" if kappa is None else "and two values are given for it"
        raise InvalidArgument(
            "kappa",
            kappa,
            f"the admissible rate depends on κ = sup φᵀV⁻¹φ, {why}",
            "pass exactly one of kappa and feature_bound (B ≥ ‖φ(x,a)‖)",
        )
    if kappa is None:
        assert feature_bound is not None
        return kappa_from_feature_bound(features.V, feature_bound)
    return kappa
