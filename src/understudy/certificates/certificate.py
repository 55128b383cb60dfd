"""The certificate: a betting confidence sequence for off-policy evaluation, O(1) a round.

A confidence sequence is an interval after every round that holds for all rounds at once, so that a
log may be looked at, and stopped, at any time. This one bets: each λ of a grid is a strategy, its
wealth is an e-process, and a mean reward is excluded once the mean wealth against it reaches 1/δ.

In round t the behavior plays b with probability q_t(b) and gets R; the target would have played b
with probability π_t(b), which depends on the past alone. With w = π_t(b)/q_t(b),

    x_t = w R    has mean  μ_t = ⟨π_t, r_t⟩,    and Π_t (1 + λ x_t) / (1 + λ μ_t) is a martingale

for every λ > 0 and any adversary: the wealth of a bet on λ. Mixed over a grid of λ_i with equal
weights ρ_i, it ever reaches 1/δ with probability δ at most (Ville), and Σ_t log(1 + λ μ_t) is at
most n log(1 + λ μ̄) (Jensen): so with probability 1 − δ, for all n at once, μ̄ ≥ m, the root of

    Σ_i ρ_i exp(S_i − n log(1 + λ_i m)) = 1/δ,    S_i = Σ_t log(1 + λ_i x_t).

The upper bound is the same for 1 − R, on 1 − μ̄; each of the two spends δ/2. The gain over
production is bounded by the same with x_t = (w − 1) R ≥ −1, λ_i < 1, and a δ of its own: noise that
both policies share cancels. Proofs are in docs/theory.md.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from understudy import kernels
from understudy.behaviors import Behavior, Logged, propensities_of
from understudy.certificates.evidence import (
    BEHAVIOR_OR_NONE,
    CONFIDENCE,
    EVIDENCE,
    LAMBDAS,
    LARGEST_BET,
    Evidence,
    resolve_n_actions,
)
from understudy.certificates.targets import Target, probabilities_under
from understudy.constraints import N_ACTIONS, Array, enforce
from understudy.deprecated import OldName
from understudy.errors import InvalidArgument, InvalidEvent, InvalidSnapshot, NotMergeable
from understudy.formatting import count, counted, least_gain, number, percent
from understudy.protocols import EventSpec
from understudy.snapshots import REMEDY, from_text, read_text, to_text, write_atomically
from understudy.types import Feedback, Integers, Log, chunks, kernel_view, one_event, saved

CHUNK = 1 << 13  # events at a time: their columns, 256 KB, stay in the cache
CONTRADICTION = (
    "the bounds contradict each other, so behavior, propensities or target are wrong: check the "
    "order of the actions, and that every probability was made before its own round"
)
# Of δ, for the bounds on a counted behavior: it enters through log(1/δ) alone.
COUNTING_SHARE = 0.25


@saved
@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """A betting confidence sequence for the reward of a target policy, from another policy's log.

    Off-policy evaluation with bounds that hold after every round at once: look at them at any time.
    A certificate is a value; `observe` returns the next one. The importance weights π(b)/q(b)
    measure the overlap of target and behavior: with little overlap the bounds are wide.

    All bounds are totals over the rounds so far. `lower` and `upper` hold together, at all times,
    with the `confidence`, and `gain` by itself. They are about π_1 … π_n, the policies while they
    were learning: the last one is certified by rounds that come after it.

    Args:
        behavior: q, K probabilities; `us.Logged`, to use the propensities of the log, which may
            drift; or None, if propensities are unknown. They are then estimated from action
            frequencies: the behavior must be the same in all rounds and contexts, part of δ pays
            for it, and no gain is certified (`gain`, `promoted` and `promoted_at` are None).
        confidence: 1 − δ.
        n_actions: K, where `behavior` does not tell it.
        lambdas: the grid of λ; the gain's is 0.9 λ for every λ ≤ 1. Left out: 4, 2, 1, …, 2^-21.
        evidence: what was observed so far; left out: nothing.

    >>> import understudy as us
    >>> certificate = us.Certificate(behavior=[0.5, 0.5])
    >>> log = us.Log(actions=[0, 1] * 500, rewards=[0.0, 1.0] * 500)
    >>> certificate = certificate.observe(log, [0.1, 0.9])
    >>> certificate.rounds, round(certificate.lower), round(certificate.upper)
    (1000, 796, 912)
    >>> certificate.observe(us.Feedback(action=1, reward=1.0), 0.9).rounds
    1001
    """

    behavior: Behavior | None
    confidence: float = 0.95
    n_actions: int = None  # type: ignore[assignment] # filled in, as the next two
    lambdas: Array = None  # type: ignore[assignment]
    evidence: Evidence = None  # type: ignore[assignment]

    if TYPE_CHECKING:

        def __init__(
            self,
            behavior: ArrayLike | Logged | None,
            confidence: float = 0.95,
            n_actions: int | None = None,
            lambdas: ArrayLike | None = None,
            evidence: Evidence | None = None,
        ) -> None: ...

    CONSTRAINTS: ClassVar = {
        "behavior": BEHAVIOR_OR_NONE,
        "confidence": CONFIDENCE,
        "n_actions": N_ACTIONS.optional(),
        "lambdas": LAMBDAS,
        "evidence": EVIDENCE.optional(),
    }
    form, of_sums = OldName(), OldName()

    def __post_init__(self) -> None:
        enforce(self)
        object.__setattr__(self, "n_actions", resolve_n_actions(self.behavior, self.n_actions))
        if self.evidence is None:
            counted = self.n_actions if self.behavior is None else 0
            object.__setattr__(self, "evidence", Evidence.none(len(self._grids), counted))
        elif not self._can_have_observed(self.evidence):
            raise InvalidArgument(
                "evidence",
                self.evidence,
                "no certificate that was made like this one can have observed it",
                "pass the evidence of a certificate with the same arguments, or leave it out",
            )

    def observe(self, log: Log | Feedback, target: Target) -> Certificate:
        """The certificate after more rounds; a bad event raises and nothing of the log is observed.

        `target` is the trace of a learner, a fixed policy (K,), or the probability of each logged
        action under the target (n,), of one event also as a number. All must be made of earlier
        rounds only (`us.certify` says more). Features are not read.
        """
        shown = self.check(log)
        return self.advance(shown, probabilities_under(target, shown, self.n_actions))

    def advance(self, log: Log, probabilities: Array) -> Certificate:
        """`observe` of a log that `check` returned, with π_t(b_t) of every round, both checked."""
        evidence, threshold = self.evidence, 1.0 / self._delta
        for start, rounds in chunks(len(log), CHUNK):
            part = log[start : start + rounds]
            q, counts = self._propensities(evidence, part)
            columns = (probabilities[start : start + rounds], q, part.rewards)
            evidence = evidence.after(self._grids, len(self.lambdas), threshold, columns, counts)
        return self._with_evidence(evidence)

    def check(self, log: Log | Feedback) -> Log:
        """The log without unread columns, or `InvalidEvent` at the first bad event."""
        shown = one_event(log) if isinstance(log, Feedback) else log
        if isinstance(shown, Log):
            if self.behavior is None and shown.features is not None:
                raise InvalidEvent(
                    "features",
                    shown.features.shape,
                    "a behavior that depends on them cannot be counted without them",
                    "pass behavior=us.Logged(n_actions=K), or leave them out if it does not",
                )
            shown = shown.visible(propensities=True, features=False)
        self.spec.check(shown)
        return shown

    def merge(self, other: Certificate) -> Certificate:
        """The certificate of two logs of different rounds that were observed apart, up to rounding.

        Cut the logs before you look at them, such as by day or by machine: bounds that hold at all
        times do not hold for parts that were chosen by their content. When the mixture of the gain
        reached 1/δ in between cannot be known, so `promoted` says whether it has now, or did in the
        rounds observed since, and `promoted_at` is None.
        """
        self._refuse_counted()
        if not isinstance(other, Certificate) or self._arguments() != other._arguments():
            raise InvalidArgument(
                "other",
                other,
                "it was not made with the same behavior, confidence and lambdas",
                "make both certificates with the same arguments",
            )
        if not other.rounds or not self.rounds:
            return other if not self.rounds else self
        return self._with_evidence(self._with_crossing(self.evidence.merge(other.evidence)))

    def from_sufficient_statistics(
        self, rounds: int, S: ArrayLike, totals: ArrayLike
    ) -> Certificate:
        """The same certificate of rounds whose sums were made elsewhere, such as by a database.

        `S` are S_i = Σ_t log(1 + λ_i x_t) of the three `grids`, one after the other, and `totals`
        Σ R, Σ w R, Σ w and Σ w². As of merged logs, `promoted_at` is not known.

        >>> import understudy as us
        >>> empty = us.Certificate(behavior=[0.5, 0.5], lambdas=[1.0])
        >>> log = us.Log(actions=[0, 1] * 500, rewards=[0.0, 1.0] * 500)
        >>> known = empty.observe(log, [0.1, 0.9])
        >>> sums = known.evidence.log_wealths(), known.evidence.totals
        >>> again = empty.from_sufficient_statistics(1000, *sums)
        >>> again.lower == known.lower, again.promoted, again.promoted_at
        (True, True, None)
        """
        self._refuse_counted()
        summed = Evidence.from_sufficient_statistics(rounds, S, totals)
        return dataclasses.replace(self, evidence=self._with_crossing(summed))

    @property
    def rounds(self) -> int:
        """n, how many rounds were observed."""
        return self.evidence.rounds

    @property
    def lower(self) -> float:
        """A lower bound on the total reward of the target, Σ_t ⟨π_t, r_t⟩."""
        return self.rounds * self._root(0, self._side_delta, 0.0)

    @property
    def upper(self) -> float:
        """An upper bound on the total reward of the target."""
        return self.rounds * (1.0 - self._root(1, self._side_delta, 0.0))

    @property
    def gain(self) -> float | None:
        """A lower bound on the total gain over production, Σ_t ⟨π_t − π_B, r_t⟩."""
        if self.behavior is None:
            return None
        return self.rounds * self._root(2, self._delta, -1.0) + 0.0  # -0.0 before round 1

    @property
    def production(self) -> float:
        """Σ_t R_t, what the behavior policy earned."""
        return float(self.evidence.totals[0])

    def least_production(self, earned: float | None = None) -> float:
        """A lower bound on Σ_t ⟨π_B, r_t⟩, the expected reward of production.

        A target whose `upper` is below it earns less than production, with the `confidence`. It is
        the `lower` of w = 1, whose log(1 + λR) is at least R log(1 + λ). `earned` takes the place
        of Σ_t R_t, where less of it is certain.

        >>> import understudy as us
        >>> log = us.Log(actions=[0, 1] * 500, rewards=[0.0, 1.0] * 500)
        >>> certificate = us.Certificate(behavior=[0.5, 0.5]).observe(log, [1.0, 0.0])
        >>> certificate.production, round(certificate.least_production())
        (500.0, 443)
        """
        total = self.production if earned is None else earned
        S = total * np.log1p(self.lambdas)
        threshold = -math.log(self._side_delta)
        mean = kernels.certificates.root(S, kernel_view(self.lambdas), self.rounds, threshold, 0.0)
        return self.rounds * float(mean)

    @property
    def estimate(self) -> float:
        """Σ_t w_t R_t, the inverse propensity score; too low where q is counted, thus bounded."""
        return float(self.evidence.totals[1])

    @property
    def self_normalised(self) -> float:
        """n Σ_t w_t R_t / Σ_t w_t; nan where the target plays nothing that was logged."""
        _, weighted, weights, _ = self.evidence.totals.tolist()
        return self.rounds * (weighted / weights) if weights else math.nan

    @property
    def effective_sample_size(self) -> float:
        """(Σ_t w_t)² / Σ_t w_t²: so many rounds of the target itself would say as much."""
        *_, weights, squares = self.evidence.totals.tolist()
        return weights * (weights / squares) if squares else 0.0

    @property
    def promoted(self) -> bool | None:
        """Whether the target has, at some time, been shown to earn more than production.

        Of merged logs: by the whole of them, or since. Withheld where the bounds contradict each
        other, which shows that the propensities or the target's probabilities are wrong.
        """
        if self.behavior is None:
            return None
        return self.evidence.crossed > 0 and not self.lower > self.upper

    @property
    def promoted_at(self) -> int | None:
        """The first round, counted from 1, after which `promoted` held."""
        known = self.promoted and not self.evidence.merged
        return self.evidence.crossed if known else None

    def __repr__(self) -> str:
        n, confidence = self.rounds, f"{percent(self.confidence)} confidence"
        if not n:
            return f"Certificate({confidence}, nothing observed yet)"
        if self.lower > self.upper:
            return f"Cannot tell after {counted(n, 'round')}: {CONTRADICTION}"
        decision, gained = "No gain is certified (propensities are estimated)", ""
        if self.gain is not None:
            when = self.promoted_at and f" (certain since round {count(self.promoted_at)})"
            promoted = f"{'Promote' if self.gain > 0.0 else 'No gain any more'}{when or ''}"
            decision = promoted if self.promoted else "Not enough data yet"
            gained = f"gain at least {least_gain(self.gain / n)}, "
        return (
            f"{decision} after {counted(n, 'round')}: {gained}the target earns at least "
            f"{number(self.lower / n)}, production earned {number(self.production / n)} per round "
            f"({confidence})"
        )

    @cached_property
    def spec(self) -> EventSpec:
        """What an event must look like."""
        q = self.behavior
        return dataclasses.replace(
            EventSpec(self.n_actions) if q is None else EventSpec.for_behavior(q),
            unread="leave it out, or pass behavior=us.Logged(n_actions=K) to use it",
            unseen="correct the behavior, or pass us.Logged, or None if it is not known",
        )

    @property
    def grids(self) -> tuple[Array, Array, Array]:
        """The λ of the lower bound, of the upper bound, and of the gain, none if it is counted."""
        size = len(self.lambdas)
        return self._grids[:size], self._grids[size : 2 * size], self._grids[2 * size :]

    @cached_property
    def _grids(self) -> Array:
        gain = LARGEST_BET * self.lambdas[self.lambdas <= 1.0]
        parts = [self.lambdas, self.lambdas]
        return kernel_view(np.concatenate(parts if self.behavior is None else [*parts, gain]))

    @property
    def _delta(self) -> float:
        return 1.0 - self.confidence

    @property
    def _side_delta(self) -> float:
        """The part of δ that the lower bound, and the upper bound, may fail with."""
        return self._delta * ((1.0 - COUNTING_SHARE) if self.behavior is None else 1.0) / 2.0

    def _with_evidence(self, evidence: Evidence) -> Certificate:
        """The same certificate of other evidence; what it was made with was checked before."""
        other = copy.copy(self)
        object.__setattr__(other, "evidence", evidence)
        return other

    def _propensities(self, evidence: Evidence, log: Log) -> tuple[Array, Integers]:
        """q_t(b_t), or an upper confidence bound on it; and the counts after these rounds."""
        if self.behavior is None:
            return evidence.count(log.actions, COUNTING_SHARE * self._delta)
        return propensities_of(self.behavior, log), evidence.counts

    def _root(self, part: int, delta: float, low: float) -> float:
        """The root m for the lower bound (part 0), the upper bound (1) or the gain (2)."""
        own = slice(part * len(self.lambdas), (part + 1) * len(self.lambdas))
        S = self.evidence.log_wealths()[own]
        return float(
            kernels.certificates.root(S, self._grids[own], self.rounds, -math.log(delta), low)
        )

    def _refuse_counted(self) -> None:
        if self.behavior is None:
            raise NotMergeable(
                "q̂_t, the behavior counted so far, depends on the order of events; observe the "
                "logs one after the other instead"
            )

    def _can_have_observed(self, evidence: Evidence) -> bool:
        """Whether the evidence can be this certificate's: for snapshots that were damaged."""
        counted = self.n_actions if self.behavior is None else 0
        return evidence.fits(len(self.lambdas), len(self._grids), counted) and bool(
            evidence.crossed or counted or not self._crosses(evidence)
        )

    def _with_crossing(self, evidence: Evidence) -> Evidence:
        """The evidence with `crossed` set, which sums allow only after their last round."""
        crossed = evidence.rounds if self._crosses(evidence) else 0
        return dataclasses.replace(evidence, crossed=crossed)

    def _crosses(self, evidence: Evidence) -> bool:
        return evidence.crosses(2 * len(self.lambdas), self._delta)

    def _arguments(self) -> tuple[object, ...]:
        """The arguments that two merged certificates must share."""
        q = self.behavior.tolist() if isinstance(self.behavior, np.ndarray) else self.behavior
        return q, self.confidence, self.lambdas.tolist()


def save_certificate(certificate: Certificate, path: str | os.PathLike[str]) -> None:
    """Write a certificate, whole or not at all; `load_certificate` reads it.

    >>> import tempfile, understudy as us
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     us.save_certificate(us.Certificate(behavior=[0.5, 0.5]), f"{folder}/saved.json")
    ...     us.load_certificate(f"{folder}/saved.json").rounds
    0
    """
    if not isinstance(certificate, Certificate):
        raise InvalidArgument(
            "certificate", certificate, "it is not a us.Certificate", "pass one, or .certificate"
        )
    write_atomically(Path(path), to_text(certificate=certificate).encode())


def load_certificate(path: str | os.PathLike[str]) -> Certificate:
    """The certificate that was saved at `path`, or `InvalidSnapshot`.

    >>> load_certificate("nowhere.json")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'nowhere.json'
    """
    (found,) = from_text(read_text(path), "certificate")
    if not isinstance(found, Certificate):
        raise InvalidSnapshot("path", str(path), "it holds no certificate", REMEDY)
    return found
