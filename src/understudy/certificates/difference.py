"""The gain over a baseline whose largest importance weight is not known: two certificates.

The paired bets of `Certificate(against=π₀)` need a constant B ≥ π₀(a)/q_t(a). Without one, the gain
lies between the lower bound of the target less the upper bound of the baseline, and the upper bound
less the lower bound. Each of these four fails with δ/2, so each difference holds with 1 − δ. Both
certificates take weights that are too small on average where production cannot play an action: the
differences hold for any production, and for one whose propensities are counted.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from understudy.behaviors import Behavior
from understudy.certificates.certificate import CONTRADICTION, Certificate
from understudy.certificates.evidence import (
    POINTS_SET,
    BaselineRounds,
    Evidence,
    Window,
    parts_between_points,
)
from understudy.certificates.targets import (
    Target,
    largest_ratio,
    largest_ratios,
    probabilities_under,
    ratio_of_policy,
)
from understudy.certificates.uncentered import UncenteredEvidence
from understudy.constraints import LARGEST_COUNT, Array, Checked, enforce, instance_of, integer
from understudy.errors import InvalidArgument
from understudy.formatting import counted, least_gain, most_gain, percent
from understudy.types import Feedback, Log, saved

CERTIFICATE = instance_of("pass a us.Certificate", Certificate)
ROUND = integer(0, "pass a round, or 0", LARGEST_COUNT)


@saved
@dataclass(frozen=True, eq=False, repr=False)
class DifferenceCertificate(Checked):
    """The gain of a target over a baseline, from a certificate of each.

    The certificates have the same behavior and confidence. `crossed` and `lost` are the first
    rounds of `POINTS` after which the difference showed a gain, and a loss, or 0.

    >>> import math, understudy as us
    >>> nothing = us.Certificate(us.Logged(n_actions=2))
    >>> log = us.Log([0, 1] * 500, [0.0, 1.0] * 500, [0.5] * 1000)
    >>> difference = DifferenceCertificate(nothing, nothing)
    >>> after = difference.advance(
    ...     log,
    ...     np.array([0.0, 1.0] * 500),
    ...     math.inf,
    ...     BaselineRounds(np.array([1.0, 0.0] * 500), np.full(1000, math.inf)),
    ... )
    >>> after.promoted, round(after.gain / 1000, 1)
    (True, 0.8)
    """

    target: Certificate
    baseline: Certificate
    crossed: int = 0
    lost: int = 0
    CONSTRAINTS: ClassVar = {
        "target": CERTIFICATE,
        "baseline": CERTIFICATE,
        "crossed": ROUND,
        "lost": ROUND,
    }

    def __post_init__(self) -> None:
        enforce(self)
        alike = self.target.confidence == self.baseline.confidence
        if not alike or not have_same_rounds(self.target, self.baseline):
            reason = "it is not of the behavior, the confidence and the rounds of the target"
            remedy = "pass a certificate that was made, and that has observed, the same way"
            raise InvalidArgument("baseline", self.baseline, reason, remedy)
        for name in ("crossed", "lost"):
            require_observed(name, getattr(self, name), self.rounds)

    def observe(self, log: Log | Feedback, target: Target, baseline: Target) -> Self:
        """The certificate after more rounds; arguments as of `Certificate.observe`."""
        return self.advance(*self.rounds_of(log, target, baseline))

    def rounds_of(
        self, log: Log | Feedback, target: Target, baseline: Target | None = None
    ) -> tuple[Log, Array, Array, BaselineRounds | None]:
        """The arguments of `advance` for a log, or an error if it does not fit the certificates."""
        if baseline is None:
            reason = "there is no production to stand for it"
            remedy = "pass a policy, or the probability of each logged action"
            raise InvalidArgument("baseline", baseline, reason, remedy)
        shown, probabilities, ratios, _ = self.target.rounds_of(log, target)
        others = probabilities_under(baseline, shown, self.n_actions, "baseline")
        other = BaselineRounds(others, largest_ratios(baseline, shown, self.behavior))
        return shown, probabilities, ratios, other

    def advance(
        self,
        log: Log,
        probabilities: Array,
        ratios: Array | float,
        baseline: BaselineRounds | None,
    ) -> Self:
        """The certificate after more rounds; arguments as of `Certificate.advance`."""
        assert baseline is not None  # there is no production to stand for it
        known, after, before = np.broadcast_to(ratios, len(log)), self, self.rounds
        for part in parts_between_points(before, len(log)):
            after = replace(
                after,
                target=after.target.advance(log[part], probabilities[part], known[part]),
                baseline=after.baseline.advance(log[part], *baseline.part(part)),
            )
            if before + part.stop in POINTS_SET:
                after = after._look()
        return after

    def _look(self) -> Self:
        n = self.rounds
        crossed = self.crossed or (n if self.gain > 0.0 else 0)
        lost = self.lost or (n if self.gain_upper < 0.0 else 0)
        return replace(self, crossed=crossed, lost=lost)

    @property
    def gain(self) -> float:
        """A lower bound on the total gain of the target over the baseline."""
        return self.target.lower - self.baseline.upper

    @property
    def gain_upper(self) -> float:
        """An upper bound on the total gain of the target over the baseline."""
        return self.target.upper - self.baseline.lower

    @property
    def window(self) -> Window | None:
        """All rounds: there are no windows."""
        return Window(1, self.gain / self.rounds) if self.rounds else None

    def with_confidence(self, confidence: float) -> DifferenceCertificate:
        """The certificate of the same rounds with another confidence; see `Certificate`."""
        target, baseline = (one.with_confidence(confidence) for one in (self.target, self.baseline))
        return DifferenceCertificate(target, baseline)

    window_count = 0  # windows need the gain's own bets

    def shows_gain(self, above: float = 0.0, window: int = 0) -> bool:
        """Whether the mean gain is certainly above this; only over all rounds, window 0."""
        return window == 0 and bool(self.rounds) and self.gain > above * self.rounds

    def shows_loss(self, below: float = 0.0) -> bool:
        """Whether the mean gain is certainly below this."""
        return bool(self.rounds) and self.gain_upper < below * self.rounds

    @property
    def log_loss_wealth(self) -> float:
        """The logarithm of an e-process of a loss: 1/δ where one is shown, 0 where none is.

        Without a loss one is shown with probability δ at most, so its mean is at most 1, whenever
        one stops.
        """
        return -math.log(1.0 - self.confidence) if self.shows_loss() else -math.inf

    @property
    def contradicts(self) -> bool:
        """Whether bounds contradict each other."""
        return self.target.contradicts or self.baseline.contradicts

    @property
    def promoted(self) -> bool:
        """Whether the target has, at some time, been shown to earn more than the baseline."""
        return bool(self.crossed or self.shows_gain()) and not self.contradicts

    @property
    def promoted_at(self) -> int | None:
        """The first round of `POINTS` after which `promoted` held, or the last one."""
        return (self.crossed or self.rounds) if self.promoted else None

    @property
    def worse(self) -> bool:
        """Whether the target has, at some time, been shown to earn less than the baseline."""
        return bool(self.lost or self.shows_loss()) and not self.contradicts

    @property
    def worse_at(self) -> int | None:
        """The first round of `POINTS` after which `worse` held, or the last one."""
        return (self.lost or self.rounds) if self.worse else None

    def __repr__(self) -> str:
        n, confidence = self.rounds, f"{percent(self.confidence)} confidence"
        if not n:
            return f"DifferenceCertificate({confidence}, nothing observed yet)"
        if self.contradicts:
            return f"Cannot tell after {counted(n, 'round')}: {CONTRADICTION}"
        decision = "Worse than the baseline" if self.worse else "Not enough data yet"
        decision = "Promote" if self.promoted else decision
        return (
            f"{decision} after {counted(n, 'round')}. Gain over the baseline per round: at least "
            f"{least_gain(self.gain / n)}; at most {most_gain(self.gain_upper / n)}; each with "
            f"{confidence} by itself."
        )

    # ------------------------------------------------- of the target, and of the log

    @property
    def rounds(self) -> int:
        """n, how many rounds were observed."""
        return self.target.rounds

    @property
    def behavior(self) -> Behavior | None:
        """The behavior of both certificates."""
        return self.target.behavior

    @property
    def confidence(self) -> float:
        """1 − δ."""
        return self.target.confidence

    @property
    def rules(self) -> int:
        """The version of the rules of both certificates."""
        return self.target.rules

    @property
    def centered(self) -> bool:
        """Whether bets have centers, in the rounds in which they are valid."""
        return self.target.centered

    @property
    def n_actions(self) -> int:
        """K."""
        return self.target.n_actions

    @property
    def centered_rounds(self) -> int:
        """In how many rounds bets on the target's reward had a center."""
        return self.target.centered_rounds

    @property
    def evidence(self) -> Evidence | UncenteredEvidence:
        """What was observed of the target."""
        return self.target.evidence

    @property
    def lower(self) -> float:
        """A lower bound on the total reward of the target."""
        return self.target.lower

    @property
    def upper(self) -> float:
        """An upper bound on the total reward of the target."""
        return self.target.upper

    def least_production(self, earned: float | None = None) -> float:
        """A lower bound on the expected reward of production."""
        return self.target.least_production(earned)

    @property
    def production(self) -> float:
        """What the behavior policy earned."""
        return self.target.production

    @property
    def estimate(self) -> float:
        """The inverse propensity score of the target."""
        return self.target.estimate

    @property
    def self_normalised(self) -> float:
        """The self-normalised inverse propensity score of the target."""
        return self.target.self_normalised

    @property
    def effective_sample_size(self) -> float:
        """How many rounds of the target itself would say as much."""
        return self.target.effective_sample_size


