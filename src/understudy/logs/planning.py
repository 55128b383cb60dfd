"""Who learns from a log, and how: fixed before the first row; then a fold over its rows."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from understudy.constraints import Array
from understudy.errors import InvalidArgument
from understudy.logs.checking import Checked
from understudy.logs.choosing import CONTEXTUAL, FROM_LOG, Choice, choose, name_of_default
from understudy.logs.columns import ESTIMATED, PROPENSITY
from understudy.logs.contextual import Contextual, make_contextual
from understudy.logs.encoder import Encoder
from understudy.logs.options import CONFIDENT, Options, agree
from understudy.logs.policies import Policy, Settings
from understudy.logs.prepare import Prepared, prepare, rules_of
from understudy.logs.reading import Origin, Reading
from understudy.logs.study import Study
from understudy.logs.tables import arranged
from understudy.logs.watching import Watch
from understudy.types import Integers

__all__ = ["LAST", "Done", "Plan", "choose_contextual", "fold", "plan"]

NAME_IT = "name their column with --propensity, or a file of fixed ones with --behavior"
LAST = 4_096  # rows whose contexts a policy is averaged over


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that is fixed before the first row is learned from."""

    log: Prepared
    settings: Settings
    study: Study
    warmup: int
    contextual: Contextual | None


def plan(
    origins: Sequence[Origin], options: Options, kept: Policy | None, folder: Path, watch: Watch
) -> Plan:
    """Look at the log as far as needed, and fix who learns from it and how."""
    if kept is not None:
        return _continued(origins, options, kept, folder, watch)
    contexts = bool(options.columns.get("context"))
    log = prepare(origins, options, folder, watch, count=contexts)
    choice, contextual, warmup = _choice(log, options)
    unmet = [*choice.unmet]
    if not options.declared():
        unmet.append(FROM_LOG)
    if log.kind == ESTIMATED and options.behavior is None:
        unmet.append(f"there is no column {PROPENSITY!r}; if the log has propensities, {NAME_IT}")
    if log.reading.columns.time is None:
        unmet.append("rows were taken to be in the order of time; --time COLUMN checks it")
    settings = Settings(
        columns=log.reading.columns,
        reward_range=(options.scale.low, options.scale.high),
        behavior=log.kind,
        learner=choice.name,
        horizon=options.horizon,
        theorem=choice.theorem,
        unmet=tuple(unmet),
    )
    uncountable = contextual is not None or log.reading.columns.eligible is not None
    uncertified = log.behavior is None and uncountable
    confidence = None if uncertified else (options.confidence or CONFIDENT)
    declared = bool(options.declared())
    study = Study.begin(choice.learner, log.behavior, confidence, declared=declared)
    return Plan(log, settings, study, warmup, contextual)


@dataclass(frozen=True, eq=False)
class Done:
    """What a run has learned: the policy now, or on average over the last contexts.

    `oddities` counts the values of contexts that are unlike those that the features were made of.
    """

    study: Study
    average: Array
    oddities: Counter[str]


def fold(chosen: Plan, rows: Iterator[Checked]) -> Done:
    """Learn from every good row after the warm-up, in order."""
    study, skip, contextual = chosen.study, chosen.warmup, chosen.contextual
    last, oddities = None, Counter[str]()
    for checked in rows:
        skipped = min(skip, len(checked))
        skip -= skipped
        rest = checked.after(skipped) if skipped else checked
        if skip:
            continue  # of the warm-up, nothing counts
        x = None
        if contextual is not None:
            x = contextual.features(rest.contexts())
            oddities += contextual.encoder.oddities(rest.contexts())
            last = x[-LAST:] if last is None else np.concatenate([last, x])[-LAST:]
        study = study.after(rest.log(x), rest.aside)
    return Done(study, _average(chosen, study, last), oddities)


def _choice(log: Prepared, options: Options) -> tuple[Choice, Contextual | None, int]:
    """The learner; with contexts also their features, and how many rows they were made of."""
    K, context = len(log.actions), log.reading.columns.context
    name = options.learner or name_of_default(log.behavior, contexts=bool(context))
    if not context:
        return choose(name, log.behavior, K, options.horizon), None, 0
    if name != CONTEXTUAL:
        raise InvalidArgument(
            "learner", name, "it ignores contexts", f"pass {CONTEXTUAL}, or leave out --context"
        )
    assert log.rows is not None
    frame, played = _first_rows(log.checked(), options.warmup_of(log.rows))
    choice, contextual = choose_contextual(frame, played, context, K, options.horizon)
    return choice, contextual, len(played)


def choose_contextual(
    frame: pl.DataFrame,
    played: Integers,
    context: Sequence[str],
    n_actions: int,
    horizon: int | None,
) -> tuple[Choice, Contextual]:
    """The learner of contexts that the rows of a warm-up prepare, and their features.

    >>> warmup = pl.DataFrame({"context.age": [20.0, 40.0]})
    >>> choose_contextual(warmup, np.array([0, 1]), ["age"], 2, None)[0].name
    'lin-prod-compact'
    """
    encoder = Encoder.fit(frame, context)
    contextual = make_contextual(encoder, frame, played, n_actions, horizon=horizon)
    unmet = tuple(contextual.assumptions())
    theorem = "Theorem 3, for LinProd in constant memory: regret at most log K/η + η n C_φ"
    return Choice(CONTEXTUAL, contextual.learner, theorem, unmet), contextual


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
        return np.full(len(chosen.log.actions), 1.0 / len(chosen.log.actions))
    learner = chosen.contextual.learner
    return np.asarray(learner.policies_at(study.state, last).mean(axis=0))


def _continued(
    origins: Sequence[Origin], options: Options, kept: Policy, folder: Path, watch: Watch
) -> Plan:
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
    rules = rules_of(
        options.after(settings), settings.behavior, kept.actions, behavior, closed=True
    )
    reading = Reading(origins, columns).in_time(folder, watch)
    log = Prepared(reading, rules, kept.actions, settings.behavior, behavior, None)
    settings = dataclasses.replace(settings, columns=columns)
    study = dataclasses.replace(kept.study, declared=True)  # by the first run
    return Plan(log, settings, study, 0, kept.contextual)
