"""`certify`: the confidence sequence of a whole log, at the rounds of a grid, for drawing.

`certify_by` does so for each group of its rounds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from understudy.behaviors import Logged
from understudy.certificates.certificate import Certificate
from understudy.certificates.difference import (
    AnyCertificate,
    certificate_against,
)
from understudy.certificates.evidence import (
    BEHAVIOR_OR_NONE,
    CENTERS_OR_NONE,
    CONFIDENCE,
    LAMBDAS,
    POINTS,
    POINTS_SET,
    RULES,
    RULES_VERSION,
    BaselineRounds,
    Window,
    parts_between_points,
)
from understudy.certificates.targets import (
    FixedPolicy,
    Target,
    actions_of,
    fixed_policy,
    largest_ratios,
    probabilities_under,
    refuse_rare_actions,
)
from understudy.constraints import N_ACTIONS, Array, constrained, integer
from understudy.errors import InvalidArgument, InvalidEvent
from understudy.types import Integers, Log, read_only

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from understudy.certificates.joint import JointCertificate
    from understudy.plots import CertificatePanel

Point = tuple[float, float, float, float | None]  # totals: lower, upper, production, gain


@dataclass(frozen=True, eq=False, repr=False)
class Certified:
    """The result of `certify`: the last `certificate`, and curves of cumulative totals.

    The curves have a point after each of the `rounds`, at most 2 000 of them; the totals of the
    certificate stand here too.
    """

    certificate: AnyCertificate
    rounds: Integers
    lower_curve: Array
    upper_curve: Array
    production_curve: Array
    gain_curve: Array | None

    @staticmethod
    def of(certificate: AnyCertificate, points: Sequence[Point] = ()) -> Certified:
        """The result with curves through the points of `follow` from round 1 on, and the last."""
        rounds = POINTS[: len(points)].tolist()
        if rounds[-1:] != [certificate.rounds]:
            rounds, points = [*rounds, certificate.rounds], [*points, _point_of(certificate)]
        lower, upper, production, gain = zip(*points, strict=True)
        return Certified(
            certificate,
            read_only(np.array(rounds)),
            read_only(np.array(lower)),
            read_only(np.array(upper)),
            read_only(np.array(production)),
            None if certificate.gain is None else read_only(np.array(gain)),
        )

    @property
    def lower(self) -> float:
        """A lower bound on the total reward of the target, Σ_t ⟨π_t, r_t⟩."""
        return self.certificate.lower

    @property
    def upper(self) -> float:
        """An upper bound on the total reward of the target."""
        return self.certificate.upper

    @property
    def gain(self) -> float | None:
        """A lower bound on the total gain of the target over production."""
        return self.certificate.gain

    @property
    def gain_upper(self) -> float | None:
        """An upper bound on the total gain of the target over production."""
        return self.certificate.gain_upper

    @property
    def window(self) -> Window | None:
        """The window of rounds with the largest lower bound on its mean gain."""
        return self.certificate.window

    @property
    def production(self) -> float:
        """What the behavior policy earned."""
        return self.certificate.production

    @property
    def estimate(self) -> float:
        """The inverse propensity score, a total."""
        return self.certificate.estimate

    @property
    def self_normalised(self) -> float:
        """The self-normalised inverse propensity score, a total."""
        return self.certificate.self_normalised

    @property
    def effective_sample_size(self) -> float:
        """How many rounds of the target itself would say as much."""
        return self.certificate.effective_sample_size

    @property
    def promoted(self) -> bool | None:
        """Whether the target has, at some time, been shown to earn more than production."""
        return self.certificate.promoted

    @property
    def promoted_at(self) -> int | None:
        """The first round, counted from 1, after which `promoted` held."""
        return self.certificate.promoted_at

    @property
    def worse(self) -> bool | None:
        """Whether the target has, at some time, been shown to earn less than production."""
        return self.certificate.worse

    @property
    def worse_at(self) -> int | None:
        """The first round, counted from 1, after which `worse` held."""
        return self.certificate.worse_at

    def panel(self, title: str) -> CertificatePanel:
        """The curves as means per round, for a picture."""
        from understudy.plots import CertificatePanel  # noqa: PLC0415 - drawing is above this module

        t = self.rounds
        return CertificatePanel(
            title=title,
            rounds=t,
            lower=self.lower_curve / t,
            upper=self.upper_curve / t,
            production=self.production_curve / t,
            gain=None if self.gain_curve is None else self.gain_curve / t,
            promoted_at=self.promoted_at,
        )

    def plot(self, title: str = "What the target would have earned") -> Figure:
        """The curves as a matplotlib figure, with a line where promotion was justified."""
        from understudy.plots import draw_certificate  # noqa: PLC0415 - as above

        confidence = f"{100 * self.certificate.confidence:.6g} % confidence"
        return draw_certificate(self.panel(confidence), title=title)

    def __repr__(self) -> str:
        return repr(self.certificate)


@constrained(
    behavior=BEHAVIOR_OR_NONE,
    confidence=CONFIDENCE,
    n_actions=N_ACTIONS.optional(),
    lambdas=LAMBDAS,
    rules=RULES_VERSION,
    centers=CENTERS_OR_NONE,
)
def certify(
    log: Log,
    target: Target,
    *,
    behavior: ArrayLike | Logged | None,
    confidence: float = 0.95,
    n_actions: int | None = None,
    lambdas: ArrayLike | None = None,
    rules: int = RULES,
    centers: ArrayLike | None = None,
    against: Target | int | None = None,
) -> Certified:
    """Bound the reward that the target would have earned on this log, and its gain over production.

    The bounds hold for all rounds at once, against any adversary, for any target whose policies
    were made of earlier rounds. They need the true propensities; with `behavior=None` these are
    counted and bounded from above, which takes a behavior that stays the same in all rounds and
    contexts.

    Args:
        log: what the behavior policy played and got.
        target: the trace of a learner, a fixed policy (K,), or the probability of each logged
            action under the target (n,); `us.FixedPolicy` where K = n. Each probability must be
            made of earlier rounds: a policy that was learned from this log is not fixed, pass its
            trace, or certify it on a later log.
        behavior: q, K probabilities; `us.Logged`, to use the propensities of the log; or None.
        confidence: 1 − δ, of the lower and the upper bound together, and of the gain by itself.
        n_actions: K, where neither behavior nor target tell it.
        lambdas: the grid of λ; see `us.Certificate`.
        rules: the version of the rules; see `us.Certificate`.
        centers: constant centers; see `us.Certificate`.
        against: the baseline of the gain: an action, or a policy as `target` is one; left out:
            production. Rows that have the largest weight of the baseline, because the behavior or
            the least propensity is known, give sharper bounds.

    >>> import understudy as us
    >>> pi_b = us.behaviors.uniform(n_actions=2)
    >>> log = us.Log(actions=[0, 1] * 500, rewards=[0.0, 1.0] * 500)
    >>> learner = us.exp3_ix(pi_b, horizon=1000)
    >>> _, trace = learner.replay(learner.init(), log)
    >>> certified = us.certify(log, trace, behavior=pi_b)
    >>> certified.promoted_at, certified.production
    (42, 500.0)
    >>> certified
    Promote (first certain after round 42) after 1,000 rounds. Gain per round: at least ...
    """
    checked = _checked(
        log,
        target,
        behavior,
        confidence=confidence,
        n_actions=n_actions,
        lambdas=lambdas,
        rules=rules,
        centers=centers,
        against=against,
    )
    return Certified.of(*follow(*checked))


@constrained(behavior=BEHAVIOR_OR_NONE, confidence=CONFIDENCE, n_actions=N_ACTIONS.optional())
def certify_by(
    groups: Iterable[Hashable],
    log: Log,
    target: Target,
    *,
    behavior: ArrayLike | Logged | None,
    confidence: float = 0.95,
    n_actions: int | None = None,
) -> dict[Any, Certified]:
    """Certify the rounds of each group of a log apart, such as those of each context.

    Each result has this confidence by itself: of 20 groups at 0.95, one may be wrong on average.
    For all of G groups at once, pass 1 − (1 − confidence)/G.

    Args:
        groups: one value per round, such as a label of its context; known before the action.
        log: what the behavior policy played and got.
        target: as for `us.certify`, of all rounds of the log.
        behavior: as for `us.certify`.
        confidence: 1 − δ, of each group by itself.
        n_actions: as for `us.certify`.

    >>> import understudy as us
    >>> log = us.Log(actions=[0, 1] * 500, rewards=[0.0, 1.0] * 500)
    >>> cities = ["Rome"] * 600 + ["Oslo"] * 400
    >>> found = us.certify_by(cities, log, [0.2, 0.8], behavior=[0.5, 0.5])
    >>> [(city, result.production, result.promoted) for city, result in found.items()]
    [('Rome', 300.0, True), ('Oslo', 200.0, True)]
    """
    certificate, shown, probability, ratios, _ = _checked(
        log, target, behavior, confidence=confidence, n_actions=n_actions
    )
    found = {}
    for value, rows in _rounds_by_group(groups, len(log)).items():
        q = None if shown.propensities is None else shown.propensities[rows]
        part = Log(shown.actions[rows], shown.rewards[rows], q)
        after = follow(certificate, part, probability[rows], ratios[rows])
        found[value] = Certified.of(*after)
    return found


def _rounds_by_group(groups: Any, rounds: int) -> dict[Any, Integers]:
    """The rounds of each value, in the order of first appearance."""
    remedy = f"pass {rounds} texts or whole numbers, one per round of the log"
    values = groups.tolist() if isinstance(groups, np.ndarray) else groups
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidArgument("groups", groups, "it is no sequence of values", remedy)
    found: dict[Any, list[int]] = {}
    count = 0
    for value in values:
        if not isinstance(value, Hashable) or value != value:  # noqa: PLR0124 - not a number
            raise InvalidArgument("groups", value, f"round {count} has no group by it", remedy)
        found.setdefault(value, []).append(count)
        count += 1
    if count != rounds:
        raise InvalidArgument("groups", f"{count} values", f"the log has {rounds} rounds", remedy)
    return {value: np.array(own) for value, own in found.items()}


def _checked(
    log: Log,
    target: Target,
    behavior: ArrayLike | Logged | None,
    *,
    confidence: float,
    n_actions: int | None,
    lambdas: ArrayLike | None = None,
    rules: int = RULES,
    centers: ArrayLike | None = None,
    against: Target | int | None = None,
) -> tuple[AnyCertificate, Log, Array, Array, BaselineRounds | None]:
    """The certificate before round 1, what it sees of the log, π_t(b) and W_t, and the baseline."""
    if not isinstance(log, Log):
        raise InvalidEvent(
            "log", log, "it is not a us.Log", "pass a log; one event goes to us.Certificate.observe"
        )
    if not len(log):
        raise InvalidEvent("log", "0 rounds", "there is nothing to certify", "pass a longer log")
    if behavior is None and n_actions is None:
        n_actions = actions_of(target, len(log))
        if n_actions is None:
            raise InvalidArgument(
                "n_actions",
                None,
                "neither the behavior nor the target tell the number of actions",
                "pass n_actions=K",
            )
    start = Certificate(behavior, confidence, n_actions, lambdas, rules=rules, centers=centers)
    shown = start.check(log)
    probability = probabilities_under(target, shown, start.n_actions)
    if start.centered:
        refuse_rare_actions(target, shown, start.behavior)
    ratios = largest_ratios(target, shown, start.behavior)
    if against is None:
        return start, shown, probability, ratios, None
    if isinstance(against, int | np.integer | str):  # a text is a label, and no action
        K = start.n_actions
        remedy = f"pass one of the actions 0 to {K - 1}, or a policy"
        action = integer(0, remedy, K - 1)("against", against)
        against = FixedPolicy((np.arange(K) == action).astype(np.float64))
    others = probabilities_under(against, shown, start.n_actions, "against")
    baseline = BaselineRounds(others, largest_ratios(against, shown, start.behavior))
    policy = fixed_policy(against, len(shown), start.n_actions)
    certificate = certificate_against(start, policy)
    if start.centered:
        refuse_rare_actions(against, shown, start.behavior)
    return certificate, shown, probability, ratios, baseline


def follow(
    certificate: AnyCertificate,
    log: Log,
    probability: Array,
    ratios: Array,
    baseline: BaselineRounds | None = None,
) -> tuple[AnyCertificate, list[Point]]:
    """The certificate after more rounds, and the points of the curve at these rounds.

    Its arguments are those of `Certificate.advance`, checked.
    """
    start, points = certificate.rounds, []
    for part in parts_between_points(start, len(log)):
        other = None if baseline is None else baseline.part(part)
        certificate = certificate.advance(log[part], probability[part], ratios[part], other)
        if start + part.stop in POINTS_SET:
            points.append(_point_of(certificate))
    return certificate, points


def follow_joint(  # noqa: PLR0917 - as of `follow`
    joint: JointCertificate,
    log: Log,
    probability: Array,
    ratios: Array,
    metrics: Array,
    baseline: BaselineRounds | None = None,
) -> tuple[JointCertificate, list[Point]]:
    """`follow` for a goal with guardrails; the curve is that of the goal."""
    start, points = joint.rounds, []
    for part in parts_between_points(start, len(log)):
        other = None if baseline is None else baseline.part(part)
        columns = log[part], probability[part], ratios[part], metrics[part]
        joint = joint.advance(*columns, other)
        if start + part.stop in POINTS_SET:
            points.append(_point_of(joint.goal))
    return joint, points


def _point_of(certificate: AnyCertificate) -> Point:
    return certificate.lower, certificate.upper, certificate.production, certificate.gain
