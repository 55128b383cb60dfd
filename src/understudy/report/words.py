"""All English about results: verdicts, what a log shows, warnings, facts.

The page, the terminal, the notebook and the live page take their sentences from here; the values
below hold enums and numbers. A certificate writes its own line (its `__repr__`), since it
works without the packages that logs need.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.certificates import Certificate, Certified
from understudy.constraints import Array
from understudy.errors import LONGEST_PATH, shorten
from understudy.formatting import (
    FEW_DIGITS,
    count,
    counted,
    gain,
    least_gain,
    number,
    percent,
    rough_count,
)
from understudy.logs.encoder import Unexpected
from understudy.logs.evaluation.diagnostics import (
    Calibration,
    CalibrationFinding,
    Drift,
    DriftFinding,
    SampleSize,
    ShareChange,
)
from understudy.logs.evaluation.verdicts import (
    Coverage,
    Obstacle,
    PolicyDecision,
    Verdict,
    VerdictKind,
)
from understudy.logs.policy import Policy
from understudy.logs.readers.files import UnreadFiles
from understudy.logs.reject_reasons import WITHOUT_ACTION, list_reasons, remedy_for
from understudy.logs.results import CertifyResult, LearnResult
from understudy.logs.schema import (
    ESTIMATED,
    GIVEN,
    LOGGED,
    Label,
    RewardScale,
    short_label,
)
from understudy.logs.settings import Assumption, Settings, Theorem


class Mark(NamedTuple):
    """How a verdict looks: its sign and word differ, not its color alone."""

    sign: str
    word: str
    style: str


MARKS: dict[VerdictKind, Mark] = {
    "promote": Mark("✓", "Promote", "good"),
    "not yet": Mark("…", "Not enough data yet", "wait"),
    "cannot tell": Mark("?", "Cannot tell", "open"),
    "worse": Mark("✕", "Worse than production", "bad"),
    "coverage": Mark("i", "Coverage", "open"),
}
BEHAVIORS = {
    LOGGED: "propensities as logged, row by row",
    GIVEN: "fixed probabilities, as given",
    ESTIMATED: "unknown: estimated from action frequencies, assumed the same in all rows",
}
THEOREMS = {
    Theorem.NONE: "none",
    Theorem.KNOWN_BEHAVIOR: "Theorem 1{form}: regret at most {factor}√(n log K)·(1 + C/2)",
    Theorem.UNKNOWN_BEHAVIOR: "Theorem 2, with Chernoff's bound instead of Hoeffding's",
    Theorem.LINEAR: "Theorem 3, for LinProd in constant memory: regret at most log K/η + η n C_φ",
    Theorem.COVERAGE_ADAPTIVE: (
        "the coverage-adaptive theorem{form}: regret of order √(C n) against every policy at once; "
        "C is {coverage}"
    ),
}
ASSUMPTIONS = {
    Assumption.FIXED_BEHAVIOR: (
        "the behavior policy is the same in all rows; the drift test of the report may reject this"
    ),
    Assumption.FIXED_RATE: "the rate is fixed; without a horizon it falls, outside all theorems",
    Assumption.SMALL_RATE: "the rate is below every propensity; rare actions break this",
    Assumption.DECLARED_ACTIONS: (
        "the list of actions was known before the log; here it was read from the log. If it was "
        "known, declare it with --actions FILE"
    ),
    Assumption.KNOWN_PROPENSITIES: (
        "propensities are unknown; if the log has them, name their column with --propensity, or a "
        "file of fixed ones with --behavior"
    ),
    Assumption.TIME_ORDER: "rows are in the order of time; --time COLUMN checks this",
}
LOG_THEM = "Log the propensity of every row."
OBSTACLES = {
    Obstacle.BEHAVIOR_CHANGED: (
        f"Production changed over time, so its propensities cannot be estimated. {LOG_THEM}"
    ),
    Obstacle.CONTRADICTORY_BOUNDS: (
        "The lower and the upper bound contradict each other, so propensities or probabilities are "
        "wrong. Check where they come from."
    ),
    Obstacle.WRONG_PROPENSITIES: (
        "The propensities of actions that the policy plays are wrong: see the calibration. Correct "
        "them, and run this again."
    ),
    Obstacle.BEHAVIOR_ESTIMATED: (
        f"Propensities were estimated from action frequencies, which certifies no gain. {LOG_THEM}"
    ),
    Obstacle.NO_ORDER: (
        "The rows have no order, and a certificate of what was earned while learning needs one. "
        "Certify the policy on a later log."
    ),
    Obstacle.NO_PROPENSITIES_WITH_ELIGIBLE_SETS: (
        "With eligible sets, a certificate needs the propensity of every row. Name its column with "
        "--propensity."
    ),
    Obstacle.NO_PROPENSITIES_WITH_CONTEXTS: (
        "With contexts, a certificate needs the propensity of every row. Name its column with "
        "--propensity."
    ),
}
NOT_EXAMINED = "not examined here; understudy coverage --engine does it"
CALIBRATIONS = {
    CalibrationFinding.NO_PROPENSITIES: "there are no propensities to compare with frequencies",
    CalibrationFinding.NOT_EXAMINED: NOT_EXAMINED,
    CalibrationFinding.TOO_FEW_ROWS: "too few rows to check the propensities",
}
FEW_NAMES, MANY_NAMES = 3, 10  # in a sentence about them, and in a list of them
COUNTLESS = 1e15  # rows: no log has so many


# -------------------------------------------------------------------------------------- verdicts


def explain(verdict: Verdict, coverage: Coverage) -> str:
    """The numbers behind a decision, and the next step: one to three sentences.

    The word for the decision itself stands before it (`MARKS`).
    """
    certificate, needed, scale = verdict.certificate, verdict.sample_size, coverage.scale
    if certificate is not None and verdict.decision is not PolicyDecision.UNKNOWN:
        return _decided(verdict, certificate, scale)
    if verdict.obstacle is not None or needed is None:
        assert verdict.obstacle is not None  # what is unknown has an obstacle or a sample size
        return explain_obstacle(verdict.obstacle, coverage.refused)
    if verdict.hidden:
        return _hidden(verdict, needed, scale)
    if certificate is None:
        plays = rough_count(verdict.overlap.effective_sample_size)
        return (
            f"The log covers this policy: {counted(verdict.rows, 'row')} say as much as about "
            f"{plays} plays of its own. Certify it for a decision."
        )
    return _undecided(verdict, certificate, needed, scale)


def headline(verdict: Verdict) -> str:
    """The decision in a few words; more rows would settle what only lacks data."""
    needed = verdict.sample_size
    if verdict.certificate is not None and needed is not None and verdict.gain_is_estimated:
        return MARKS["not yet" if 0.0 < needed.rows < math.inf else verdict.kind].word
    return MARKS[verdict.kind].word


def judged(verdict: Verdict, coverage: Coverage) -> str:
    """The decision about a policy, and the numbers behind it."""
    explained = explain(verdict, coverage)
    covered = verdict.certificate is None and verdict.obstacle is None and not verdict.hidden
    return explained if covered else f"{headline(verdict)}. {explained}"


def explain_obstacle(obstacle: Obstacle, refused: Mapping[str, int]) -> str:
    """Why a log decides nothing, and what to do about it.

    >>> explain_obstacle(Obstacle.MOSTLY_REJECTED, {"reward is missing": 3})
    'Most rows are quarantined (reward is missing: 3). Check the column of the reward.'
    """
    if obstacle is Obstacle.MOSTLY_REJECTED:
        remedy = remedy_for(refused)
        remedy = f"{remedy[0].upper()}{remedy[1:]}"
        return f"Most rows are quarantined ({list_reasons(refused)}). {remedy}."
    if obstacle is Obstacle.UNKNOWN_ACTIONS:
        rows = sum(refused.get(reason, 0) for reason in WITHOUT_ACTION)
        return (
            f"Production's action is unknown in {counted(rows, 'row')}, so its propensities cannot "
            f"be estimated. {LOG_THEM}"
        )
    return OBSTACLES[obstacle]


def _decided(verdict: Verdict, certificate: Certificate, scale: RewardScale) -> str:
    n, sure = certificate.rounds, f"{percent(verdict.confidence)} confidence"
    estimated = gain(scale.gain(verdict.estimated_gain))
    if verdict.decision is PolicyDecision.WORSE:
        production = certificate.least_production(verdict.earned)
        most, least = (number(scale.reward(x / n)) for x in (certificate.upper, production))
        return (
            f"Estimated gain {estimated} per row. The policy earns at most {most} per row, "
            f"production at least {least} ({sure})."
        )
    least = least_gain(scale.gain((certificate.gain or 0.0) / n))
    at = certificate.promoted_at
    when = f" This was first certain after round {count(at)}." if at else ""
    return f"The gain is at least {least} per row with {sure} (estimated {estimated}).{when}"


def _undecided(
    verdict: Verdict, certificate: Certificate, needed: SampleSize, scale: RewardScale
) -> str:
    if not needed.rows:
        return "The policy plays as production does, so there is no gain to show."
    wanted = f"a gain of {number(scale.gain(needed.gain), FEW_DIGITS)} per row"
    if math.isinf(needed.rows) and verdict.rejected:
        return (
            f"No number of such rows would show {wanted}: {count(verdict.rejected)} of "
            f"{counted(verdict.rows, 'row')} are quarantined, and count as if the policy earned "
            "nothing there. Correct those rows."
        )
    estimated = gain(scale.gain(verdict.estimated_gain))
    least = least_gain(scale.gain((certificate.gain or 0.0) / certificate.rounds))
    sure = percent(verdict.confidence)
    found = (
        f"{_once_ahead(certificate)}Estimated gain {estimated} per row ({sure}: at least {least})."
    )
    if verdict.gain_is_estimated:
        return f"{found} {_about(needed.rows)} like these would settle it."
    if needed.rows <= verdict.rows:
        return (
            f"{found} {_about(needed.rows)} would have shown {wanted}; a smaller gain takes more."
        )
    return f"{found} {_about(needed.rows)} like these would show {wanted}."


def _once_ahead(certificate: Certificate) -> str:
    if not certificate.promoted:
        return ""
    when = f" after round {count(certificate.promoted_at)}" if certificate.promoted_at else ""
    return f"The policy was ahead of production{when}, but no gain is certain over all rows. "


def _hidden(verdict: Verdict, needed: SampleSize, scale: RewardScale) -> str:
    share, wanted = (
        percent(verdict.hidden),
        f"a gain of {number(scale.gain(needed.gain), FEW_DIGITS)} per row",
    )
    what = (
        "actions that the log never shows"
        if verdict.plays_unseen
        else "rare or impossible in these rows"
    )
    if needed.rows > verdict.rows:
        step = f"{_about(needed.rows)}, half of them played by the policy, would show {wanted}."
    else:
        explored = 100.0 * (needed.exploration or 0.0)
        step = (
            f"If production followed the policy in about {explored:.2g} % of as many rows, "
            f"{wanted} would show."
        )
    return f"{share} of the policy's plays are {what}. {step}"


def _about(rows: float) -> str:
    if rows >= COUNTLESS:
        return "More than a quadrillion rows"
    return f"About {rough_count(rows)} row{'' if round(rows) == 1 else 's'}"


def certified_line(certified: Certified, coverage: Coverage, who: str, when: str) -> str:
    """What a certificate bounds, in one sentence."""
    scale, n = coverage.scale, certified.certificate.rounds
    sure = percent(certified.certificate.confidence)
    lower, production = (scale.reward(x / n) for x in (certified.lower, certified.production))
    bound = (
        "no gain is certified, since propensities were estimated"
        if certified.gain is None
        else f"the gain is at least {number(scale.gain(certified.gain / n))}"
    )
    at_most = "at most " if n > coverage.rows else ""  # rejected rows may count with the highest
    return (
        f"{when}, with {sure} confidence, {who} would have earned at least {number(lower)} per "
        f"row; production earned {at_most}{number(production)}; {bound}."
    )


# ------------------------------------------------------------------------ what the log itself shows


def findings(coverage: Coverage) -> list[str]:
    """What the log shows about itself, in lines: rows, actions, calibration, drift."""
    rejected = sum(coverage.refused.values())
    quarantined = f"; {count(rejected)} quarantined ({list_reasons(coverage.refused)})"
    lines = [f"{counted(coverage.rows, 'row')}{quarantined if rejected else ''}"]
    labels = coverage.table["action"].to_list()
    if coverage.unseen:
        never = _some(list(map(short_label, coverage.unseen)), MANY_NAMES)
        lines.append(f"Never played: {never}")
    if coverage.deterministic:
        played = coverage.table.filter(coverage.table["count"] > 0)["action"].to_list()
        always = f"it always played {short_label(played[0])}"
        why = always if len(played) == 1 else "every propensity is 1"
        lines.append(
            f"Production was deterministic ({why}), so the log shows nothing of other choices"
        )
    return [
        *lines,
        f"Calibration: {calibration_line(coverage.calibration, labels)}",
        f"Drift: {drift_line(coverage.drift, labels)}",
    ]


def describe_coverage(coverage: Coverage) -> str:
    """What a log can say, in lines, without the table of its actions."""
    verdicts = [f"{found.name}: {judged(found, coverage)}" for found in coverage.verdicts]
    return "\n".join([*findings(coverage), *verdicts])


def calibration_line(calibration: Calibration, labels: Sequence[Label]) -> str:
    """Whether propensities agree with frequencies; the actions that differ most are named."""
    if calibration.finding in CALIBRATIONS:
        return CALIBRATIONS[calibration.finding]
    if calibration.finding is CalibrationFinding.AGREES:
        examined = int(np.isfinite(calibration.ratios).sum())
        return (
            f"propensities agree with frequencies ({count(examined)} of "
            f"{counted(len(labels), 'action')} have enough rows to check)"
        )
    parts = []
    if calibration.wrong.any():
        worst = _worst(labels, calibration.ratios, calibration.wrong, -calibration.ratios)
        parts.append(f"{worst}: these propensities are wrong, and so is every estimate from them")
    if calibration.rare.any():
        worst = _worst(labels, calibration.ratios, calibration.rare, calibration.ratios)
        parts.append(
            f"{worst}: the propensities are too high, the action was not possible in some rows "
            "(eligible sets, contexts), or rare plays did not come up"
        )
    return "; ".join(parts)


def _worst(labels: Sequence[Label], ratios: Array, which: NDArray[np.bool_], order: Array) -> str:
    """The actions that differ most, by name."""
    first, *rest = [int(a) for a in np.argsort(order) if which[a]]
    names = [f"action {short_label(labels[a])} {ratios[a]:.2g}×" for a in rest]
    others = f" ({_some(names, FEW_NAMES - 1)})" if names else ""
    often = f"{ratios[first]:.2g}× as often"
    return f"action {short_label(labels[first])} was played {often} as its propensities say{others}"


def _some(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are.

    >>> _some(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    hidden = len(names) - most
    return ", ".join(names[:most]) + (f" and {count(hidden)} more" if hidden > 0 else "")


def drift_line(drift: Drift, labels: Sequence[Label]) -> str:
    """Whether production stayed the same, in its propensities and over time."""
    if drift.finding is DriftFinding.NOT_EXAMINED:
        return NOT_EXAMINED
    parts = []
    if drift.varies:
        parts.append(
            f"the propensity of an action varies by a factor of up to {drift.factor:.2g}, so use "
            "logged propensities and do not estimate them"
        )
    elif math.isfinite(drift.factor):
        parts.append("each action has the same propensity in all rows")
    if drift.finding is DriftFinding.TOO_FEW_ROWS:
        parts.append("too few rows to see changes over time")
    elif drift.finding is DriftFinding.STEADY:
        parts.append(f"shares of actions are steady over time ({drift.periods} periods compared)")
    elif drift.change is not None:
        parts.append(_changed(drift, drift.change, labels))
    return "; ".join(parts) or "unknown; name a column with --time to see changes over time"


def _changed(drift: Drift, most: ShareChange, labels: Sequence[Label]) -> str:
    change = (
        f"shares of actions change over time (action {short_label(labels[most.action])}: between "
        f"{100 * most.lowest:.2g} % and {100 * most.highest:.2g} %)"
    )
    if drift.behavior != LOGGED:
        return f"{change}, which {drift.behavior} propensities ignore: log that of every row"
    if drift.varies:
        return f"{change}, which logged propensities account for"
    return f"{change} though propensities do not: they are wrong, or actions were not random"


# ----------------------------------------------------------------------- theorems and assumptions


def guarantee(settings: Settings) -> str:
    """The theorem of a learner, with its bound."""
    anytime, logged = settings.horizon is None, settings.behavior == LOGGED
    return THEOREMS[settings.theorem].format(
        form=" without a horizon" if anytime else "",
        factor="√2·" if anytime else "",
        coverage="the mean of 1/q_t" if logged else "the coverage ratio Σ π(a)/q(a)",
    )


def assumptions(policy: Policy) -> list[str]:
    """The assumptions behind a learned policy that the reader is to check."""
    contextual = policy.contextual
    found = [ASSUMPTIONS[assumption] for assumption in policy.settings.unmet]
    if contextual is None:
        return found
    found += [
        "mean rewards are linear in the features; no log can show this",
        "contexts and production have the same distribution in the warm-up and after it",
        f"V is known; here it is the mean of {counted(contextual.rows, 'row')} and a ridge of "
        f"{contextual.ridge:.3g}, which makes estimates cautious and biased",
        f"features are bounded; here {percent(contextual.shrunk / contextual.rows)} of the warm-up "
        f"were scaled down to κ = {contextual.learner.kappa:.4g}",
    ]
    if contextual.unseen:
        found.append(
            f"production plays every action; {contextual.unseen} of "
            f"{contextual.learner.spec.n_actions} are not in the warm-up, so V of these is a guess"
        )
    return found


# ------------------------------------------------------------------------------------- warnings


def learn_warnings(result: LearnResult) -> Iterator[str]:
    """What the reader should know before believing what was learned."""
    policy, scale, contextual = result.policy, result.coverage.scale, result.policy.contextual
    late = policy.study.learner.past_horizon(policy.study.state)
    if late:
        yield f"{counted(late, 'row')} came after the horizon, where no theorem holds."
    if not scale.is_unit:
        yield (
            f"Rewards were rescaled from [{number(scale.low)}, {number(scale.high)}] to [0, 1]. "
            "The learner depends on this range: pass the true one."
        )
    yield from _unexpected(result.oddities)
    if contextual is not None and contextual.encoder.constants:
        yield (
            f"Contexts that did not change in the {counted(contextual.rows, 'row')} of the warm-up "
            f"are left out: {', '.join(contextual.encoder.constants)}; a larger --warmup may see "
            "them change."
        )
    if policy.study.certificate is not None:
        yield from _quarantined(policy.refused, result.coverage)


def certify_warnings(result: CertifyResult) -> Iterator[str]:
    """What the reader should know before believing a certificate."""
    if result.strange is not None:
        known, shown = (_some(list(map(short_label, one)), FEW_NAMES) for one in result.strange)
        yield (
            f"The policy and the log have no action in common: the policy knows {known}; the log "
            f"shows {shown}."
        )
    yield from _unexpected(result.oddities)
    yield from _quarantined(result.coverage.refused, result.coverage)


def unread_warnings(unread: Iterable[UnreadFiles]) -> Iterator[str]:
    """The files of folders that were not read, and what to do about them."""
    for folder, names in unread:
        one = len(names) == 1
        yield (
            f"{counted(len(names), 'file')} of the folder {shorten(str(folder), LONGEST_PATH)} "
            f"{'was' if one else 'were'} not read, because "
            f"{'its name does' if one else 'their names do'} not say the format: "
            f"{_some(list(map(shorten, names)), FEW_NAMES)}; name "
            f"{'it' if one else 'them'}, with --format."
        )


def _unexpected(oddities: Mapping[tuple[str, Unexpected], int]) -> Iterator[str]:
    """Values of contexts that the features were not made from.

    >>> print(*_unexpected({("age", Unexpected.MISSING): 3}))
    Context: age is missing in 3 rows, unlike the warm-up; encoded as rare, missing or unknown.
    """
    for (column, how), rows in oddities.items():
        yield (
            f"Context: {column} is {how} in {counted(rows, 'row')}, unlike the warm-up; encoded as "
            "rare, missing or unknown."
        )


def _quarantined(refused: Mapping[str, int], coverage: Coverage) -> Iterator[str]:
    """How quarantined rows count in a certificate, and what to do about them."""
    rejected = sum(refused.values())
    if rejected:
        yield (
            f"{counted(rejected, 'row')} {'is' if rejected == 1 else 'are'} quarantined "
            f"({list_reasons(refused)}): {remedy_for(refused)}. The certificate counts them as "
            "reward 0 for the policy and, where no reward is given, as the highest for production, "
            f"whose mean in valid rows is {number(coverage.mean_reward)}."
        )