AnyCertificate = Certificate | DifferenceCertificate
ANY_CERTIFICATE = instance_of("pass a us.Certificate", Certificate, DifferenceCertificate)


def certificate_against(
    plain: Certificate, policy: Array | None, *, paired: bool = True
) -> AnyCertificate:
    """The certificate of the gain over a baseline, from the one over production.

    The baseline is a fixed policy, or depends on the round if `policy` is None. The certificate
    bets in pairs if the largest weight of the baseline is known, and is a difference of two
    otherwise, or where `paired` forbids it: production cannot play all actions in all rounds. A
    policy with an action that production never plays is refused: no row shows its rewards.

    >>> import understudy as us
    >>> plain = us.Certificate(us.Logged(n_actions=2))
    >>> type(certificate_against(plain, np.array([0.0, 1.0]))).__name__
    'DifferenceCertificate'
    """
    behavior = plain.behavior
    if policy is not None and len(policy) != plain.n_actions:
        reason = f"it has {len(policy)} probabilities, and there are {plain.n_actions} actions"
        raise InvalidArgument("against", policy, reason, "pass K probabilities")
    if isinstance(behavior, np.ndarray) and policy is not None and policy[behavior == 0.0].any():
        action = int(np.argmax((policy > 0.0) & (behavior == 0.0)))
        reason = f"production never plays action {action}, so no row shows its rewards"
        raise InvalidArgument("against", policy, reason, "pass a policy over other actions")
    if not (paired and plain.centered) or behavior is None:
        return DifferenceCertificate(plain, plain)
    most = largest_ratio(behavior) if policy is None else ratio_of_policy(policy, behavior)
    if math.isinf(most):
        return DifferenceCertificate(plain, plain)
    bets: dict[str, Any] = {"baseline_ratio": most} if policy is None else {"against": policy}
    return dataclasses.replace(plain, evidence=None, **bets)  # type: ignore[arg-type] # nothing yet


