"""The certificate: a betting confidence sequence for off-policy evaluation, O(1) a round.

A confidence sequence is an interval after every round that holds for all rounds at once, so that a
log may be looked at, and stopped, at any time. This one bets: each λ of a grid is a strategy, its
wealth is an e-process, and a mean reward is excluded once the mean wealth against it reaches 1/δ.

In round t the behavior plays b with probability q_t(b) and gets R; the target would have played b
with probability π_t(b), which depends on the past alone. With w = π_t(b)/q_t(b),

    x_t = w R    has mean  μ_t = ⟨π_t, r_t⟩,    and Π_t (1 + λ x_t) / (1 + λ μ_t) is a martingale

for every λ > 0 and any adversary: the wealth of a bet on λ. Mixed over a grid of λ_i with
weights ρ_i, it ever reaches 1/δ with probability δ at most (Ville), and Σ_t log(1 + λ μ_t) is at
most n log(1 + λ μ̄) (Jensen): so with probability 1 − δ, for all n at once, μ̄ ≥ m, the root of

    Σ_i ρ_i exp(S_i − n log(1 + λ_i m)) = 1/δ,    S_i = Σ_t log(1 + λ_i x_t).

The upper bound is the same for 1 − R, on 1 − μ̄; each of the two spends δ/2. The gain over
production is bounded from below by the same with x_t = (w − 1) R ≥ −1, λ_i < 1, and a δ of its own,
and from above with (w − 1)(1 − R): noise that both policies share cancels. The gain over another
baseline π₀ than production has w₀ = π₀(b)/q_t(b) in place of 1, and λ_i divided by B ≥ w₀.

Since E_t w = 1, a center c that is known before b_t takes most of the noise of w away and changes
no mean: x_t = (w − 1)(R − c), and w (R − c) + c. Most of the wealth bets on these (`bets`), the
rest without a center. E_t w = 1 is needed: where it is not sure, c is 0. Proofs are in
docs/theory.md.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from understudy import kernels
from understudy.behaviors import SLACK, Behavior, Logged, propensities_of
from understudy.certificates.evidence import (
    BASELINE_RATIO,
    BEHAVIOR_OR_NONE,
    CENTERS_OR_NONE,
    CONFIDENCE,
    EVIDENCE,
    FIRST_RULES,
    GAIN,
    LAMBDAS,
    LARGEST_BET,
    LOSS,
    LOWER,
    RULES,
    RULES_VERSION,
    UPPER,
    BaselineRounds,
    Bets,
    Evidence,
    WeightedRounds,
    Window,
    resolve_n_actions,
)
from understudy.certificates.targets import (
    Target,
    largest_ratios,
    probabilities_under,
    ratio_of_policy,
)
from understudy.certificates.uncentered import UncenteredEvidence
from understudy.constraints import N_ACTIONS, PROBABILITIES, Array, enforce
from understudy.deprecated import OldName
from understudy.errors import InvalidArgument, InvalidEvent, NotMergeable
from understudy.formatting import count, counted, least_gain, most_gain, number, percent
from understudy.protocols import EventSpec
from understudy.types import Feedback, Integers, Log, added, chunks, kernel_view, one_event, saved

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
    with the `confidence`; `gain` and `gain_upper` each by itself, and `promoted` and `worse` too.
    They are about π_1 … π_n, the policies while they were learning: the last one is certified by
    rounds that come after it.

    Args:
        behavior: q, K probabilities; `us.Logged`, to use the propensities of the log, which may
            drift; or None, if propensities are unknown. They are then estimated from action
            frequencies: the behavior must be the same in all rounds and contexts, part of δ pays
            for it, and no gain is certified (`gain`, `promoted` and the like are None).
        confidence: 1 − δ.
        n_actions: K, where `behavior` does not tell it.
        lambdas: the grid of λ; the gain's is 0.9 λ for every λ ≤ 1. Left out: 4, 2, 1, …, 2^-21.
        evidence: what was observed so far; left out: nothing.
        rules: the version of the rules: 2, or 1 for those of release 0.5, which have no centers.
        centers: left out: the mean reward so far, and windows of rounds. Constants, such as
            [0.25, 0.5, 0.75, 1], make sums that do not depend on the order of rounds.
        against: K probabilities, the policy that the gain is over; left out: production. Production
            must be able to play all its actions, with a least propensity that is known.
        baseline_ratio: in place of `against`, if the probability of each logged action is passed
            round by round: B ≥ 1, at least π₀(a)/q_t(a) in all rounds, for all actions.

    >>> import understudy as us
    >>> certificate = us.Certificate(behavior=[0.5, 0.5])
    >>> log = us.Log(actions=[0, 1] * 500, rewards=[0.0, 1.0] * 500)
    >>> certificate = certificate.observe(log, [0.1, 0.9])
    >>> certificate.rounds, round(certificate.lower), round(certificate.upper)
    (1000, 843, 913)
    >>> certificate.observe(us.Feedback(action=1, reward=1.0), 0.9).rounds
    1001
    """

    behavior: Behavior | None
    confidence: float = 0.95
    n_actions: int = None  # type: ignore[assignment] # filled in, as the next two
    lambdas: Array = None  # type: ignore[assignment]
    evidence: Evidence | UncenteredEvidence = None  # type: ignore[assignment]
    rules: int = added(RULES, absent=FIRST_RULES)
    centers: Array | None = added(None)  # noqa: RUF009 - a field
    against: Array | None = added(None)  # noqa: RUF009 - as above
    baseline_ratio: float | None = added(None)

    if TYPE_CHECKING:

        def __init__(
            self,
            behavior: ArrayLike | Logged | None,
            confidence: float = 0.95,
            n_actions: int | None = None,
            lambdas: ArrayLike | None = None,
            evidence: Evidence | UncenteredEvidence | None = None,
            *,
            rules: int = RULES,
            centers: ArrayLike | None = None,
            against: ArrayLike | None = None,
            baseline_ratio: float | None = None,
        ) -> None: ...

    CONSTRAINTS: ClassVar = {
        "behavior": BEHAVIOR_OR_NONE,
        "confidence": CONFIDENCE,
        "n_actions": N_ACTIONS.optional(),
        "lambdas": LAMBDAS,
        "evidence": EVIDENCE.optional(),
        "rules": RULES_VERSION,
        "centers": CENTERS_OR_NONE,
        "against": PROBABILITIES.optional(),
        "baseline_ratio": BASELINE_RATIO.optional(),
    }
    form, of_sums = OldName(), OldName()

    def __post_init__(self) -> None:
        enforce(self)
        object.__setattr__(self, "n_actions", resolve_n_actions(self.behavior, self.n_actions))
        if self.centers is not None and not self.centered:
            reason = "rules of release 0.5, and counted behaviors, have none"
            raise InvalidArgument("centers", self.centers, reason, "leave them out")
        self._check_baseline()
        if self.evidence is None:
            nothing = Evidence.none(self.bets) if self.centered else self._uncentered_evidence()
            object.__setattr__(self, "evidence", nothing)
        elif not self._can_have_observed(self.evidence):
            raise InvalidArgument(
                "evidence",
                self.evidence,
                "no certificate that was made like this one can have observed it",
                "pass the evidence of a certificate with the same arguments, or leave it out",
            )

    def observe(
        self, log: Log | Feedback, target: Target, baseline: Target | None = None
    ) -> Certificate:
        """The certificate after more rounds; a bad event raises and nothing of the log is observed.

        `target` is the trace of a learner, a fixed policy (K,), or the probability of each logged
        action under the target (n,), of one event also as a number. All must be made of earlier
        rounds only (`us.certify` says more). Features are not read. A `baseline` is passed if the
        certificate was made with `baseline_ratio`.
        """
        return self.advance(*self.rounds_of(log, target, baseline))

    def rounds_of(
        self, log: Log | Feedback, target: Target, baseline: Target | None = None
    ) -> tuple[Log, Array, Array, BaselineRounds | None]:
        """The arguments of `advance` for a log, or an error if it does not fit the certificate."""
        shown = self.check(log)
        return (
            shown,
            probabilities_under(target, shown, self.n_actions),
            largest_ratios(target, shown, self.behavior),
            self.baseline_rounds(shown, baseline),
        )

    def advance(
        self,
        log: Log,
        probabilities: Array,
        ratios: Array | float,
        baseline: BaselineRounds | None = None,
    ) -> Certificate:
        """`observe` of a log that `check` returned, with π_t(b_t) and W_t of every round, checked.

        W_t ≥ max_a π_t(a)/q_t(a) is known before b_t, or inf. A row that cannot be used has nan as
        its probability or propensity, as its reward, or as both. If it lacks the reward alone, its
        W_t must be the one that it would have as a usable row. `baseline` has π₀(b_t) if that is
        no fixed policy, known where π_t(b_t) is.
        """
        evidence, bets = self.evidence, self.bets
        ratios = np.broadcast_to(ratios, len(log))
        others = None if self.against is None else self.against[log.actions]
        if self.baseline_ratio is not None:
            assert baseline is not None
            others = baseline.probabilities
        for start, rounds in chunks(len(log), CHUNK):
            part = log[start : start + rounds]
            own, known = probabilities[start : start + rounds], ratios[start : start + rounds]
            if isinstance(evidence, Evidence):
                q = propensities_of(self._known_behavior, part)
                other = None if others is None else others[start : start + rounds]
                evidence = evidence.after(bets, WeightedRounds(own, q, part.rewards, known, other))
            else:
                q, counts = self._propensities(evidence, part)
                columns = WeightedRounds(own, q, part.rewards, known)
                evidence = evidence.after(bets, columns, counts)
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
            shown = shown.visible(propensities=True, features=False, vectors=True)
        self.spec.check(shown)
        vectors = shown.propensity_vectors
        if vectors is None:
            return shown
        # The two may differ by rounding, and W is of the vector: no weight is above it.
        own = vectors[np.arange(len(shown)), shown.actions]
        return Log._of(shown.actions, shown.rewards, own, None, None, vectors)

    def merge(self, other: Certificate) -> Certificate:
        """The certificate of two logs of different rounds that were observed apart.

        Cut the logs before you look at them, such as by day or by machine: bounds that hold at all
        times do not hold for parts that were chosen by their content. With constant `centers` it
        is that of the whole log, up to rounding; else the centers of each part are its own mean
        rewards, which is as valid. The round of a promotion cannot be known, so `promoted` says
        whether the whole justifies one now, or did in the rounds observed since, and `promoted_at`
        is None. There are no windows.
        """
        self._refuse_counted()
        if isinstance(other, Certificate) and other.rules != self.rules:
            raise InvalidArgument(
                "other",
                f"a certificate of rules {other.rules}",
                f"this one has rules {self.rules}, and their sums do not add up",
                f"observe one of the two logs again, with us.Certificate(..., rules={self.rules}) "
                f"or rules={other.rules}",
            )
        if not isinstance(other, Certificate) or self._arguments() != other._arguments():
            raise InvalidArgument(
                "other",
                other,
                "it was not made with the same behavior, confidence, lambdas, centers and baseline",
                "make both certificates with the same arguments",
            )
        if not other.rounds or not self.rounds:
            return other if not self.rounds else self
        merged = self.evidence.merge(self.bets, other.evidence)  # type: ignore[arg-type] # of the same rules
        return self._with_evidence(merged)

    def from_sufficient_statistics(
        self, rounds: int, S: ArrayLike, totals: ArrayLike, *, centered: bool = True
    ) -> Certificate:
        """The same certificate of rounds whose sums were made elsewhere, such as by a database.

        `S` are S_i of all bets, as `bets.terms` lists them for constant `centers`, and `totals`
        Σ R, Σ w R, Σ w and Σ w². As of merged logs, `promoted_at` is not known. With `rules=1`,
        `S` are those of the three grids of the bounds and the gain. `centered` says whether the
        largest ratio was known, so that bets had centers.

        >>> import understudy as us
        >>> empty = us.Certificate(behavior=[0.5, 0.5], lambdas=[1.0], centers=[0.5])
        >>> log = us.Log(actions=[0, 1] * 500, rewards=[0.0, 1.0] * 500)
        >>> known = empty.observe(log, [0.1, 0.9])
        >>> sums = known.evidence.log_wealths(), known.evidence.totals
        >>> again = empty.from_sufficient_statistics(1000, *sums)
        >>> again.lower == known.lower, again.promoted, again.promoted_at
        (True, True, None)
        """
        self._refuse_counted()
        evidence: Evidence | UncenteredEvidence
        if self.centered:
            evidence = Evidence.from_sufficient_statistics(
                self.bets, rounds, S, totals, centered=centered
            )
        else:
            evidence = UncenteredEvidence.from_sufficient_statistics(self.bets, rounds, S, totals)
        if not self._can_have_observed(evidence):
            reason = "no log has these sums and totals"
            raise InvalidArgument("S", S, reason, "pass S_i of all bets, and totals of these rows")
        return self._with_evidence(evidence)

    @property
    def rounds(self) -> int:
        """n, how many rounds were observed."""
        return self.evidence.rounds

    @property
    def centered(self) -> bool:
        """Whether bets have centers, in the rounds in which they are valid."""
        return self.rules != FIRST_RULES and self.behavior is not None

    @property
    def centered_rounds(self) -> int:
        """In how many rounds bets had a center; in the others the largest ratio was not known."""
        return int(self.evidence.usable[2]) if isinstance(self.evidence, Evidence) else 0

    @property
    def lower(self) -> float:
        """A lower bound on the total reward of the target, Σ_t ⟨π_t, r_t⟩."""
        return self.rounds * self._root(LOWER, self._side_delta, 0.0)

    @property
    def upper(self) -> float:
        """An upper bound on the total reward of the target."""
        return self.rounds * (1.0 - self._root(UPPER, self._side_delta, 0.0))

    @property
    def gain(self) -> float | None:
        """A lower bound on the total gain, Σ_t ⟨π_t − π_B, r_t⟩, or over another baseline."""
        if self.behavior is None:
            return None
        delta = self.bets.whole_delta if self.centered else self._delta
        return self.rounds * self._root(GAIN, delta, -1.0) + 0.0  # -0.0 before round 1

    @property
    def gain_upper(self) -> float | None:
        """An upper bound on the total gain; None with rules 1."""
        if not self.centered:
            return None
        return -self.rounds * self._root(LOSS, self._delta, -1.0) + 0.0

    @property
    def window(self) -> Window | None:
        """The window with the largest lower bound on its mean gain; None if no gain is certified.

        Windows begin with rounds 1, 2, 4, 8, …. All their bounds hold together: a learner that
        begins badly has become good if a later window shows it. It is the first one, of all rounds,
        if that has a gain.
        """
        if self.gain is None or not self.rounds:
            return None
        found = [Window(1, self.gain / self.rounds)]
        if found[0].gain <= 0.0:
            for j in range(1, self.window_count + 1):
                S, rounds, log_threshold = self._window(j)
                grid = kernel_view(self.bets.gains)
                gain = kernels.certificates.root(S, grid, rounds, log_threshold, -1.0)
                found.append(Window(2**j, float(gain)))
        return max(found, key=lambda one: one.gain)

    @property
    def window_count(self) -> int:
        """How many windows have begun after round 1."""
        return len(self.evidence.windows) if isinstance(self.evidence, Evidence) else 0

    def shows_gain(self, above: float = 0.0, window: int = 0) -> bool:
        """Whether the mean gain is certainly above this: of all rounds, or since round 2^`window`.

        All windows hold together. It takes no root: the wealth at this gain decides.
        """
        if self.behavior is None or not self.rounds:
            return False
        return self._reaches(*self._window(window), above)

    def shows_loss(self, below: float = 0.0) -> bool:
        """Whether the mean gain is certainly below this; never with rules 1."""
        if not self.centered or not self.rounds:
            return False
        S = kernel_view(self.evidence.part(self.bets, LOSS))
        return self._reaches(S, self.rounds, -math.log(self._delta), -below)

    @property
    def log_loss_wealth(self) -> float:
        """The logarithm of the e-process of a loss: e to it ever reaches 1/δ with probability δ."""
        if not self.centered or not self.rounds:
            return 0.0
        S = self.evidence.part(self.bets, LOSS)
        return float(np.logaddexp.reduce(S)) - math.log(len(S))

    def _reaches(self, S: Array, rounds: int, log_threshold: float, mean: float) -> bool:
        """Whether the mixture at a mean gain, or a mean loss, reaches its threshold."""
        grid, exponents = kernel_view(self.bets.gains), np.empty(len(S))
        value, _ = kernels.certificates.log_mixture(S, grid, rounds, mean, exponents)
        return bool(value >= log_threshold)

    def _window(self, j: int) -> tuple[Array, int, float]:
        """S_i of the gain since round 2^j, the number of rounds, and log 1/δ of this window."""
        if j:
            assert isinstance(self.evidence, Evidence)  # others have no windows
            S, delta = self.evidence.window_part(self.bets, j), self.bets.window_delta(j)
            return kernel_view(S), self.rounds - 2**j + 1, -math.log(delta)
        delta = self.bets.whole_delta if self.centered else self._delta
        return kernel_view(self.evidence.part(self.bets, GAIN)), self.rounds, -math.log(delta)

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

        Since round 1, or since the start of a window. Of merged logs: by the whole of them, or
        since. Withheld where the bounds contradict each other, which shows that the propensities or
        the target's probabilities are wrong.
        """
        if self.behavior is None:
            return None
        return self.evidence.crossed > 0 and not self.contradicts

    @property
    def contradicts(self) -> bool:
        """Whether the bounds on the reward contradict each other: some probability is wrong."""
        return self.lower > self.upper

    @property
    def promoted_at(self) -> int | None:
        """The first round, counted from 1, after which `promoted` held."""
        known = self.promoted and not self.evidence.merged
        return self.evidence.crossed if known else None

    @property
    def worse(self) -> bool | None:
        """Whether the target has, at some time, been shown to earn less than production.

        None if no gain is certified, and with rules 1. Withheld as `promoted` is.
        """
        if not self.centered:
            return None
        return self.evidence.worse > 0 and not self.contradicts

    @property
    def worse_at(self) -> int | None:
        """The first round, counted from 1, after which `worse` held."""
        known = self.worse and not self.evidence.merged
        return self.evidence.worse if known else None

    def __repr__(self) -> str:
        n, confidence = self.rounds, f"{percent(self.confidence)} confidence"
        if not n:
            return f"Certificate({confidence}, nothing observed yet)"
        if self.contradicts:
            return f"Cannot tell after {counted(n, 'round')}: {CONTRADICTION}"
        decision, gained = "No gain is certified (propensities are estimated)", ""
        if (window := self.window) is not None:
            production = self.against is None and self.baseline_ratio is None
            when = self.promoted_at and f" (first certain after round {count(self.promoted_at)})"
            gains = self.promoted and window.gain > 0.0
            loses = self.worse and self.gain_upper is not None and self.gain_upper < 0.0
            decision = "Not enough data yet"
            if loses:
                decision = f"Worse than {'production' if production else 'the baseline'}"
            if gains or (self.promoted and not loses):
                decision = f"{'Promote' if gains else 'No gain any more'}{when or ''}"
            over = "" if production else " over the baseline"
            gained = f" Gain{over} per round: at least {least_gain(window.gain)}"
            if window.start > 1:
                gained += f" since round {count(window.start)}"
            if self.gain_upper is not None:
                whole = " over all rounds" if window.start > 1 else ""
                gained += f"; at most {most_gain(self.gain_upper / n)}{whole}"
            gained += f"; each with {confidence} by itself."
        return (
            f"{decision} after {counted(n, 'round')}.{gained} The target earns at least "
            f"{number(self.lower / n)} and at most {number(self.upper / n)} per round with "
            f"{confidence}; production earned {number(self.production / n)}."
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
        return self.bets.values, self.bets.values, self.bets.gains

    @cached_property
    def bets(self) -> Bets:
        """The bets: λ, centers, and the wealth at which they decide."""
        certifies = self.behavior is not None
        gains = LARGEST_BET * self.lambdas[self.lambdas <= 1.0] if certifies else np.empty(0)
        most, windows = self._most, self.centers is None
        return Bets(self.lambdas, gains / most, self._delta, self.centers, windows, most)

    @property
    def _most(self) -> float:
        """B, the largest weight of the baseline."""
        if self.against is not None:
            return max(1.0, ratio_of_policy(self.against, self._known_behavior))
        return 1.0 if self.baseline_ratio is None else self.baseline_ratio

    def baseline_rounds(self, log: Log, baseline: Target | None) -> BaselineRounds | None:
        """π₀(b_t) of every round, if the baseline is passed round by round."""
        if (baseline is None) != (self.baseline_ratio is None):
            reason = "the certificate was made without baseline_ratio"
            remedy = "leave it out, or make the certificate with baseline_ratio=B"
            if baseline is None:
                reason = "the certificate was made with baseline_ratio"
                remedy = "pass the baseline's probability of each logged action"
            raise InvalidArgument("baseline", baseline, reason, remedy)
        if baseline is None:
            return None
        found = probabilities_under(baseline, log, self.n_actions, "baseline")
        too_large = found > self._most * (1.0 + SLACK) * propensities_of(self._known_behavior, log)
        if too_large.any():  # then a bet could lose more than it has
            t = int(np.argmax(too_large))
            raise InvalidArgument(
                "baseline_ratio",
                self.baseline_ratio,
                f"π₀(b)/q(b) of round {t} is larger (π₀(b) = {found[t]:.6g})",
                "pass the largest over all rounds and actions, which is known beforehand",
            )
        return BaselineRounds(found, largest_ratios(baseline, log, self.behavior))

    def _check_baseline(self) -> None:
        """Raise `InvalidArgument` if no gain over the baseline can be certified in pairs."""
        name = "against" if self.against is not None else "baseline_ratio"
        value = getattr(self, name)
        if value is None:
            return
        if not self.centered:
            reason = "rules of release 0.5, and counted behaviors, know production alone"
            raise InvalidArgument(name, value, reason, "leave it out")
        if self.against is None:
            return
        if self.baseline_ratio is not None:
            reason = "`against` is the same policy in all rounds"
            raise InvalidArgument("baseline_ratio", self.baseline_ratio, reason, "leave it out")
        if len(self.against) != self.n_actions:
            reason = f"it has {len(self.against)} entries for {self.n_actions} actions"
            raise InvalidArgument(name, value, reason, "pass K probabilities")
        if math.isinf(self._most):
            reason = "production never plays one of its actions"
            remedy = "pass a policy over actions that production plays"
            if isinstance(self.behavior, Logged):
                reason = "its largest weight is unknown, because propensities are logged"
                remedy = (
                    "declare the least one, us.Logged(n_actions=K, least_propensity=f), or use "
                    "us.certify(..., against=...), which then compares two certificates"
                )
            raise InvalidArgument(name, value, reason, remedy)

    @property
    def _delta(self) -> float:
        return 1.0 - self.confidence

    @property
    def _side_delta(self) -> float:
        """The part of δ that the lower bound, and the upper bound, may fail with."""
        return self._delta * ((1.0 - COUNTING_SHARE) if self.behavior is None else 1.0) / 2.0

    def with_confidence(self, confidence: float) -> Certificate:
        """The certificate of the same rounds with another confidence.

        Earlier rounds are not looked at again: it is `promoted`, or `worse`, if the sums since
        round 1 show this now, or rounds that come later do. The bounds on counted propensities
        keep the part of δ that they had: of the new δ, two bounds that share them spend three
        quarters each, and one quarter of the old δ once.
        """
        other = copy.copy(self)
        object.__setattr__(other, "confidence", CONFIDENCE("confidence", confidence))
        other.__dict__.pop("bets", None)  # they depend on it
        return other._with_evidence(other.evidence.looked_at(other.bets))

    def _with_evidence(self, evidence: Evidence | UncenteredEvidence) -> Certificate:
        """The same certificate of other evidence; what it was made with was checked before."""
        other = copy.copy(self)
        object.__setattr__(other, "evidence", evidence)
        return other

    @property
    def _known_behavior(self) -> Behavior:
        assert self.behavior is not None  # of a centered certificate
        return self.behavior

    def _uncentered_evidence(self) -> UncenteredEvidence:
        return UncenteredEvidence.none(self.bets, self.n_actions if self.behavior is None else 0)

    def _propensities(self, evidence: UncenteredEvidence, log: Log) -> tuple[Array, Integers]:
        """q_t(b_t), or an upper confidence bound on it; and the counts after these rounds."""
        if self.behavior is None:
            return evidence.count(log.actions, COUNTING_SHARE * self._delta)
        return propensities_of(self.behavior, log), evidence.counts

    def _root(self, part: int, delta: float, low: float) -> float:
        """The root m of a part's mixture at 1/δ, as a mean per round."""
        S = kernel_view(self.evidence.part(self.bets, part))
        grid = kernel_view(self.bets.gains if part in (GAIN, LOSS) else self.bets.values)
        return float(kernels.certificates.root(S, grid, self.rounds, -math.log(delta), low))

    def _refuse_counted(self) -> None:
        if self.behavior is None:
            raise NotMergeable(
                "q̂_t, the behavior counted so far, depends on the order of events; observe the "
                "logs one after the other instead"
            )

    def _can_have_observed(self, evidence: Evidence | UncenteredEvidence) -> bool:
        """Whether the evidence can be this certificate's: for snapshots that were damaged."""
        if isinstance(evidence, Evidence):
            return self.centered and evidence.fits(self.bets)
        counted = self.n_actions if self.behavior is None else 0
        return not self.centered and evidence.fits(self.bets, counted)

    def _arguments(self) -> tuple[object, ...]:
        """The arguments that two merged certificates must share."""
        q = self.behavior.tolist() if isinstance(self.behavior, np.ndarray) else self.behavior
        centers = None if self.centers is None else self.centers.tolist()
        against = None if self.against is None else self.against.tolist()
        return q, self.confidence, self.lambdas.tolist(), centers, against, self.baseline_ratio
