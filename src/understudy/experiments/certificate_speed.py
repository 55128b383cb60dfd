"""Rounds until a certificate decides, beside the information limit and published sequences.

A certificate is observed until it promotes a target that is better than production, or shows that
it is worse; by the rules of today, and by rules 1. Beside it stand

- the *limit*: Σ_t KLinf(π_t) reaches log(1/δ). KLinf is the smallest divergence, per round, of the
  rewards from rewards for which the target earns no more than production. On average, no valid test
  of a fixed policy decides sooner, even if it knows the game (half of the runs may be sooner).
- *Bernstein*: the empirical Bernstein process of Howard, Ramdas, McAuliffe and Sekhon (2021) for
  the gain (w − 1) R, mixed over the λ of the certificate.
- *hedged* bets: on w − 1 and on (w − 1) R, both chosen from the past by a quadratic lower bound on
  the logarithm, after Karampatziakis, Mineiro and Ramdas (2021). Bets that could lose too much are
  shrunk, where they are projected in the paper.
- *plug-in* bets: on the gain less its center, (w − 1)(R − c), after Waudby-Smith, Wu, Ramdas,
  Karampatziakis and Mineiro (2022), with the bet aGRAPA of Waudby-Smith and Ramdas (2024). The
  center is the mean reward so far, and the bet is capped in its place.

The bets of the last two move with the data. Then they test whether *no round* has a gain. For a
fixed policy in a game with fixed means, this is the question; for a learner it is not, so there
they are left out.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from understudy.behaviors import Logged, propensities_of
from understudy.certificates import Certificate, JointCertificate, certify
from understudy.certificates.evidence import FIRST_RULES, RULES, Bets
from understudy.certificates.targets import Target, largest_ratios, probabilities_under
from understudy.constraints import Array
from understudy.experiments.certificate_games import CONFIDENCE, FIXED
from understudy.experiments.decision_games import (
    BaselineGame,
    DecisionGame,
    GuardedGame,
    points_until,
)
from understudy.kernels.certificates import KAPPA, LARGEST_EXPONENT
from understudy.simulation.game import RandomStreams
from understudy.theory.information import least_divergence
from understudy.types import Integers, Log

DELTA = 1.0 - CONFIDENCE
SEQUENCES = ("limit", "now", "rules_1", "bernstein", "hedged", "plug_in")
# log(1 + x) ≥ x + PSI x² for x ≥ −1/2: the bound by which hedged bets are chosen.
PSI = 2.0 - 4.0 * math.log(2.0)
HEDGED_LOSS = 0.5  # the largest part of the wealth that hedged bets lose in a round


# ------------------------------------------------------------------------------ the limit


def limit_round(policies: Array, rounds: Integers, behavior: Array, means: Array) -> float:
    """The first round with Σ KLinf(π_t) ≥ log(1/δ), from the policies at some of the rounds."""
    known = least_divergence(policies, behavior, means)
    total = np.cumsum(np.interp(np.arange(1, rounds[-1] + 1), rounds, known))
    return first_round(total >= -math.log(DELTA))


def first_round(decided: NDArray[np.bool_]) -> float:
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
    wealth = np.exp(np.minimum(np.outer(S, lambdas) - np.outer(V, psi), LARGEST_EXPONENT)) @ prior
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
    loss = np.maximum(-(bets @ corners.T).min(axis=1), HEDGED_LOSS)
    wealth = np.cumsum(np.log1p((bets * x).sum(axis=1) * HEDGED_LOSS / loss))
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
    for low, high in pairwise([0, *points_until(len(log)).tolist()]):
        part = slice(low, high)
        certificate = certificate.advance(log[part], probability[part], math.inf)
        if certificate.upper < certificate.least_production():
            return float(high)
    return math.inf


def certified_share(game: BaselineGame, rounds: int, seed: int, run: int) -> dict[str, float]:
    """The lower bound on the mean gain after all rounds, as a share of the true one."""
    seen = game.observe(rounds, seed, run)
    log, known = seen.log, seen.known
    if game.apart:
        q = propensities_of(known, log)
        log, known = Log(log.actions, log.rewards, q), Logged(len(game.behavior))
    found = certify(log, seen.target, behavior=known, confidence=CONFIDENCE, against=game.against)
    assert found.gain is not None
    return {"certified": found.gain / rounds / game.gain}


def guarded_rounds(game: GuardedGame, rounds: int, seed: int, run: int) -> dict[str, float]:
    """The round of the promotion with guardrails, and of the goal alone; inf if there is none."""
    seen, streams = game.observe(rounds, seed, run), RandomStreams(seed, run)
    alone = Certificate(seen.known, CONFIDENCE)
    joint = JointCertificate.begin(alone, [metric.guardrail for metric in game.metrics])
    columns = seen.log, *alone.rounds_of(seen.log, seen.target)[1:3]
    units = [metric.unit(streams.unobserved, rounds) for metric in game.metrics]
    after = joint.advance(*columns, np.stack(units, axis=1))
    return {
        "now": after.promoted_at or math.inf,
        "alone": alone.advance(*columns).promoted_at or math.inf,
    }


def decision_rounds(game: DecisionGame, rounds: int, seed: int, run: int) -> dict[str, float]:
    """The round of the decision in one run by each sequence that applies; inf if there is none."""
    seen = game.observe(rounds, seed, run)
    log, target = seen.log, seen.target
    now = Certificate(seen.known, CONFIDENCE, rules=RULES).observe(log, target)
    first = Certificate(seen.known, CONFIDENCE, rules=FIRST_RULES)
    w = probabilities_under(target, log, now.n_actions) / propensities_of(seen.known, log)
    R, means = log.rewards, seen.means
    if game.worse:  # (w − 1)(1 − R) shows a loss as (w − 1) R shows a gain
        decided, before = now.worse_at, first_worse(first, log, target)
        R, means = 1.0 - R, 1.0 - means
    else:
        decided = now.promoted_at
        before = first.observe(log, target).promoted_at or math.inf
    found = {
        "limit": limit_round(seen.policies, seen.points, seen.behavior, means),
        "now": decided or math.inf,
        "rules_1": before,
        "bernstein": bernstein_round(w, R, now.bets),
    }
    if game.target == FIXED:
        W = float(largest_ratios(target, log, seen.known)[0])
        found |= {"hedged": hedged_round(w, R, W), "plug_in": plug_in_round(w, R, W)}
    return found
