"""The algorithms with features φ(x, a), by name: LinProd in three forms (Algorithm 2)."""

from __future__ import annotations

from numpy.typing import ArrayLike

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
)
from understudy.errors import InvalidArgument
from understudy.learners.lin_prod import LinProd, LinProdCompact, LinProdUnknown
from understudy.learners.linear import DisjointFeatures, Features, SharedFeatures
from understudy.schedules import Decaying, refuse_coverage_beside_eta
from understudy.theory.coverage_ratio import COVARIANCES
from understudy.theory.rates import (
    LIN_PROD_CURVATURE,
    SAFE_CURVATURE,
    kappa_from_feature_bound,
    largest_lin_prod_rate,
    lin_prod_rate,
)

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


@constrained(**KNOWN_COVARIANCE, curvature=SAFE_CURVATURE)
def lin_prod_compact(
    V: ArrayLike,
    *,
    n_actions: int,
    horizon: int | None = None,
    eta: float | None = None,
    kappa: float | None = None,
    feature_bound: float | None = None,
    coverage: float | None = None,
    curvature: float = LIN_PROD_CURVATURE,
) -> LinProdCompact:
    r"""LinProd in constant memory: Theorem 3 at a cost per round that does not grow.

    $$\hat\theta_t = V^{-1} \varphi(X_t, b) R, \qquad
    \pi_t(a|x) \propto \exp\big(\eta \langle\Theta, \varphi(x,a)\rangle
    - c\,\eta^2 \varphi(x,a)^\top S \varphi(x,a)\big), \quad
    \Theta = \sum_{k<t} \hat\theta_k, \; S = \sum_{k<t} \hat\theta_k \hat\theta_k^\top$$

    Since $e^{z - c z^2} \le 1 + z$ for z ≥ −½ and c ≥ 0.7726, Theorem 3 holds with c η n C_φ as its
    second term (docs/theory.md). States are sums: they can be merged. The tunings are those of
    `lin_prod`.

    Without `horizon` and `eta` no horizon is needed: the rate falls as
    η_t = min(1/(2κ), √(log K / (2 C_φ t))), C_φ = 1 unless a `coverage` is given, held until t has
    grown by 5 %, and every gain z − c η z² keeps the rate of its round
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
        curvature: c. A learner of release 0.5 has 1, and keeps it when it is loaded.

    >>> import numpy as np, understudy as us
    >>> learner = us.lin_prod_compact(np.eye(2) / 2, n_actions=2, horizon=100, kappa=2.0)
    >>> event = us.Feedback(action=1, reward=1.0, features=np.eye(2))
    >>> state = learner.update(learner.init(), event)
    >>> learner.policy(state, np.eye(2)).round(4).tolist()
    [0.4638, 0.5362]
    """
    features = features_of(V, n_actions)  # type: ignore[arg-type] # checked above
    kappa = kappa_of(features, kappa, feature_bound)
    if eta is None and horizon is None:
        decaying = Decaying(lin_prod_rate(n_actions, 2, coverage))  # at t, the rate of n = 2t
        capped = decaying.scale > largest_lin_prod_rate(kappa)
        return LinProdCompact(decaying, features, kappa, feature_bound, horizon, capped, curvature)
    rate, capped = capped_rate(n_actions, kappa, eta, horizon, coverage)
    return LinProdCompact(rate, features, kappa, feature_bound, horizon, capped, curvature)


@constrained(
    n_actions=N_ACTIONS,
    dimension=COUNT,
    feature_bound=FEATURE_BOUND,
    horizon=HORIZON.optional(),
    eta=RATE.optional(),
    beta=POSITIVE.optional(),
    disjoint=TRUTH,
    curvature=SAFE_CURVATURE,
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
    curvature: float = LIN_PROD_CURVATURE,
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
        curvature: c, as of `lin_prod_compact`.

    >>> import numpy as np, understudy as us
    >>> learner = us.lin_prod_unknown(n_actions=2, dimension=2, feature_bound=1.0, horizon=100)
    >>> log = us.Log([1, 1, 1], [1.0, 1.0, 0.0], features=np.stack([np.eye(2)] * 3))
    >>> state, _ = learner.replay(learner.init(), log)
    >>> learner.policy(state, np.eye(2)).round(4).tolist()
    [0.4075, 0.5925]
    """
    rate = rate_for(n_actions, eta, horizon)
    beta = 2 * rate * feature_bound**2 if beta is None else beta
    sizes = (n_actions, dimension, feature_bound)
    return LinProdUnknown(rate, *sizes, beta, disjoint, horizon, curvature)


def rate_for(
    n_actions: int, eta: float | None, horizon: int | None, coverage: float | None = None
) -> float:
    """η if it was given, else Theorem 3's rate for the horizon."""
    if eta is not None:
        refuse_coverage_beside_eta(coverage)
        return eta
    if horizon is None:
        raise InvalidArgument(
            "horizon",
            None,
            "the theorem's learning rate depends on the number of rounds",
            "pass horizon=n or eta; lin_prod_compact needs neither",
        )
    return lin_prod_rate(n_actions, horizon, coverage)


def capped_rate(
    n_actions: int, kappa: float, eta: float | None, horizon: int | None, coverage: float | None
) -> tuple[float, bool]:
    """η as given, or the theorem's for the horizon but at most 1/(2κ), and whether that cap bit."""
    wanted = rate_for(n_actions, eta, horizon, coverage)
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
