"""`learn`: a log in, a policy out, with what the log can and cannot say about it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from understudy.behaviors import Behavior, Logged
from understudy.constraints import Array
from understudy.errors import InvalidArgument, InvalidLog
from understudy.logs.actions import Actions
from understudy.logs.ahead import ahead
from understudy.logs.checking import Checked, Rules, check
from understudy.logs.choosing import CONTEXTUAL, Choice, choose, name_of_default
from understudy.logs.columns import Columns
from understudy.logs.contextual import Contextual, make_contextual, policies
from understudy.logs.encoder import Encoder
from understudy.logs.options import CONFIDENT, ESTIMATED, GIVEN, LOGGED, Options, agree
from understudy.logs.outputs import Quarantine
from understudy.logs.policies import Policy, Settings
from understudy.logs.reading import Origin, Reading, has_propensities
from understudy.logs.study import Study
from understudy.logs.survey import Survey, Watch, nothing_left, survey
from understudy.logs.tables import arranged
from understudy.types import Integers

__all__ = ["Plan", "fold", "plan"]

MOST_WARMUP = 200_000  # rows: more would not make the features better, and memory stays constant
LAST = 4_096  # rows whose contexts a policy is averaged over
FROM_LOG = (
    "the list of actions was read from the log itself; declare it with --actions FILE if it was "
    "known before"
)


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that is fixed before the first row is learned from."""

    reading: Reading
    settings: Settings
    actions: Actions
    rules: Rules
    study: Study
    warmup: int
    contextual: Contextual | None
    expected: int | None


def plan(
    origins: Sequence[Origin], options: Options, kept: Policy | None, folder: Path, watch: Watch
) -> Plan:
    """Look at the log as far as needed, and fix who learns from it and how.

    What has to be sorted by time is sorted in a folder.
    """
    if kept is not None:
        return _continued(origins, options, kept, folder)
    columns, kind = _columns(origins, options)
    reading = Reading(origins, columns).in_time(folder)
    first = Rules(None, options.reward_range or (0.0, 1.0), propensities=kind == LOGGED)
    found = None
    if options.actions is None or columns.context:
        found = survey(_checked(reading, first), watch)
        if not found.rows:
            raise nothing_left(origins[0].name, found.refused)
    actions = options.actions or _actions(options, found)
    behavior = _behavior(kind, options, actions)
    support = behavior > 0 if isinstance(behavior, np.ndarray) else None
    rules = Rules(actions, first.reward_range, first.propensities, support)
    choice, contextual, warmup = _choice(reading, rules, behavior, options, found)
    unmet = choice.unmet if options.actions else (*choice.unmet, FROM_LOG)
    settings = Settings(
        columns, rules.reward_range, kind, choice.name, options.horizon, choice.theorem, unmet
    )
    uncertified = behavior is None and contextual is not None
    confidence = None if uncertified else (options.confidence or CONFIDENT)
    study = Study.begin(choice.learner, behavior, confidence)
    expected = None if found is None else found.rows
    return Plan(reading, settings, actions, rules, study, warmup, contextual, expected)


def fold(
    chosen: Plan, quarantine: Quarantine, watch: Watch, *, strict: bool
) -> tuple[Study, Array, Counter[str]]:
    """Learn from every good row after the warm-up, in order; the average policy, rows per file."""
    study, skip, rows = chosen.study, chosen.warmup, Counter[str]()
    last = None
    for checked in ahead(_checked(chosen.reading, chosen.rules)):
        if strict and len(checked.quarantined):
            raise _fatal(checked.quarantined)
        quarantine.add(checked.quarantined)
        rows.update(checked.files)
        watch("learning", len(checked), chosen.expected)
        skipped = min(skip, len(checked))
        skip -= skipped
        rest = checked.after(skipped) if skipped else checked
        if not len(rest):
            continue
        last = None if chosen.contextual is None else chosen.contextual.features(rest.contexts())
        study = study.after(rest.log(last))
    return study, _average(chosen, study, last), rows


def _checked(reading: Reading, rules: Rules) -> Iterator[Checked]:
    return (check(file, frame, rules) for file, frame in reading.batches())


