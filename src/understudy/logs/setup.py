"""What is fixed before a log is gone through: its columns, its actions, who was on stage.

Who learns from a log, and how: fixed before the first row; then a fold over its rows.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from understudy.behaviors import Behavior, Logged
from understudy.constraints import Array
from understudy.errors import InvalidArgument, InvalidLog
from understudy.logs.action_files import arranged
from understudy.logs.default_learner import CONTEXTUAL, FROM_LOG, Choice, choose, name_of_default
from understudy.logs.encoder import Encoder
from understudy.logs.features import Contextual, make_contextual
from understudy.logs.options import CONFIDENT, Options, agree
from understudy.logs.policy import Policy, Settings
from understudy.logs.progress import ProgressCallback
from understudy.logs.readers.inputs import Origin, Reading, has_propensities, name_of
from understudy.logs.readers.prefetch import prefetch
from understudy.logs.reject_reasons import nothing_left, too_few
from understudy.logs.schema import (
    ACTION,
    ESTIMATED,
    GIVEN,
    LOGGED,
    PROPENSITY,
    Actions,
    Columns,
    Kind,
    as_text,
)
from understudy.logs.study import Study
from understudy.logs.validate import MOST_ACTIONS, RowRules, ValidatedBatch, check
from understudy.types import Integers

__all__ = [
    "LAST",
    "Done",
    "ResolvedLog",
    "RunPlan",
    "behavior_of",
    "choose_contextual",
    "columns_of",
    "declared_actions",
    "fold",
    "plan",
    "prepare",
    "rules_of",
]


@dataclass(frozen=True, eq=False)
class ResolvedLog:
    """A log that can be gone through: how it is read, by which rules, and with which actions.

    `kind` says where propensities come from, `behavior` what is known of them; `rows` counts the
    good ones, where somebody has looked.
    """

    reading: Reading
    rules: RowRules
    actions: Actions
    kind: Kind
    behavior: Behavior | None
    rows: int | None

    def checked(self) -> Iterator[ValidatedBatch]:
        """Its rows in their order, each batch divided into good and bad."""
        return checked(self.reading, self.rules)


def prepare(
    origins: Sequence[Origin],
    options: Options,
    folder: Path,
    watch: ProgressCallback,
    *,
    known: frozenset[str] = frozenset(),
    grow: bool = False,
    count: bool = False,
) -> ResolvedLog:
    """Look at a log as far as needed.

    Actions are those declared, by a list or a given behavior; where there are none, or where a list
    may `grow`, those of the log and those `known` otherwise. What a given behavior does not name
    could not be played: it grows by what is known otherwise, not by the log. `count` asks for the
    number of rows. What has to be sorted by time is sorted in the folder.
    """
    columns, kind = columns_of(
        options, lambda found: any(has_propensities(origin, found) for origin in origins)
    )
    reading = Reading(origins, columns).in_time(folder, watch)
    rules = rules_of(options, kind, None, None, closed=False)
    declared = options.declared()
    closed = bool(declared) and (options.probabilities is not None or not grow)
    found = None
    if not closed or count:
        found = scan(prefetch(checked(reading, rules)), watch)
        if not found.rows:
            raise nothing_left(name_of(origins), found.refused)
        if len(declared | known | found.labels) == 1:
            raise too_few(name_of(origins), next(iter(found.labels)), found.refused)
    if closed:
        listed = options.actions is not None and not grow
        actions = declared_actions(options, frozenset() if listed else known)
    else:
        assert found is not None
        actions = Actions.of(declared | known | found.labels)
    behavior = behavior_of(kind, options, actions)
    rules = rules_of(options, kind, actions, behavior, closed=closed)
    rows = None if found is None else found.rows
    return ResolvedLog(reading, rules, actions, kind, behavior, rows)


@dataclass(frozen=True)
class ScanResult:
    """The labels of the valid rows, as text, how many rows these are, and why others are not."""

    labels: frozenset[str]
    rows: int
    refused: Mapping[str, int]


def scan(batches: Iterator[ValidatedBatch], watch: ProgressCallback) -> ScanResult:
    """Go over a log once without learning."""
    labels: set[str] = set()
    refused: Counter[str] = Counter()
    rows = 0
    for checked in batches:
        labels |= _labels(checked.frame)
        rows += len(checked)
        refused.update(checked.quarantined["reason"])
        watch("looking", len(checked), None)
        if len(labels) > MOST_ACTIONS:
            raise InvalidLog(
                "action",
                min(labels),
                f"the log shows more than {MOST_ACTIONS:,} actions, this among them",
                "check --action, or declare so many with --actions FILE",
            )
    return ScanResult(frozenset(labels), rows, refused)


def _labels(frame: pl.DataFrame) -> set[str]:
    found = frame[ACTION].unique()
    texts = found.to_frame().select(as_text(pl.col(ACTION), found.dtype))
    return set(texts.to_series().drop_nulls())


def checked(reading: Reading, rules: RowRules) -> Iterator[ValidatedBatch]:
    """Every batch of a log, divided into good and bad rows."""
    return (check(file, frame, rules) for file, frame in reading.batches())


def columns_of(
    options: Options, has_propensities: Callable[[Columns], bool]
) -> tuple[Columns, Kind]:
    """Which columns are read, and where the propensities come from."""
    columns, kind = Columns(**options.columns), options.behavior
    if kind is None:
        named = "propensity" in options.columns  # if it is not there, the reader will say so
        kind = LOGGED if named or has_propensities(columns) else ESTIMATED
    return (columns if kind == LOGGED else dataclasses.replace(columns, propensity=None)), kind


def declared_actions(options: Options, known: frozenset[str]) -> Actions:
    """The actions that are declared, and those `known` otherwise.

    >>> declared_actions(Options.of(behavior={"a": 0.5, "b": 0.5}), frozenset("c")).labels
    ('a', 'b', 'c')
    """
    labels = options.declared() | known
    if len(labels) == 1:
        raise InvalidArgument(
            "behavior",
            next(iter(labels)),
            "this action alone has a probability, and there is nothing to choose from",
            "give the others the probability 0, or name all in --actions FILE",
        )
    return Actions.of(labels)


def behavior_of(kind: Kind, options: Options, actions: Actions) -> Behavior | None:
    """What is known of who was on stage."""
    if kind == GIVEN:
        assert options.probabilities is not None
        return arranged("behavior", dict(options.probabilities), actions)
    return Logged(n_actions=len(actions)) if kind == LOGGED else None


def rules_of(
    options: Options,
    kind: Kind,
    actions: Actions | None,
    behavior: Behavior | None,
    *,
    closed: bool,
) -> RowRules:
    """What a row must be; before the actions are known, any label is one."""
    support = behavior > 0 if isinstance(behavior, np.ndarray) else None
    return RowRules(actions, options.scale, kind == LOGGED, support, closed)


NAME_IT = "name their column with --propensity, or a file of fixed ones with --behavior"
LAST = 4_096  # rows whose contexts a policy is averaged over


@dataclass(frozen=True, eq=False)
class RunPlan:
    """Everything that is fixed before the first row is learned from."""

    log: ResolvedLog
    settings: Settings
    study: Study
    warmup: int
    contextual: Contextual | None


def plan(
    origins: Sequence[Origin],
    options: Options,
    kept: Policy | None,
    folder: Path,
    watch: ProgressCallback,
) -> RunPlan:
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
    return RunPlan(log, settings, study, warmup, contextual)


@dataclass(frozen=True, eq=False)
class Done:
    """What a run has learned: the policy now, or on average over the last contexts.

    `oddities` counts the values of contexts that are unlike those that the features were made of.
    """

    study: Study
    average: Array
    oddities: Counter[str]


def fold(chosen: RunPlan, rows: Iterator[ValidatedBatch]) -> Done:
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
        study = study.after(rest.log(x), rest.rejected)
    return Done(study, _average(chosen, study, last), oddities)


def _choice(log: ResolvedLog, options: Options) -> tuple[Choice, Contextual | None, int]:
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


def _first_rows(rows: Iterator[ValidatedBatch], count: int) -> tuple[pl.DataFrame, Integers]:
    """The contexts and actions of the first good rows."""
    frames, actions, left = [], [], count
    for checked in rows:
        frames.append(checked.contexts().head(left))
        actions.append(checked.actions[:left])
        left -= len(actions[-1])
        if left <= 0:
            break
    return pl.concat(frames), np.concatenate(actions)


def _average(chosen: RunPlan, study: Study, last: Array | None) -> Array:
    """The policy of the next row; with contexts, its mean over the last of them."""
    if chosen.contextual is None:
        return study.learner.policy(study.state)
    if last is None:
        return np.full(len(chosen.log.actions), 1.0 / len(chosen.log.actions))
    learner = chosen.contextual.learner
    return np.asarray(learner.policies_at(study.state, last).mean(axis=0))


def _continued(
    origins: Sequence[Origin], options: Options, kept: Policy, folder: Path, watch: ProgressCallback
) -> RunPlan:
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
    log = ResolvedLog(reading, rules, kept.actions, settings.behavior, behavior, None)
    settings = dataclasses.replace(settings, columns=columns)
    study = dataclasses.replace(kept.study, declared=True)  # by the first run
    return RunPlan(log, settings, study, 0, kept.contextual)
