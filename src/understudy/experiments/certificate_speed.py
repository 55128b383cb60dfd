"""Rounds until a certificate decides, beside the information limit and published sequences.

A game has fixed mean rewards and a target, Exp3-IX or a fixed policy, that earns more than
production, or less. Its certificate is observed until it promotes the target, or shows that it is
worse; by the rules of today, and by rules 1. The others:

- The *limit*: Σ_t KLinf(π_t) reaches log(1/δ). KLinf is the smallest divergence, per row, of the
  game's rewards from rewards for which the target earns no more than production. No valid test
  that looks at each round by itself decides much sooner, even if it knows the game.
- *Bernstein*: the empirical Bernstein process of Howard, Ramdas, McAuliffe and Sekhon (2021, their
  theorem 4) for the gain (w − 1) R, mixed over the bets of the certificate.
- *Hedged bets*: a bet on w − 1 and one on (w − 1) R, both chosen from the past by the quadratic
  lower bound on the logarithm (Karampatziakis, Mineiro and Ramdas 2021).
- *Plug-in bets*: on the gain less its center, (w − 1)(R − c), as Waudby-Smith, Wu, Ramdas,
  Karampatziakis and Mineiro (2022) do, with the bet aGRAPA of Waudby-Smith and Ramdas (2024).

The bets of the last two move with the data. Then they test whether *no round* has a gain. For a
fixed policy in a game with fixed means this is the question; for a learner it is not, so there they
are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from understudy.certificates import Certificate, FixedPolicy
from understudy.certificates.evidence import FIRST_RULES, POINTS, RULES, Bets
from understudy.certificates.targets import (
    Target,
    largest_ratios,
    probabilities_under,
)
from understudy.constraints import Array
from understudy.kernels.certificates import KAPPA
from understudy.learners import exp3_ix
from understudy.simulation import Game, adversaries
from understudy.simulation.game import RandomStreams, log_chunks
from understudy.types import Log

CONFIDENCE = 0.95
DELTA = 1.0 - CONFIDENCE
BISECTIONS = 60  # of θ: its last digits
# log(1 + x) ≥ x + PSI x² for x ≥ −1/2: the bound by which hedged bets are chosen.
PSI = 2.0 - 4.0 * math.log(2.0)
HEDGED_WEALTH = 0.5  # of one, which hedged bets keep in every round
WORLDS, WORLD_ROUNDS = 16, 20_000
LARGEST_WORLD = 15


@dataclass(frozen=True, eq=False)
class SpeedGame:
    """A game with fixed means, a target, and the decision that is right about it.

    Without a policy, the target is Exp3-IX from the uniform policy.
    """

    name: str
    behavior: tuple[float, ...]
    means: tuple[float, ...]
    policy: tuple[float, ...] | None
    rounds: int
    worse: bool = False

    @property
    def target(self) -> str:
        return "Exp3-IX" if self.policy is None else "fixed policy"

    @cached_property
    def game(self) -> Game:
        return Game(adversaries.stationary(self.means), self.behavior, self.rounds)


def best_of(means: Array) -> tuple[float, ...]:
    """The policy that always plays the best action."""
    return tuple(np.eye(len(means))[np.argmax(means)].tolist())


def speed_games() -> list[SpeedGame]:
    """The games of the table: better targets first, then worse ones."""
    ramp, second = np.linspace(1.0, 3.0, 10) / 20.0, np.where(np.arange(10) == 1, 0.7, 0.4)
    easy = tuple(ramp.tolist()), tuple(second.tolist())
    hard = (*[0.2 / 9] * 9, 0.8), (*[0.2] * 9, 0.6)
    high = (0.8, 0.2), (0.9, 0.95)
    clicks = (0.5, 0.2, 0.2, 0.1), (0.10, 0.12, 0.20, 0.05)
    return [
        SpeedGame("easy", *easy, None, 20_000),
        SpeedGame("hard", *hard, None, 20_000),
        SpeedGame("high rewards", *high, None, 20_000),
        SpeedGame("easy, best action", *easy, best_of(second), 20_000),
        SpeedGame("high rewards, best action", *high, (0.0, 1.0), 20_000),
        SpeedGame("clicks, best action", *clicks, best_of(np.array(clicks[1])), 20_000),
        SpeedGame("high, second action", (0.8, 0.2), (0.90, 0.85), (0.0, 1.0), 20_000, worse=True),
        SpeedGame("clicks, last action", *clicks, (0.0, 0.0, 0.0, 1.0), 40_000, worse=True),
        SpeedGame("hard, uniform", *hard, (0.1,) * 10, 20_000, worse=True),
        SpeedGame("coin, a quarter", (0.5, 0.5), (0.5, 0.45), (0.25, 0.75), 60_000, worse=True),
    ]


def random_worlds(seed: int) -> list[SpeedGame]:
    """Worlds that were drawn, not selected: every second one plays the best action."""
    rng, worlds = np.random.default_rng(seed), []
    for i in range(WORLDS):
        K = int(rng.integers(2, LARGEST_WORLD + 1))
        q = 0.9 * rng.dirichlet(np.ones(K)) + 0.1 / K
        means = np.clip(rng.uniform(0.05, 0.9) + rng.normal(0.0, 0.08, K), 0.01, 0.99)
        policy = best_of(means) if i % 2 else None
        arrays = tuple((q / q.sum()).tolist()), tuple(means.tolist())
        worlds.append(SpeedGame(f"world {i + 1}", *arrays, policy, WORLD_ROUNDS))
    return worlds


# ------------------------------------------------------------------------------ the limit


def least_divergence(policies: Array, behavior: Array, means: Array) -> Array:
    """KLinf of policies (n, K): min Σ_a q(a) kl(r(a), r'(a)) over r' with ⟨π − q, r'⟩ ≤ 0.

    0 where the policy earns no more than production. The minimum is where, for some θ ≥ 0,
    r' − r + θ v r' (1 − r') = 0 with v = π/q − 1; ⟨q v, r'⟩ falls in θ, which is bisected.
    """
    v = policies / behavior - 1.0
    better = (v * behavior) @ means > 0.0
    low, high = np.full(len(v), -60.0), np.full(len(v), 60.0)  # of log θ
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        still = (_tilted(np.exp(middle)[:, np.newaxis] * v, means) * v) @ behavior > 0.0
        low, high = np.where(still, middle, low), np.where(still, high, middle)
    tilted = _tilted(np.exp(high)[:, np.newaxis] * v, means)
    divergence = _kl(means, tilted) @ behavior
    return np.asarray(np.where(better, divergence, 0.0))


def _tilted(u: Array, r: Array) -> Array:
    """The root r' of r' − r + u r' (1 − r') = 0 in [0, 1]; of the two forms, the accurate one."""
    b = 1.0 + u
    root = np.sqrt(np.maximum(b * b - 4.0 * u * r, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(b > 0.0, 2.0 * r / (b + root), (b - root) / (2.0 * u))


def _kl(q: Array, p: Array) -> Array:
    """kl(q, p) of Bernoulli means, with 0 log 0 = 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        one = np.where(q > 0.0, q * np.log(q / p), 0.0)
        zero = np.where(q < 1.0, (1.0 - q) * np.log((1.0 - q) / (1.0 - p)), 0.0)
    return np.asarray(one + zero)


def limit_round(policies: Array, rounds: Array, behavior: Array, means: Array) -> float:
    """The first round with Σ KLinf(π_t) ≥ log(1/δ), from the policies at some of the rounds."""
    known = least_divergence(policies, behavior, means)
    total = np.cumsum(np.interp(np.arange(1, rounds[-1] + 1), rounds, known))
    return first_round(total >= -math.log(DELTA))


def first_round(decided: Array) -> float:
    """The first round, counted from 1, in which something holds; inf if there is none."""
    return float(np.argmax(decided) + 1) if decided.any() else math.inf


# ------------------------------------------------------------------- published sequences


def bernstein_round(w: Array, R: Array, bets: Bets) -> float:
    """The first round in which the empirical Bernstein process shows a gain.

    With X = (w − 1) R/2 ≥ −1/2 and the prediction X̂ ∈ [−1/2, 1/2], the mean so far,
    exp(λ Σ (X − μ) − (−log(1 − λ) − λ) Σ (X − X̂)²) is a supermartingale for λ in (0, 1).
    """
    x, t = (w - 1.0) * R / 2.0, np.arange(1, len(R) + 1)
    S = np.cumsum(x)
    V = np.cumsum((x - np.clip((S - x) / t, -0.5, 0.5)) ** 2)
    lambdas = bets.gains
    psi = -np.log1p(-lambdas) - lambdas
    prior = bets.prior.reshape(bets.rows, -1).sum(axis=0)
    wealth = np.exp(np.minimum(np.outer(S, lambdas) - np.outer(V, psi), 600.0)) @ prior
    return first_round(wealth >= 1.0 / DELTA)


def hedged_round(w: Array, R: Array, W: float) -> float:
    """The first round in which hedged bets show a gain: λ of the past on (w − 1, (w − 1) R).

    λ maximizes Σ_{k<t} (λ·x_k + ψ (λ·x_k)²), shrunk until 1 + λ·x ≥ 1/2 for all w and R possible.
    """
    x = np.stack([w - 1.0, (w - 1.0) * R], axis=1)
    sums = np.cumsum(x, axis=0) - x
    squares = np.cumsum(x[:, :, np.newaxis] * x[:, np.newaxis], axis=0)
    squares += np.eye(2) - x[:, :, np.newaxis] * x[:, np.newaxis]  # as if one round were known
    bets = np.linalg.solve(squares, sums[:, :, np.newaxis])[:, :, 0] / (-2.0 * PSI)
    bets[bets[:, 1] < 0.0] = 0.0  # it would bet on a loss
    corners = np.array([[W - 1.0, 0.0], [W - 1.0, W - 1.0], [-1.0, 0.0], [-1.0, -1.0]])
    loss = np.maximum(-(bets @ corners.T).min(axis=1), HEDGED_WEALTH)
    wealth = np.cumsum(np.log1p((bets * x).sum(axis=1) * HEDGED_WEALTH / loss))
    return first_round(wealth >= -math.log(DELTA))


def plug_in_round(w: Array, R: Array, W: float) -> float:
    """The first round in which plug-in bets show a gain: λ_t = Σ_{k<t} x_k / (1 + Σ_{k<t} x_k²)."""
    t = np.arange(1, len(R) + 1)
    center = (0.5 + np.cumsum(R) - R) / t
    x = (w - 1.0) * (R - center)
    bet = (np.cumsum(x) - x) / (1.0 + np.cumsum(x * x) - x * x)
    largest = KAPPA / np.maximum(1.0, (W - 1.0) * center)
    wealth = np.cumsum(np.log1p(np.clip(bet, 0.0, largest) * x))
    return first_round(wealth >= -math.log(DELTA))


# ------------------------------------------------------------------------------- one run


def first_worse(certificate: Certificate, log: Log, target: Target) -> float:
    """The first of the rounds 1, 2, …, each 2 % later, in which rules 1 show "worse".

    The upper bound on the target's reward is then below the lower bound on production's.
    """
    probability = probabilities_under(target, log, certificate.n_actions)
    points = [0, *POINTS[POINTS < len(log)].tolist(), len(log)]
    for low, high in pairwise(points):
        part = slice(low, high)
        certificate = certificate.advance(log[part], probability[part], math.inf)
        if certificate.upper < certificate.least_production():
            return float(high)
    return math.inf


def decision_rounds(game: SpeedGame, seed: int, run: int) -> dict[str, float]:
    """The round of the decision in one game, by each rule; inf if there is none."""
    (whole,) = log_chunks(
        game.game, RandomStreams(seed, run), size=game.rounds, all_rewards=False
    )
    log = whole.log.visible(propensities=False, features=False)
    q, means, R = game.game.behavior, np.array(game.means), log.rewards
    points = np.append(POINTS[POINTS < game.rounds], game.rounds)
    target: Target
    if game.policy is None:
        learner = exp3_ix(q, horizon=game.rounds)
        target = learner.replay(learner.init(), log)[1]
        policies = learner.policies(learner.init(), log)[1][points - 1]
    else:
        target = FixedPolicy(game.policy)
        policies = np.broadcast_to(np.array(game.policy), (len(points), len(q)))
    first = Certificate(q, CONFIDENCE, rules=FIRST_RULES)
    now = Certificate(q, CONFIDENCE, rules=RULES).observe(log, target)
    w = probabilities_under(target, log, len(q)) / q[log.actions]
    if game.worse:  # (w − 1)(1 − R) shows a loss as (w − 1) R shows a gain
        decided, before = now.worse_at, first_worse(first, log, target)
        means, R = 1.0 - means, 1.0 - R
    else:
        decided, at = now.promoted_at, first.observe(log, target).promoted_at
        before = at or math.inf
    found = {
        "limit": limit_round(policies, points, q, means),
        "now": decided or math.inf,
        "rules_1": before,
        "bernstein": bernstein_round(w, R, now.bets),
    }
    if game.policy is not None:
        W = float(largest_ratios(target, log[:1], q)[0])
        found |= {"hedged": hedged_round(w, R, W), "plug_in": plug_in_round(w, R, W)}
    return found
