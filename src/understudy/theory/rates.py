"""The learning rates of the theorems, and the regret at them in terms of the coverage alone.

Rates without a horizon are η_t = s/√t, held until t has grown by 5 % (docs/theory.md).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from understudy.constraints import (
    FEATURE_BOUND,
    HORIZON,
    LARGEST_RATE,
    N_ACTIONS,
    POSITIVE,
    PROBABILITIES,
    RATE,
    constrained,
    number,
)
from understudy.errors import InvalidArgument
from understudy.schedules import ETA, Rate, rate_at, rounds_at_each_rate
from understudy.theory.coverage_ratio import (
    COVARIANCES,
    COVERAGE_RATIO,
    FEATURE_RATIO,
    RATIO,
    smallest_probability,
)

HELD_RATE_FACTOR = math.sqrt(1.05)  # a rate held until t grows by 5 % is at most this × s/√t
# log(1 + z) ≥ z − c z² for all z ≥ −½ if and only if c ≥ 4 log 2 − 2 = 0.772588…: rounded up.
LIN_PROD_CURVATURE = 0.7726
FIRST_CURVATURE = 1.0  # c of the paper's lemma, and of release 0.5
SAFE_CURVATURE = number(
    LIN_PROD_CURVATURE,
    FIRST_CURVATURE,
    "pass 0.7726, the smallest that suits every admissible rate, or 1, that of release 0.5",
)


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, coverage=COVERAGE_RATIO.optional())
def exp3_ix_rate(n_actions: int, horizon: int, coverage: float | None = None) -> float:
    r"""Theorem 1's rates: $\sqrt{\log K / n}$, or $\sqrt{2 \log K / (C n)}$ for a coverage C.

    The second minimises log K/η + ηCn/2. The paper prints √(log K/(C n)), which does not give
    the bound it states (docs/paper.md). Theorem 2 uses the first.

    >>> round(exp3_ix_rate(100, 10_000), 4), round(exp3_ix_rate(100, 10_000, coverage=2.0), 4)
    (0.0215, 0.0215)
    """
    if coverage is None:
        return math.sqrt(math.log(n_actions) / horizon)
    return math.sqrt(2.0 * math.log(n_actions) / (coverage * horizon))


@constrained(n_actions=N_ACTIONS, coverage=COVERAGE_RATIO.optional())
def anytime_scale(n_actions: int, coverage: float | None = None) -> float:
    r"""s of the rate $\eta_t = s/\sqrt t$, which needs no horizon: $\sqrt{\log K/2}$, or
    $\sqrt{\log K/C}$ for a coverage C.

    They minimise log K/η_n + (C/2) Σ_t η_t ≤ √n (log K/s + C s), the first at C = 2
    (`theorem1_anytime_bound`).

    >>> round(anytime_scale(100), 4), round(anytime_scale(100, coverage=2.0), 4)
    (1.5174, 1.5174)
    """
    return math.sqrt(math.log(n_actions) / (2.0 if coverage is None else coverage))


@constrained(pi_b=PROBABILITIES, horizon=HORIZON)
def exp3_worst_case_rate(pi_b: ArrayLike, *, horizon: int) -> float:
    r"""The rate that minimises Exp3's bound in the worst case, $\sqrt{\min q \log K / n}$.

    It satisfies the bound's condition η ≤ min q as soon as n ≥ log K / min q.

    >>> round(exp3_worst_case_rate([0.01, 0.99], horizon=10_000), 6)
    0.000833
    """
    n_actions = len(np.asarray(pi_b))
    return math.sqrt(smallest_probability(pi_b) * math.log(n_actions) / horizon)


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, coverage=POSITIVE.optional())
def lin_prod_rate(n_actions: int, horizon: int, coverage: float | None = None) -> float:
    r"""Theorem 3's rates: $\sqrt{\log K / n}$, or $\sqrt{\log K / (C_\varphi n)}$.

    Neither need be admissible: see `largest_lin_prod_rate`.

    >>> round(lin_prod_rate(10, 10_000), 4), round(lin_prod_rate(10, 10_000, coverage=4.0), 4)
    (0.0152, 0.0076)
    """
    return math.sqrt(math.log(n_actions) / ((coverage or 1.0) * horizon))


@constrained(kappa=POSITIVE)
def largest_lin_prod_rate(kappa: float) -> float:
    r"""The largest admissible rate of LinProd, $1/(2\kappa)$ with κ ≥ sup φᵀV⁻¹φ.

    Then |η r̂| = η R |φᵀV⁻¹φ'| ≤ η κ ≤ ½, by Cauchy–Schwarz in the norm of V⁻¹.

    >>> largest_lin_prod_rate(20.0)
    0.025
    """
    return 1.0 / (2.0 * kappa)


@constrained(V=COVARIANCES, feature_bound=FEATURE_BOUND)
def kappa_from_feature_bound(V: ArrayLike, feature_bound: float) -> float:
    r"""$\kappa \le B^2/\lambda_{\min}(V)$ for features with ‖φ(x,a)‖ ≤ B.

    With it, the largest admissible rate is the paper's: λ_min(V) ≥ 2ηB².

    >>> kappa_from_feature_bound([[0.5, 0.0], [0.0, 0.25]], 1.0)
    4.0
    """
    smallest = float(np.linalg.eigvalsh(np.asarray(V)).min())
    if feature_bound**2 > LARGEST_RATE * smallest:
        raise InvalidArgument(
            "feature_bound",
            feature_bound,
            f"λ_min(V) = {smallest:.3g} is so much smaller that no rate is left: 1/(2κ) = "
            "λ_min(V)/(2B²)",
            "scale the features so that V is not that small, or give kappa",
        )
    return feature_bound**2 / smallest


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, coverage=RATIO)
def theorem1_uniform_bound(n_actions: int, horizon: int, coverage: float) -> float:
    r"""Theorem 1 at η = √(log K/n): $\sqrt{n \log K} (1 + C/2)$, for all comparators at once.

    >>> round(theorem1_uniform_bound(100, 10_000, coverage=50.5), 1)
    5633.2
    """
    return math.sqrt(horizon * math.log(n_actions)) * (1 + coverage / 2)


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, coverage=RATIO)
def theorem1_tuned_bound(n_actions: int, horizon: int, coverage: float) -> float:
    r"""Theorem 1 at η = √(2 log K/(C n)): $\sqrt{2 C n \log K}$, for comparators of coverage ≤ C.

    >>> round(theorem1_tuned_bound(100, 10_000, coverage=50.5), 1)
    2156.7
    """
    return math.sqrt(2 * coverage * horizon * math.log(n_actions))


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, coverage=RATIO)
def theorem1_anytime_uniform_bound(n_actions: int, horizon: int, coverage: float) -> float:
    r"""At $s = \sqrt{\log K/2}$: $\sqrt{2 n \log K} (1 + \sqrt{1.05}\, C/2)$, for all comparators.

    >>> round(theorem1_anytime_uniform_bound(100, 10_000, coverage=50.5), 1)
    8155.7
    """
    return math.sqrt(2 * horizon * math.log(n_actions)) * (1 + HELD_RATE_FACTOR * coverage / 2)


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, coverage=RATIO)
def theorem1_anytime_tuned_bound(n_actions: int, horizon: int, coverage: float) -> float:
    r"""At $s = \sqrt{\log K/C}$: $(1 + \sqrt{1.05}) \sqrt{C n \log K}$, for coverage ≤ C.

    >>> round(theorem1_anytime_tuned_bound(100, 10_000, coverage=50.5), 1)
    3087.7
    """
    return (1 + HELD_RATE_FACTOR) * math.sqrt(coverage * horizon * math.log(n_actions))


@constrained(pi_b=PROBABILITIES, horizon=HORIZON)
def exp3_worst_case_bound(pi_b: ArrayLike, *, horizon: int) -> float:
    r"""Exp3's bound at its best rate in the worst case: $2\sqrt{n \log K / \min q}$.

    The rate is `exp3_worst_case_rate`; it is admissible for n ≥ log K/min q.

    >>> round(exp3_worst_case_bound([0.01, 0.99], horizon=10_000), 1)
    1665.1
    """
    q = np.asarray(pi_b)
    return 2 * math.sqrt(horizon * math.log(len(q)) / smallest_probability(q))


@constrained(pi_b=PROBABILITIES, horizon=HORIZON)
def exp3_order(pi_b: ArrayLike, *, horizon: int) -> float:
    r"""The paper's remark on Exp3: its regret is of the order $\sqrt{n / \min q}$, constants apart.

    >>> round(exp3_order([0.01, 0.99], horizon=10_000), 6)
    1000.0
    """
    return math.sqrt(horizon / smallest_probability(pi_b))


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, coverage=RATIO)
def theorem2_simplified_bound(n_actions: int, horizon: int, coverage: float) -> float:
    r"""Theorem 2 at η = √(log K/n), with honest constants:

    $$\frac{16 + \log K}{\eta} + \Big(\frac{\eta n}{2} + 4\sqrt{n \log(Kn)}\Big) C + 2$$

    The paper's last display has 2√(n log(Kn)), which is too small (docs/paper.md).

    >>> round(theorem2_simplified_bound(10, 1000, coverage=10.0), 1)
    4462.2
    """
    eta = math.sqrt(math.log(n_actions) / horizon)
    width = 4 * math.sqrt(horizon * math.log(n_actions * horizon))
    return (16 + math.log(n_actions)) / eta + (eta * horizon / 2 + width) * coverage + 2


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, eta=RATE, coverage=RATIO)
def chernoff_simplified_bound(
    n_actions: int, *, horizon: int, eta: float, coverage: float
) -> float:
    r"""`chernoff_bound` in terms of the coverage, with ℓ = log(K n²):

    $$\frac{\log K + 1.3/K}{\eta} + 1 + \frac{\eta n C}{2} + (1 + 2\sqrt{2\ell}) \sqrt{(C-1) n}$$

    >>> round(chernoff_simplified_bound(10, horizon=1000, eta=0.05, coverage=10.0), 1)
    1471.8
    """
    length = math.log(n_actions) + 2 * math.log(horizon)
    width = (1 + 2 * math.sqrt(2 * length)) * math.sqrt(max(0.0, coverage - 1) * horizon)
    start = (math.log(n_actions) + 1.3 / n_actions) / eta
    return start + 1 + eta * horizon * coverage / 2 + width


@constrained(
    n_actions=N_ACTIONS,
    horizon=HORIZON,
    eta=RATE,
    coverage=FEATURE_RATIO,
    curvature=SAFE_CURVATURE,
)
def lin_prod_bound(
    n_actions: int,
    *,
    horizon: int,
    eta: float,
    coverage: float,
    curvature: float = FIRST_CURVATURE,
) -> float:
    r"""Theorem 3 for any admissible η: $\frac{\log K}{\eta} + c\,\eta n C_\varphi(\pi^*; \pi_B)$.

    c = 1, the default, is the paper's own statement, and holds for `us.lin_prod` and every
    `us.lin_prod_compact`. A learner has its own c, 0.7726 but for files of release 0.5: pass
    `curvature=learner.curvature` for the sharper bound (docs/theory.md, section 8).

    >>> round(lin_prod_bound(10, horizon=10_000, eta=0.01, coverage=5.0), 2)
    730.26
    >>> round(lin_prod_bound(10, horizon=10_000, eta=0.01, coverage=5.0, curvature=0.7726), 2)
    616.56
    """
    return math.log(n_actions) / eta + curvature * (eta * horizon * coverage)


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, coverage=FEATURE_RATIO)
def lin_prod_uniform_bound(n_actions: int, horizon: int, coverage: float) -> float:
    r"""Theorem 3 at η = √(log K/n), if that is admissible: $\sqrt{n \log K} (1 + C_\varphi)$.

    It is the paper's own statement; `lin_prod_bound` at this rate has the sharper one.

    >>> round(lin_prod_uniform_bound(10, 10_000, coverage=5.0), 2)
    910.46
    """
    return math.sqrt(horizon * math.log(n_actions)) * (1 + coverage)


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, coverage=FEATURE_RATIO)
def lin_prod_tuned_bound(n_actions: int, horizon: int, coverage: float) -> float:
    r"""Theorem 3 at η = √(log K/(C_φ n)), if that is admissible: $2\sqrt{C_\varphi n \log K}$.

    It is the paper's own statement; `lin_prod_bound` at this rate has the sharper one.

    >>> round(lin_prod_tuned_bound(10, 10_000, coverage=5.0), 2)
    678.61
    """
    return 2 * math.sqrt(coverage * horizon * math.log(n_actions))


@constrained(
    n_actions=N_ACTIONS,
    horizon=HORIZON,
    eta=ETA,
    kappa=POSITIVE,
    coverage=FEATURE_RATIO,
    curvature=SAFE_CURVATURE,
)
def lin_prod_anytime_bound(
    n_actions: int,
    *,
    horizon: int,
    eta: Rate,
    kappa: float,
    coverage: float,
    curvature: float = FIRST_CURVATURE,
) -> float:
    r"""Theorem 3 for a rate that falls with time, after any number of rounds n:

    $$\frac{\log K}{\eta_n} + c\,C_\varphi(\pi^*; \pi_B) \sum_{t=1}^n \eta_t,
    \qquad \eta_t = \min\big(1/(2\kappa), s/\sqrt{t'}\big)$$

    with t' the round in which the rate was set (`learner.eta`, `learner.kappa` and
    `learner.curvature`, which is c, of `us.lin_prod_compact`). The default c = 1 holds for every
    such learner. At s = √(log K/2), once the cap no longer bites, it is then about
    √(2 n log K)(1 + C_φ): √2 times what a known horizon gives.

    >>> from understudy.schedules import Decaying
    >>> eta = Decaying(math.sqrt(math.log(10) / 2))
    >>> round(lin_prod_anytime_bound(10, horizon=10_000, eta=eta, kappa=20.0, coverage=5.0), 1)
    1064.0
    """
    moves, lasting = rounds_at_each_rate(horizon)
    wanted = np.broadcast_to(rate_at(eta, moves), moves.shape)
    rates = np.minimum(largest_lin_prod_rate(kappa), wanted)
    price = coverage * float((lasting * rates).sum())
    return math.log(n_actions) / float(rates[-1]) + curvature * price