def have_same_rounds(first: AnyCertificate, second: AnyCertificate) -> bool:
    """Whether two certificates have the same behavior, and as many rounds."""
    one, other = first.behavior, second.behavior
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        same = one is other or np.array_equal(one, other)
    else:
        same = one == other if type(one) is type(other) else False
    alike = first.n_actions == second.n_actions and first.rules == second.rules
    return same and alike and first.rounds == second.rounds


def have_same_share(first: float, second: float) -> bool:
    """Whether two confidences leave the same δ, up to the rounding of its shares."""
    return math.isclose(1.0 - first, 1.0 - second, rel_tol=1e-6, abs_tol=1e-15)


def require_no_rounds(argument: str, certificate: AnyCertificate) -> None:
    """Raise `InvalidArgument` if a certificate from which others begin has observed rounds."""
    if certificate.rounds:
        reason = f"it has observed {certificate.rounds} rounds"
        raise InvalidArgument(argument, certificate, reason, "pass one that was just made")


def require_observed(argument: str, at: int, rounds: int) -> None:
    """Raise `InvalidArgument` if a decision was made after more rounds than were observed."""
    if at > rounds:
        reason = f"{rounds} rounds were observed"
        raise InvalidArgument(argument, at, reason, "pass the round of the decision, or 0")
