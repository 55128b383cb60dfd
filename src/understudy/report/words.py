"""Sentences about a policy: verdicts, certificates, theorems and their assumptions.

`findings` says what a log shows. The page, the terminal, the notebook and the live page take their
sentences from these two modules; the values below hold enums and numbers. A certificate writes its
own line (its `__repr__`), since it works without the packages that logs need.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from understudy.behaviors import Logged
from understudy.certificates import Certificate, Certified
from understudy.formatting import (
    FEW_DIGITS,
    count,
    counted,
    gain,
    least_gain,
    most_gain,
    number,
    percent,
    rough_count,
)
from understudy.learners import Exp4, LinProdCompact, Model
from understudy.logs.evaluation.diagnostics import (
    SampleSize,
)
from understudy.logs.evaluation.repeated_rows import RepeatedRows
from understudy.logs.evaluation.sticky_columns import StickyColumns
from understudy.logs.evaluation.verdicts import (
    Coverage,
    Obstacle,
    PolicyDecision,
    Verdict,
    VerdictKind,
)
from understudy.logs.policy import Policy
from understudy.logs.rules import (
    AGAINST_LEAST,
    WITHOUT_ACTION,
    RejectReason,
    list_reasons,
    remedy_for,
    without_copies,
)
from understudy.logs.schema import (
    ESTIMATED,
    GIVEN,
    LOGGED,
    WeightBound,
)
from understudy.logs.settings import (
    GRID,
    MIXTURE,
    REGRESSION,
    UNKNOWN,
    Assumption,
    Settings,
    Theorem,
    name_of_default,
)
from understudy.protocols import PRODUCTION
from understudy.report.findings import describe_log, explain_sticky, repeated_line


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
    Theorem.FIRST_ORDER: (
        "the first-order theorem{form}: regret of order √(log K · Σ r/q) against every action"
    ),
    Theorem.MIXTURE: (
        "the mixture theorem{form}: regret of order √(log M · Σ π²r²/q) against each of M experts"
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
MODELS = (
    "models that are experts were not fitted to rows of this log; no log can show this, and if it "
    "is false, nothing here holds"
)
UNITS = "units do not influence each other: the action of one changes no reward of another"
FRESH_DRAWS = (
    "production drew an action in every row; if it drew one for each user, say, and kept it, name "
    "the column of users with --unit"
)
FRESH_DRAWS_OF_RUNS = (
    f"{FRESH_DRAWS}. Each run, with --resume, looked for such columns in its own rows alone"
)
# Why a learner is the default: `settings.name_of_default` says when.
DEFAULTS = {
    MIXTURE: (
        "With contexts, the default is a mixture of production, learners without and with "
        "contexts, and regressions. No reward was looked at to choose among them: the mixture "
        "chooses while it learns, with its guarantee."
    ),
    GRID: (
        "Without contexts, the default runs a grid of learning rates beside each other, so that "
        "no rate has to be chosen, and begins as production."
    ),
    REGRESSION: (
        "With contexts and unknown propensities, the default is a regression of the rewards of "
        "each action: it needs no propensities, and has no guarantee."
    ),
    UNKNOWN: (
        "Without propensities, the default estimates them from action frequencies, cautiously."
    ),
}
WEIGHT_BOUNDS = {
    WeightBound.BEHAVIOR: "production's probabilities",
    WeightBound.VECTORS: "the logged propensities of all actions",
    WeightBound.LEAST_PROPENSITY: "the declared least propensity",
}
BOUND_WEIGHTS = (
    "Declare --least-propensity F if every action has at least the propensity F in every row, or "
    "name the column with the propensities of all actions with --propensity-vector (in a live "
    "study, least_propensity or propensity_vectors): then fewer rows are needed"
)
LOG_THEM = "Log the propensity of every row."
NEEDS_PROPENSITIES = (
    "a certificate needs the propensity of every row. Name its column with --propensity."
)
OBSTACLES = {
    Obstacle.BEHAVIOR_CHANGED: (
        f"Production changed over time, so its propensities cannot be estimated. {LOG_THEM}"
    ),
    Obstacle.CONTRADICTORY_BOUNDS: (
        "The lower and the upper bound contradict each other, so propensities or probabilities are "
        "wrong. Check where they come from."
    ),
    Obstacle.WRONG_WEIGHTS: (
        "The policy's probabilities, divided by the propensities, do not have a mean of 1, so they "
        "are not those of a policy over these actions, or propensities are wrong. Log the policy's "
        "probability of the action that production played."
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
    Obstacle.NO_PROPENSITIES_WITH_ELIGIBLE_SETS: f"With eligible sets, {NEEDS_PROPENSITIES}",
    Obstacle.NO_PROPENSITIES_WITH_CONTEXTS: f"With contexts, {NEEDS_PROPENSITIES}",
}
COUNTLESS = 1e15  # rows: no log has so many


# -------------------------------------------------------------------------------------- verdicts


def explain(verdict: Verdict, coverage: Coverage) -> str:
    """The numbers behind a decision, and the next step: one to three sentences.

    The word for the decision itself stands before it (`MARKS`).
    """
    certificate, needed = verdict.certificate, verdict.sample_size
    if certificate is not None and verdict.decision is not PolicyDecision.UNKNOWN:
        return _explain_decision(verdict, certificate, coverage)
    if verdict.obstacle is not None:
        return explain_obstacle(
            verdict.obstacle, coverage.refused, coverage.repeated, coverage.sticky
        )
    assert needed is not None  # every unknown decision has an obstacle or a sample size
    if verdict.hidden:
        return _explain_missing_overlap(verdict, needed, coverage)
    if certificate is None:
        plays = rough_count(verdict.overlap.effective_sample_size)
        return (
            f"The log covers this policy: {counted(verdict.rows, round_noun(coverage))} say as "
            "much as about "
            f"{plays} plays of its own. Certify it for a decision."
        )
    return _explain_missing_data(verdict, certificate, needed, coverage)


def round_noun(coverage: Coverage) -> str:
    """The word for a round of the log: each unit is one if the log has units."""
    return "unit" if coverage.by_unit else "row"


def headline(verdict: Verdict) -> str:
    """The decision in a few words; "not yet" where more rows like these would settle it."""
    needed = verdict.sample_size
    settled = (
        verdict.certificate is not None
        and verdict.gain_is_estimated
        and needed is not None
        and 0.0 < needed.rows < math.inf
    )
    return MARKS["not yet" if settled else verdict.kind].word


def describe_verdict(verdict: Verdict, coverage: Coverage) -> str:
    """The decision about a policy, and the numbers behind it."""
    explained = explain(verdict, coverage)
    covered = verdict.certificate is None and verdict.obstacle is None and not verdict.hidden
    return explained if covered else f"{headline(verdict)}. {explained}"


def describe_coverage(coverage: Coverage) -> str:
    """What a log can say, in lines, without the table of its actions."""
    verdicts = [f"{found.name}: {describe_verdict(found, coverage)}" for found in coverage.verdicts]
    return "\n".join([*describe_log(coverage), *verdicts])


def explain_obstacle(
    obstacle: Obstacle,
    refused: Mapping[str, int],
    repeated: RepeatedRows | None = None,
    sticky: StickyColumns | None = None,
) -> str:
    """The reason why a log decides nothing, and the remedy.

    >>> explain_obstacle(Obstacle.MOSTLY_REJECTED, {"propensity is missing": 3})
    'Most rows are quarantined (propensity is missing: 3). Check the column of the propensity.'
    """
    if obstacle is Obstacle.MOSTLY_REJECTED:
        refused = without_copies(refused)
        remedy = remedy_for(refused)
        return (
            f"Most rows are quarantined ({list_reasons(refused)}). {remedy[0].upper()}{remedy[1:]}."
        )
    if obstacle is Obstacle.UNKNOWN_ACTIONS:
        rows = sum(refused.get(reason, 0) for reason in WITHOUT_ACTION)
        return (
            f"Production's action is unknown in {counted(rows, 'row')}, so its propensities cannot "
            f"be estimated. {LOG_THEM}"
        )
    if obstacle is Obstacle.WRONG_LEAST_PROPENSITY:
        remedy = RejectReason.PROPENSITY_BELOW_LEAST.remedy
        rows = sum(refused.get(reason, 0) for reason in AGAINST_LEAST)
        why = f"it contradicts {counted(rows, 'quarantined row')}"
        if not rows:
            why = "actions that the policy plays occur too rarely for it (see the coverage)"
        return (
            f"The declared least propensity is wrong: {why}. {remedy[0].upper()}{remedy[1:]} (a "
            "live study: create it again, with a smaller least_propensity or none)."
        )
    if obstacle is Obstacle.REPEATED_ROWS:
        assert repeated is not None  # it is the finding
        return (
            f"Rows seem to be copies of each other: {repeated_line(repeated)}. If they have ids, "
            "name their column with --id; if they are separate decisions, pass --repeated-rows "
            "allow."
        )
    if obstacle is Obstacle.STICKY_COLUMNS:
        assert sticky is not None  # it is the finding
        return explain_sticky(sticky)
    return OBSTACLES[obstacle]


def _explain_decision(verdict: Verdict, certificate: Certificate, coverage: Coverage) -> str:
    scale, row = coverage.scale, round_noun(coverage)
    n, sure = certificate.rounds, f"{percent(verdict.confidence)} confidence"
    estimated = gain(scale.gain(verdict.estimated_gain))
    if verdict.decision is PolicyDecision.WORSE and certificate.gain_upper is not None:
        most = most_gain(scale.gain(certificate.gain_upper / n))
        return f"Estimated gain {estimated} per {row}; it is at most {most} with {sure}."
    if verdict.decision is PolicyDecision.WORSE:
        production = certificate.least_production(verdict.earned)
        most, least = (number(scale.reward(x / n)) for x in (certificate.upper, production))
        return (
            f"Estimated gain {estimated} per {row}. The policy earns at most {most} per {row}, "
            f"production at least {least} ({sure})."
        )
    window = certificate.window
    assert window is not None  # a promotion has one
    least = least_gain(scale.gain(window.gain))
    at = certificate.promoted_at
    when = f" A gain was first certain after {row} {count(at)}." if at else ""
    if window.start == 1:
        return f"The gain is at least {least} per {row} with {sure} (estimated {estimated}).{when}"
    return (
        f"Since {row} {count(window.start)} the gain is at least {least} per {row} with {sure}; "
        f"over all {row}s it is estimated at {estimated}.{when}"
    )


def _explain_missing_data(
    verdict: Verdict, certificate: Certificate, needed: SampleSize, coverage: Coverage
) -> str:
    scale, row = coverage.scale, round_noun(coverage)
    if not needed.rows and not certificate.evidence.totals[0]:  # Σ R
        return "Every reward is the lowest there is, so policies do not differ in this log."
    if not needed.rows:
        return "The policy plays as production does, so there is no gain to show."
    wanted = _wanted(needed, coverage)
    if math.isinf(needed.rows) and verdict.rejected:
        return (
            f"No number of such {row}s would show {wanted}: {count(verdict.rejected)} of "
            f"{counted(verdict.rows, row)} are quarantined, and count with the worst that they "
            f"may have been. Correct those {row}s."
        )
    estimated = gain(scale.gain(verdict.estimated_gain))
    least = least_gain(scale.gain((certificate.gain or 0.0) / certificate.rounds))
    sure = percent(verdict.confidence)
    bounds = f"{sure}: at least {least}"
    if certificate.gain_upper is not None:
        most = most_gain(scale.gain(certificate.gain_upper / certificate.rounds))
        bounds = f"at least {least}, at most {most}, each with {sure}"
    found = f"{_once_ahead(certificate, row)}Estimated gain {estimated} per {row} ({bounds})."
    rows = _about_rows(needed.rows, row)
    if verdict.gain_is_estimated:
        return f"{found} {rows} like these would settle it."
    if needed.rows <= verdict.rows:
        return f"{found} {rows} would have shown {wanted}; a smaller gain takes more."
    return f"{found} {rows} like these would show {wanted}."


def _once_ahead(certificate: Certificate, row: str) -> str:
    if not certificate.promoted:
        return ""
    when = f" after {row} {count(certificate.promoted_at)}" if certificate.promoted_at else ""
    return f"The policy was ahead of production{when}, but no gain is certain over all {row}s. "


def _explain_missing_overlap(verdict: Verdict, needed: SampleSize, coverage: Coverage) -> str:
    row = round_noun(coverage)
    wanted, rows = _wanted(needed, coverage), _about_rows(needed.rows, row)
    what = f"rare or impossible in these {row}s"
    if verdict.plays_unseen:
        what = "actions that the log never shows"
    if needed.rows > verdict.rows:
        step = f"{rows}, half of them played by the policy, would show {wanted}."
    else:
        explored = 100.0 * (needed.exploration or 0.0)
        step = (
            f"If production followed the policy in about {explored:.2g} % of as many {row}s, "
            f"{wanted} would show."
        )
    return f"{percent(verdict.hidden)} of the policy's plays are {what}. {step}"


def _wanted(needed: SampleSize, coverage: Coverage) -> str:
    least = number(coverage.scale.gain(needed.gain), FEW_DIGITS)
    return f"a gain of {least} per {round_noun(coverage)}"


def _about_rows(rows: float, row: str) -> str:
    if rows >= COUNTLESS:
        return f"More than a quadrillion {row}s"
    return f"About {rough_count(rows)} {row}{'' if round(rows) == 1 else 's'}"


def describe_certificate(certified: Certified, coverage: Coverage, who: str, when: str) -> str:
    """The bounds of a certificate: on the reward, and on the gain by itself."""
    scale, n = coverage.scale, certified.certificate.rounds
    sure = percent(certified.certificate.confidence)
    totals = certified.lower, certified.upper, certified.production
    lower, upper, production = (number(scale.reward(x / n)) for x in totals)
    at_most = "at most " if n > coverage.rows else ""  # rejected rows may count with the highest
    earned = (
        f"{when}, {who} would have earned at least {lower} and at most {upper} per "
        f"{round_noun(coverage)}, with {sure} confidence in both together; production earned "
        f"{at_most}{production}."
    )
    if certified.gain is None:
        return f"{earned} No gain is certified, since propensities were estimated."
    least = number(scale.gain(certified.gain / n))
    if certified.gain_upper is None:
        return f"{earned} The gain is at least {least}, with {sure} confidence by itself."
    most = number(scale.gain(certified.gain_upper / n))
    return (
        f"{earned} The gain is at least {least}, and at most {most}, each with {sure} confidence "
        "by itself."
    )


def weight_bound(bound: WeightBound) -> str:
    """What bounds the importance weights of a row; if nothing does, the remedy."""
    return WEIGHT_BOUNDS.get(bound) or f"unknown. {BOUND_WEIGHTS}"


def centering(bound: WeightBound, centered: int, rounds: int) -> str:
    """In which rounds bets were centered, by what; if in none, why, and the remedy.

    >>> centering(WeightBound.VECTORS, 10, 10)
    'Bets are centered at the mean reward, by the logged propensities of all actions.'
    """
    if bound not in WEIGHT_BOUNDS:
        return (
            f"Bets are not centered, since the largest weight of a row is unknown. {BOUND_WEIGHTS}."
        )
    if not centered:
        return (
            "Bets are not centered. If the actions were known before the log, declare them with "
            "--actions FILE. With eligible sets, or actions that the policy plays and production "
            "does not, there are no centers."
        )
    some = "" if centered == rounds else f" in {counted(centered, 'round')}"
    return f"Bets are centered at the mean reward{some}, by {WEIGHT_BOUNDS[bound]}."


# ----------------------------------------------------------------------- theorems and assumptions


def guarantee(settings: Settings) -> str:
    """The theorem of a learner, with its bound."""
    anytime, logged = settings.horizon is None, settings.behavior == LOGGED
    return THEOREMS[settings.theorem].format(
        form=" without a horizon" if anytime else "",
        factor="√2·" if anytime else "",
        coverage="the mean of 1/q_t" if logged else "the coverage ratio Σ π(a)/q(a)",
    )


def learner(settings: Settings) -> str:
    """The learner, and the experts or the learner that it mixes if the user named them.

    >>> from types import SimpleNamespace
    >>> learner(SimpleNamespace(learner="exp4", wanted={"safe": "production", "grid": "prod-grid"}))
    'exp4 of safe: production; grid: prod-grid'
    """
    wanted = settings.wanted
    if isinstance(wanted, Mapping):
        wanted = "; ".join(f"{name}: {text}" for name, text in wanted.items())
    return settings.learner if wanted is None else f"{settings.learner} of {wanted}"


def why_chosen(policy: Policy) -> str:
    """The reason for the default learner; empty if the user named another one."""
    settings, contexts = policy.settings, policy.contextual is not None
    default = name_of_default(policy.study.behavior, contexts=contexts)
    return DEFAULTS[default] if settings.learner == default and settings.wanted is None else ""


def production_share(policy: Policy) -> float:
    """The share of the plays in which a policy does as production does; 0 for a mixture."""
    mixture = isinstance(policy.study.learner, Exp4)
    return 0.0 if mixture else policy.shares.get(PRODUCTION, 0.0)


def _least_propensity(promised: float, seen: float) -> list[str]:
    """The assumption of centred estimates, if they are centred; whether the log contradicts it."""
    if not promised:
        return []
    at_least = f"every action of every row has a propensity of at least {promised:.4g}"
    if seen >= promised:
        return [f"{at_least}, the least one of the warm-up"]
    return [f"{at_least}; here one is {seen:.4g}, by which the mixture has gone since"]


def assumptions(policy: Policy) -> list[str]:
    """The assumptions of a learned policy's theorem that the reader must check."""
    contextual, learner = policy.contextual, policy.study.learner
    found = [ASSUMPTIONS[assumption] for assumption in policy.settings.unmet]
    if isinstance(learner, Exp4) and isinstance(learner.behavior, Logged):
        found += _least_propensity(learner.least_propensity, policy.study.state.least)
    if policy.units is not None:
        found.append(UNITS)
    if policy.settings.columns.experts or (
        isinstance(learner, Exp4) and any(isinstance(one, Model) for one in learner.experts)
    ):
        found.append(MODELS)
    if contextual is None or not isinstance(learner, LinProdCompact):
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
            f"{learner.spec.n_actions} are not in the warm-up, so V of these is a guess"
        )
    return found
