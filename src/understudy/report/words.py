"""Sentences about a policy: verdicts, certificates, theorems and their assumptions.

`findings` says what a log shows. The page, the terminal, the notebook and the live page take their
sentences from these two modules; the values below hold enums and numbers. A certificate writes its
own line (its `__repr__`), since it works without the packages that logs need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from understudy.behaviors import Logged
from understudy.certificates import Certified
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
from understudy.logs.evaluation.answers import GuardrailBounds, GuardrailState
from understudy.logs.evaluation.diagnostics import MOST_EXPLORATION
from understudy.logs.evaluation.outcomes import (
    Obstacle,
    PolicyDecision,
    Reason,
    Step,
    Verdict,
    VerdictOutcome,
)
from understudy.logs.evaluation.repeated_rows import RepeatedRows
from understudy.logs.evaluation.sticky_columns import StickyColumns
from understudy.logs.evaluation.verdicts import Coverage
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


MARKS = {
    VerdictOutcome.PROMOTE: Mark("✓", "Promote", "good"),
    VerdictOutcome.NOT_ENOUGH_DATA: Mark("…", "Not enough data yet", "wait"),
    VerdictOutcome.NO_VISIBLE_GAIN: Mark("≈", "No visible gain", "open"),
    VerdictOutcome.WORSE: Mark("✕", "Worse than production", "bad"),
    VerdictOutcome.GUARDRAIL_BROKEN: Mark("▼", "A guardrail is broken", "bad"),
    VerdictOutcome.NO_LONGER_CERTAIN: Mark("↓", "No longer certain", "wait"),
    VerdictOutcome.IMPOSSIBLE: Mark("∅", "Impossible with such a log", "open"),
    VerdictOutcome.CANNOT_TELL: Mark("?", "Cannot tell", "open"),
    VerdictOutcome.NOT_CERTIFIED: Mark("–", "Not certified", "open"),
}
COVERAGE = Mark("i", "Coverage", "open")  # of a report that decides nothing
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
        "action frequencies are close to propensities; if the log has these, name their column "
        "with --propensity, or a file of fixed ones with --behavior"
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
NAME_THEM = "Name their column with --propensity."
OBSTACLES = {
    Obstacle.BEHAVIOR_CHANGED: (
        "Production changed over time, so its propensities cannot be estimated.",
        LOG_THEM,
    ),
    Obstacle.CONTRADICTORY_BOUNDS: (
        "The lower and the upper bound contradict each other, so propensities or probabilities are "
        "wrong.",
        "Check where they come from.",
    ),
    Obstacle.WRONG_WEIGHTS: (
        "The policy's probabilities, divided by the propensities, do not have a mean of 1, so they "
        "are not those of a policy over these actions, or propensities are wrong.",
        "Log the policy's probability of the action that production played.",
    ),
    Obstacle.WRONG_PROPENSITIES: (
        "The propensities of actions that the policy plays are wrong: see the calibration.",
        "Correct them, and run this again.",
    ),
    Obstacle.BEHAVIOR_ESTIMATED: (
        "Propensities were estimated from action frequencies, which certifies no gain.",
        LOG_THEM,
    ),
    Obstacle.NO_ORDER: (
        "The rows have no order, and a certificate of what was earned while learning needs one.",
        "Certify the policy on a later log.",
    ),
    Obstacle.NO_PROPENSITIES_WITH_ELIGIBLE_SETS: (
        "With eligible sets, a certificate needs the propensity of every row.",
        NAME_THEM,
    ),
    Obstacle.NO_PROPENSITIES_WITH_CONTEXTS: (
        "With contexts, a certificate needs the propensity of every row.",
        NAME_THEM,
    ),
}
STEPS = {
    Step.RAMP_UP: (
        "Next: let the policy make {stages}; log each stage with its propensities, and certify it "
        "before the next."
    ),
    Step.KEEP_PRODUCTION: (
        "Next: keep production. If a smaller gain matters, log more {row}s; if you need a larger "
        "one, try another policy."
    ),
    Step.DIFFER: "Next: keep production, or try a policy that differs from it.",
    Step.REJECT: "Next: keep production, and do not roll this policy out.",
    Step.HOLD: "Next: do not raise the policy's share of the decisions, and go on logging.",
    Step.CORRECT_ROWS: "Next: correct the quarantined {row}s ({remedy}).",
    Step.CHECK_REWARDS: "Next: check the column of rewards.",
    Step.CERTIFY: "Next: certify it for a decision.",
}
COUNTLESS = 1e15  # rows: no log has so many


# -------------------------------------------------------------------------------------- verdicts


class Explanation(NamedTuple):
    """The numbers or the cause behind an outcome, and the next step, in sentences."""

    finding: str
    step: str

    def __str__(self) -> str:
        return f"{self.finding} {self.step}"


def explain(verdict: Verdict, coverage: Coverage) -> Explanation:
    """The numbers or the cause behind the outcome of a verdict, and the one next step.

    The word for the outcome itself stands before it (`MARKS`).
    """
    if isinstance(verdict.reason, Obstacle):
        return explain_obstacle(
            verdict.reason, coverage.refused, coverage.repeated, coverage.sticky
        )
    return Explanation(
        _explain_reason(verdict, verdict.reason, coverage), next_step(verdict, coverage)
    )


def round_noun(coverage: Coverage) -> str:
    """The word for a round of the log: each unit is one if the log has units."""
    return "unit" if coverage.by_unit else "row"


def describe_verdict(verdict: Verdict, coverage: Coverage) -> str:
    """The outcome of a verdict, the numbers behind it, and the next step."""
    explained = explain(verdict, coverage)
    if verdict.outcome is VerdictOutcome.NOT_CERTIFIED:
        return str(explained)
    return f"{MARKS[verdict.outcome].word}. {explained}"


def describe_coverage(coverage: Coverage) -> str:
    """What a log can say, in lines, without the table of its actions."""
    verdicts = [f"{found.name}: {describe_verdict(found, coverage)}" for found in coverage.verdicts]
    return "\n".join([*describe_log(coverage), *verdicts])


def explain_obstacle(
    obstacle: Obstacle,
    refused: Mapping[str, int],
    repeated: RepeatedRows | None = None,
    sticky: StickyColumns | None = None,
) -> Explanation:
    """The reason why a log decides nothing, and the remedy.

    >>> print(explain_obstacle(Obstacle.MOSTLY_REJECTED, {"propensity is missing": 3}))
    Most rows are quarantined (propensity is missing: 3). Check the column of the propensity.
    """
    if obstacle is Obstacle.MOSTLY_REJECTED:
        refused = without_copies(refused)
        return Explanation(
            f"Most rows are quarantined ({list_reasons(refused)}).",
            _sentence(remedy_for(refused)),
        )
    if obstacle is Obstacle.UNKNOWN_ACTIONS:
        rows = sum(refused.get(reason, 0) for reason in WITHOUT_ACTION)
        return Explanation(
            f"Production's action is unknown in {counted(rows, 'row')}, so its propensities cannot "
            "be estimated.",
            LOG_THEM,
        )
    if obstacle is Obstacle.WRONG_LEAST_PROPENSITY:
        rows = sum(refused.get(reason, 0) for reason in AGAINST_LEAST)
        why = f"it contradicts {counted(rows, 'quarantined row')}"
        if not rows:
            why = "actions that the policy plays occur too rarely for it (see the coverage)"
        remedy = RejectReason.PROPENSITY_BELOW_LEAST.remedy
        live = "(a live study: create it again, with a smaller least_propensity or none)"
        return Explanation(
            f"The declared least propensity is wrong: {why}.", _sentence(f"{remedy} {live}")
        )
    if obstacle is Obstacle.REPEATED_ROWS:
        assert repeated is not None  # it is the finding
        return Explanation(
            f"Rows seem to be copies of each other: {repeated_line(repeated)}.",
            "If they have ids, name their column with --id; if they are separate decisions, pass "
            "--repeated-rows allow.",
        )
    if obstacle is Obstacle.STICKY_COLUMNS:
        assert sticky is not None  # it is the finding
        return Explanation(*explain_sticky(sticky))
    return Explanation(*OBSTACLES[obstacle])


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


def _explain_reason(verdict: Verdict, reason: Reason, coverage: Coverage) -> str:
    """The estimate and its bounds first, or the cause that keeps a log from having them."""
    row, hidden = round_noun(coverage), percent(verdict.hidden)
    none_would = f"so no number of such {row}s would show a gain"
    causes = {
        Reason.TOO_FEW_ROWS: (
            f"{counted(verdict.rows, row)} are too few to show what the policy would earn."
        ),
        Reason.NO_REWARDS: (
            "Every reward is the lowest there is, so policies do not differ in this log."
        ),
        Reason.SAME_AS_PRODUCTION: (
            "The policy plays as production does, so there is no gain to show."
        ),
        Reason.DETERMINISTIC_PRODUCTION: (
            f"Production was deterministic: it could play only one action in each {row}, "
            f"{none_would}."
        ),
        Reason.UNSEEN_ACTIONS: (
            f"{hidden} of the policy's plays are actions that the log never shows, {none_would}."
        ),
        Reason.RARE_ACTIONS: (
            f"{hidden} of the policy's plays are rare or impossible in these {row}s, {none_would}."
        ),
        Reason.NO_CERTIFICATE: (
            f"The log covers this policy: {counted(verdict.rows, row)} say as much as about "
            f"{rough_count(verdict.overlap.effective_sample_size)} plays of its own."
        ),
    }
    if reason in causes:
        return causes[reason]
    bounds = _bounds(verdict, coverage)
    if reason is Reason.GUARDRAIL_IS_BROKEN:
        broken = [one for one in verdict.guardrails if one.state is GuardrailState.BROKEN]
        return " ".join([*map(_guardrail, broken), f"{bounds}."])
    if reason is Reason.GAIN_IS_LOST:
        at = verdict.certificate and verdict.certificate.promoted_at
        when = f" after {row} {count(at)}" if at else ""
        return f"A gain was certain{when}, and over all {row}s it is not any more. {bounds}."
    if reason is Reason.WITHIN_ONE_STANDARD_ERROR:
        scale = coverage.scale
        error = number(scale.gain(verdict.standard_error), FEW_DIGITS)
        compared = f": not above its standard error, {error}" if verdict.standard_error > 0 else ""
        visible = number(scale.gain(verdict.visible_gain), FEW_DIGITS)
        could = ""
        if verdict.visible_gain <= 1.0:
            could = f" In this many {row}s, a gain of {visible} or more would usually show."
        return f"{bounds}{compared}.{could}"
    if reason is Reason.QUARANTINED_ROWS:
        return (
            f"{count(verdict.rejected)} of {counted(verdict.rows, row)} are quarantined, and count "
            f"with the worst that they may have been, {none_would}. {bounds}."
        )
    told = [f"{bounds}."]
    if reason is Reason.GUARDRAIL_IS_UNCERTAIN:
        told += [_guardrail(one) for one in verdict.guardrails if one.state is not HOLDS]
    elif verdict.guardrails and verdict.decision is PolicyDecision.BETTER:
        n = len(verdict.guardrails)
        told.append("The guardrail holds." if n == 1 else f"All {n} guardrails hold.")
    if verdict.missing_at_random:
        rows = sum(without_copies(coverage.refused).values())
        told.append(f"Assumes that {counted(rows, f'quarantined {row}')} are missing at random.")
    return " ".join(told)


HOLDS = GuardrailState.HOLDS


def _guardrail(one: GuardrailBounds) -> str:
    """Whether a guardrail holds: the change of its metric against the margin.

    >>> from understudy.certificates import Guardrail
    >>> latency = Guardrail("latency_ms", 0.0, 2000.0, "lower", 20.0)
    >>> _guardrail(GuardrailBounds(latency, GuardrailState.BROKEN, 31.0, 28.0, 34.0, None))
    'The guardrail latency_ms is broken: it changes by at least +28 (estimated +31; margin +20).'
    """
    metric = one.metric
    lower_is_better = metric.better == "lower"
    margin = gain(metric.margin if lower_is_better else -metric.margin)
    estimate = "unknown" if one.estimate is None else gain(one.estimate)
    if one.low is None or one.high is None:
        return f"The guardrail {metric.name} is not certain yet."
    worst = (
        f"at most {most_gain(one.high)}" if lower_is_better else f"at least {least_gain(one.low)}"
    )
    if one.state is GuardrailState.BROKEN:
        best = (
            f"at least {least_gain(one.low)}"
            if lower_is_better
            else f"at most {most_gain(one.high)}"
        )
        return (
            f"The guardrail {metric.name} is broken: it changes by {best} (estimated {estimate}; "
            f"margin {margin})."
        )
    state = "holds" if one.state is HOLDS else "is not certain yet"
    return (
        f"The guardrail {metric.name} {state}: it changes by {worst} (estimated {estimate}; margin "
        f"{margin})."
    )


def describe_quarantined(verdict: Verdict, coverage: Coverage) -> str:
    """What is assumed of quarantined rows, and the lower bound under the other assumption."""
    row = round_noun(coverage)
    rows = counted(sum(without_copies(coverage.refused).values()), row)
    other = least_gain(coverage.scale.gain(verdict.other_gain or 0.0))
    if verdict.missing_at_random:
        return (
            f"{rows} are left out, as missing at random. With the worst that they may have been, "
            f"the gain is at least {other} per {row}."
        )
    return (
        f"{rows} count with the worst that they may have been. If they are missing at random "
        f"(--quarantined missing-at-random), the gain is at least {other} per {row}."
    )


def _bounds(verdict: Verdict, coverage: Coverage) -> str:
    """The estimated gain, and its bounds with their confidence."""
    scale, row, sure = coverage.scale, round_noun(coverage), percent(verdict.confidence)
    found = verdict.gain
    least, most = (None if x is None else scale.gain(x) for x in (found.low, found.high))
    estimate = gain(scale.gain(verdict.estimated_gain))
    over = "" if verdict.baseline is None else f" over {verdict.baseline.name}"
    estimated = f"Estimated gain{over and f'{over}:'}"
    if found.since is not None and verdict.decision is PolicyDecision.BETTER:
        late = least_gain(scale.gain(found.low_since or 0.0))
        return (
            f"Gain{over} per {row} since {row} {count(found.since)}: at least {late} with {sure} "
            f"confidence (estimated {estimate} over all {row}s)"
        )
    if most is None and verdict.decision is PolicyDecision.WORSE and verdict.certificate:
        production = verdict.certificate.least_production(verdict.earned)
        totals = verdict.certificate.upper, production
        highest, lowest = (number(scale.reward(x / verdict.rows)) for x in totals)
        return (
            f"{estimated} {estimate} per {row}: the policy earns at most {highest}, production "
            f"at least {lowest} ({sure} confidence)"
        )
    if least is None:
        return f"{estimated} {estimate} per {row}"
    if most is None:
        return f"{estimated} {estimate} per {row} ({sure}: at least {least_gain(least)})"
    return (
        f"{estimated} {estimate} per {row} (at least {least_gain(least)}, at most "
        f"{most_gain(most)}, each with {sure})"
    )


def next_step(verdict: Verdict, coverage: Coverage) -> str:
    """The one next step of a verdict without an obstacle."""
    row, found = round_noun(coverage), verdict.next_step
    if found.step is Step.EXPLORE:
        needed = verdict.sample_size
        assert needed is not None  # an outcome that asks for exploration has it
        share, longer = 100.0 * (found.exploration or 0.0), ""
        if found.exploration == MOST_EXPLORATION:
            longer = f", for more {row}s than these"
        wanted = number(coverage.scale.gain(needed.gain), FEW_DIGITS)
        return (
            f"Next: let production follow the policy in about {share:.2g} % of its decisions"
            f"{longer}, and log their propensities; then a gain of {wanted} per {row} would show."
        )
    if found.step is Step.LOG_MORE_ROWS:
        if found.rows is None:
            return "Next: go on logging, and run this again."
        if found.rows <= verdict.rows:
            return (
                f"Next: go on logging; if the estimate is right, about as many {row}s again settle "
                "it more often than not."
            )
        rows = _about_rows(found.rows, row)
        return (
            f"Next: go on logging; if the estimate is right, about {rows} like these, in all, "
            "settle it more often than not."
        )
    return STEPS[found.step].format(
        row=row, stages=_stages(found.shares), remedy=remedy_for(without_copies(coverage.refused))
    )


def _stages(shares: tuple[float, ...]) -> str:
    """The shares of a ramp.

    >>> _stages((0.01, 0.1, 1.0))
    '1 % of the decisions, then 10 %, 100 %'
    """
    if not shares:
        return ""
    first, *rest = map(percent, shares)
    return f"{first} of the decisions, then {', '.join(rest)}"


def _about_rows(rows: float, row: str) -> str:
    if rows >= COUNTLESS:
        return f"a quadrillion {row}s or more"
    return f"{rough_count(rows)} {row}{'' if round(rows) == 1 else 's'}"


def ramp_code(name: str, columns: Sequence[str] = (), outside: Sequence[str] = ()) -> str:
    """Python that loads a promoted policy and draws from it.

    `columns` are those of its contexts, `outside` the names of what it follows in part.

    >>> print(ramp_code("policy.json", ["age"]))
    import numpy as np
    import understudy as us
    <BLANKLINE>
    rng = np.random.default_rng()
    policy = us.logs.Policy.load('policy.json')
    label, probability = policy.draw({'age': ...}, rng=rng)
    # Where the policy plays in a share s of the decisions, log the propensity
    # s * probability + (1 - s) * (production's probability of this label).
    """
    arguments = []
    if columns:
        arguments.append("{" + ", ".join(f"{column!r}: ..." for column in columns) + "}")
    arguments.append("rng=rng")
    if PRODUCTION in outside:
        arguments.append("production={...}")
    if experts := [one for one in outside if one != PRODUCTION]:
        arguments.append("experts={" + ", ".join(f"{one!r}: ..." for one in experts) + "}")
    return "\n".join(
        (
            "import numpy as np",
            "import understudy as us",
            "",
            "rng = np.random.default_rng()",
            f"policy = us.logs.Policy.load({name!r})",
            f"label, probability = policy.draw({', '.join(arguments)})",
            "# Where the policy plays in a share s of the decisions, log the propensity",
            "# s * probability + (1 - s) * (production's probability of this label).",
        )
    )


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
    if contextual is not None and isinstance(learner, LinProdCompact):
        found += [
            "mean rewards are linear in the features; no log can show this",
            "contexts and production have the same distribution in the warm-up and after it",
        ]
    return found


def feature_assumptions(policy: Policy) -> list[str]:
    """The assumptions about V, κ and the ridge, of a learner whose theorem has these."""
    contextual, learner = policy.contextual, policy.study.learner
    if contextual is None or not isinstance(learner, LinProdCompact):
        return []
    found = [
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
