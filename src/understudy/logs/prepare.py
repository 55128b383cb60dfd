"""What is fixed before a log is gone through: its columns, its actions, who was on stage."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from understudy.behaviors import Behavior, Logged
from understudy.errors import InvalidArgument
from understudy.logs.actions import Actions
from understudy.logs.ahead import ahead
from understudy.logs.checking import Checked, Rules, check
from understudy.logs.columns import ESTIMATED, GIVEN, LOGGED, Columns, Kind
from understudy.logs.options import Options
from understudy.logs.reading import Origin, Reading, has_propensities, name_of
from understudy.logs.survey import nothing_left, survey, too_few
from understudy.logs.tables import arranged
from understudy.logs.watching import Watch

__all__ = ["Prepared", "behavior_of", "columns_of", "declared_actions", "prepare", "rules_of"]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A log that can be gone through: how it is read, by which rules, and with which actions.

    `kind` says where propensities come from, `behavior` what is known of them; `rows` counts the
    good ones, where somebody has looked.
    """

    reading: Reading
    rules: Rules
    actions: Actions
    kind: Kind
    behavior: Behavior | None
    rows: int | None

    def checked(self) -> Iterator[Checked]:
        """Its rows in their order, each batch divided into good and bad."""
        return checked(self.reading, self.rules)


def prepare(
    origins: Sequence[Origin],
    options: Options,
    folder: Path,
    watch: Watch,
    *,
    known: frozenset[str] = frozenset(),
    grow: bool = False,
    count: bool = False,
) -> Prepared:
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
        found = survey(ahead(checked(reading, rules)), watch)
        if not found.rows:
            raise nothing_left(name_of(origins), found.refused)
        if len(declared | known | found.labels) == 1:
            raise too_few(name_of(origins), found)
    if closed:
        listed = options.actions is not None and not grow
        actions = declared_actions(options, frozenset() if listed else known)
    else:
        assert found is not None
        actions = Actions.of(declared | known | found.labels)
    behavior = behavior_of(kind, options, actions)
    rules = rules_of(options, kind, actions, behavior, closed=closed)
    rows = None if found is None else found.rows
    return Prepared(reading, rules, actions, kind, behavior, rows)


def checked(reading: Reading, rules: Rules) -> Iterator[Checked]:
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
) -> Rules:
    """What a row must be; before the actions are known, any label is one."""
    support = behavior > 0 if isinstance(behavior, np.ndarray) else None
    return Rules(actions, options.scale, kind == LOGGED, support, closed)