def _columns(origins: Sequence[Origin], options: Options) -> tuple[Columns, str]:
    """Which columns are read, and where the propensities come from."""
    columns = Columns(**options.columns)
    assert columns.propensity is not None
    kind = options.behavior
    if kind is None:
        named = "propensity" in options.columns  # if it is not there, the reader will say so
        kind = LOGGED if named or has_propensities(origins[0], columns) else ESTIMATED
    return (columns if kind == LOGGED else dataclasses.replace(columns, propensity=None)), kind


def _actions(options: Options, found: Survey | None) -> Actions:
    """The actions that the log shows, and those that a given behavior names."""
    assert found is not None
    named = {str(label) for label in options.probabilities or ()}
    return Actions.of(named or found.labels)


def _behavior(kind: str, options: Options, actions: Actions) -> Behavior | None:
    if kind == GIVEN:
        assert options.probabilities is not None
        return arranged("behavior", dict(options.probabilities), actions)
    return Logged(n_actions=len(actions)) if kind == LOGGED else None


def _choice(
    reading: Reading,
    rules: Rules,
    behavior: Behavior | None,
    options: Options,
    found: Survey | None,
) -> tuple[Choice, Contextual | None, int]:
    """The learner; with contexts also their features, and how many rows they were made of."""
    assert rules.actions is not None
    K, context = len(rules.actions), reading.columns.context
    name = options.learner or name_of_default(behavior, contexts=bool(context))
    if not context:
        return choose(name, behavior, K, options.horizon), None, 0
    if name != CONTEXTUAL:
        raise InvalidArgument(
            "learner", name, "it ignores contexts", f"pass {CONTEXTUAL}, or leave out --context"
        )
    assert found is not None
    warmup = min(max(1, int(options.warmup * found.rows)), MOST_WARMUP)
    frame, played = _first_rows(_checked(reading, rules), warmup)
    encoder = Encoder.fit(frame, context)
    contextual = make_contextual(encoder, frame, played, K, horizon=options.horizon)
    unmet = tuple(contextual.assumptions())
    theorem = "Theorem 3, for LinProd in constant memory: regret at most log K/η + η n C_φ"
    return Choice(name, contextual.learner, theorem, unmet), contextual, len(played)


def _first_rows(rows: Iterator[Checked], count: int) -> tuple[pl.DataFrame, Integers]:
    """The contexts and actions of the first good rows."""
    frames, actions, left = [], [], count
    for checked in rows:
        frames.append(checked.contexts().head(left))
        actions.append(checked.actions[:left])
        left -= len(actions[-1])
        if left <= 0:
            break
    return pl.concat(frames), np.concatenate(actions)


def _average(chosen: Plan, study: Study, last: Array | None) -> Array:
    """The policy of the next row; with contexts, its mean over the last of them."""
    if chosen.contextual is None:
        return study.learner.policy(study.state)
    if last is None:
        return np.full(len(chosen.actions), 1.0 / len(chosen.actions))
    return np.asarray(policies(chosen.contextual, study.state, last[-LAST:]).mean(axis=0))


def _continued(origins: Sequence[Origin], options: Options, kept: Policy, folder: Path) -> Plan:
    """Go on where an earlier run stopped; what it fixed stays fixed."""
    settings = kept.settings
    agree("reward_range", options.reward_range, settings.reward_range)
    agree("actions", options.actions, kept.actions)
    agree("behavior", options.behavior, settings.behavior)
    agree("learner", options.learner, settings.learner)
    agree("horizon", options.horizon, settings.horizon)
    behavior = kept.study.behavior
    if options.probabilities is not None:
        given = arranged("behavior", dict(options.probabilities), kept.actions)
        agree("behavior", given.tolist(), np.asarray(behavior).tolist())
    if kept.study.certificate is not None:
        agree("confidence", options.confidence, kept.study.certificate.confidence)
    columns = options.columns_of(settings)
    support = behavior > 0 if isinstance(behavior, np.ndarray) else None
    rules = Rules(kept.actions, settings.reward_range, settings.behavior == LOGGED, support)
    settings = dataclasses.replace(settings, columns=columns)
    reading = Reading(origins, columns).in_time(folder)
    return Plan(reading, settings, kept.actions, rules, kept.study, 0, kept.contextual, None)


def _fatal(quarantined: pl.DataFrame) -> InvalidLog:
    file, row, reason = quarantined.select("file", "row", "reason").row(0)
    return InvalidLog(
        "log",
        file,
        f"row {row}: {reason}",
        "correct it, or leave out --strict to put such rows into quarantine.parquet",
    )
