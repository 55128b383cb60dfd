"""policy.json: a learned policy with everything that is needed to play it or to go on learning."""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import ArrayLike

from understudy.behaviors import Logged, choose
from understudy.certificates import Certificate
from understudy.certificates.curves import Point
from understudy.certificates.evidence import POINTS
from understudy.constraints import PROBABILITIES, SMALLEST_PROBABILITY, Array
from understudy.errors import InvalidArgument, InvalidSnapshot
from understudy.learners import Exp4
from understudy.logs.evaluation.context_groups import ContextGroups
from understudy.logs.evaluation.repeated_rows import RepeatedRows
from understudy.logs.evaluation.sticky_columns import StickyColumns
from understudy.logs.features import ContextFeatures
from understudy.logs.outputs import POLICY_FILE, UNITS_FILE, by_reason
from understudy.logs.readers.files import UnreadFiles
from understudy.logs.readers.units import UnitCounts, UnitRecord, UsedUnits
from understudy.logs.runs.certificate_path import CertificatePath
from understudy.logs.runs.serving import Chances, Serving
from understudy.logs.runs.study import Study
from understudy.logs.schema import (
    ESTIMATED,
    GIVEN,
    LOGGED,
    UNKNOWN,
    Actions,
    Label,
    WeightBound,
    is_unicode,
)
from understudy.logs.settings import REMEDY, Settings
from understudy.logs.statistics import ActionStatistics, CountsOverTime, LogStatistics
from understudy.snapshots import (
    FORMAT,
    RNG,
    VERSION,
    as_data,
    fields_as_data,
    fields_from_data,
    from_data,
    indented,
    parse,
    write_atomically,
)
from understudy.types import Integers

KIND = "policy"
KINDS = {LOGGED: Logged, ESTIMATED: type(None), GIVEN: np.ndarray}
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # half of a character, as JSON escapes it
# Sums that other rows have with a larger chance do not identify rows: those of a few rewards, which
# certify no gain.
BY_CHANCE = 0.01


@dataclass(frozen=True)
class FileRead:
    """A file that was learned from; its SHA-256 identifies it under any name."""

    name: str
    sha256: str
    rows: int
    quarantined: int

    def __post_init__(self) -> None:
        texts, counts = (self.name, self.sha256), (self.rows, self.quarantined)
        if not all(isinstance(text, str) for text in texts) or not all(map(_is_count, counts)):
            raise InvalidArgument("file", self.name, "it needs texts and counts", REMEDY)


@dataclass(frozen=True, eq=False)
class Provenance:
    """The files that a run read, and the rows that it rejected, counted by file and reason.

    `examples` are some of the rejected rows, as in quarantine.parquet; `unread` names the files of
    folders that were not read; `repeated` is the finding about equal rows, if rows were compared,
    and `sticky` that about columns, if they were examined. `units` are the counts of units, if each
    counts as one row. `weight_bound` says what bounds importance weights; None if they are of
    counted propensities.
    """

    files: tuple[FileRead, ...]
    quarantined: Mapping[tuple[str, str], int]
    examples: pl.DataFrame
    unread: tuple[UnreadFiles, ...] = ()
    repeated: RepeatedRows | None = None
    sticky: StickyColumns | None = None
    units: UnitCounts | None = None
    weight_bound: WeightBound | None = None

    @property
    def refused(self) -> Counter[str]:
        """The rejected rows of all files, counted by reason."""
        return by_reason(self.quarantined)


def playable(policy: Array) -> Array:
    """Probabilities, 0 where they are too small to be drawn or divided by."""
    return np.where(policy < SMALLEST_PROBABILITY, 0.0, policy)


class DrawnAction(NamedTuple):
    """An action that a policy drew, and the probability with which it was drawn."""

    action: Label
    propensity: float


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Policy:
    """A policy that was learned from a log, with its learner, state and provenance.

    `average` is the policy of the next row; of a policy with contexts, its mean over the last rows.
    `refused` counts the quarantined rows by reason, `warmup` the rows of the warm-up, whose sums
    are `warmup_sums` if their rewards are known; `repeated` is the finding about equal rows, None
    if rows were not compared, and `sticky` that about sticky columns. `units` are those that it was
    learned from, if each counted as one row.
    """

    actions: Actions
    study: Study
    settings: Settings
    average: Array
    files: tuple[FileRead, ...]
    refused: Mapping[str, int]
    warmup: int = 0
    warmup_sums: ActionStatistics | None = None
    contextual: ContextFeatures | None = None
    repeated: RepeatedRows | None = None
    sticky: StickyColumns | None = None
    units: UnitRecord | None = None

    def probabilities(
        self,
        context: Mapping[str, Any] | None = None,
        *,
        production: Chances | None = None,
        experts: Mapping[str, Chances] | None = None,
    ) -> dict[Label, float]:
        """The probability of every action in the next round.

        Args:
            context: of a policy with contexts: a value for each of its columns, None (or nan) for a
                missing one.
            production: production's probabilities for this request, by label or in the order of
                `actions.labels`. A policy that does as production does with some probability needs
                them, if production was known by logged propensities alone.
            experts: likewise of each model that was an `expert`, by the name of its column.
        """
        policy = self._serving.one(context, production, experts)
        return dict(zip(self.actions.labels, policy.tolist(), strict=True))

    def probabilities_of(
        self,
        contexts: Any = None,
        *,
        production: ArrayLike | None = None,
        experts: Mapping[str, ArrayLike] | None = None,
    ) -> Array:
        """The probabilities of many requests, (n, K), in the order of `actions.labels`.

        Each row has the bits of `probabilities`. In a column of numbers a value that is no number
        counts as missing, as in a log.

        Args:
            contexts: a data frame, or a dictionary of columns; other columns are ignored.
            production: production's probabilities for each request, (n, K).
            experts: likewise of each model that was an `expert`, by the name of its column.
        """
        return self._serving.many(contexts, production, experts)

    def draw(
        self,
        context: Mapping[str, Any] | None = None,
        rng: Generator | None = None,
        *,
        production: Chances | None = None,
        experts: Mapping[str, Chances] | None = None,
    ) -> DrawnAction:
        """Draw an action with the caller's random generator; log it with its propensity.

        An action whose probability is too small to be divided by is never drawn.
        """
        checked = RNG("rng", rng)
        kept = playable(self._serving.one(context, production, experts))
        policy = kept / kept.sum()
        (index,) = choose(policy, checked.random(1)).tolist()
        return DrawnAction(self.actions.labels[index], float(policy[index]))

    def best_action(self, context: Mapping[str, Any] | None = None) -> Label:
        """The most probable action, as `certify --best-action` plays it.

        What the policy does as production or as an expert column does is left out, so that their
        probabilities are not needed. A policy that does as columns do in the larger part has none.
        """
        return self.actions.labels[self._serving.best(context)]

    @property
    def shares(self) -> dict[str, float]:
        """The weight of every expert of a mixture in the next round, by name.

        Of another learner: the probability with which it does as each outside policy does, if any.
        """
        learner, state = self.study.learner, self.study.state
        if isinstance(learner, Exp4):
            return learner.shares(state)
        if not learner.spec.outside:
            return {}
        features = learner.spec.features
        one = None if features is None else np.zeros((1, *features))
        followed = learner.known_at(state, one)[1].tolist()
        outside = dict(zip(learner.spec.outside, followed, strict=True))
        return {**outside, self.settings.learner: 1.0 - sum(followed)}

    @cached_property
    def _serving(self) -> Serving:
        return Serving(self.actions, self.study.learner, self.study.state, self.contextual)

    def __repr__(self) -> str:
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        return f"Policy({len(self.actions)} actions, {self.settings.learner}, {rows})"

    @property
    def rows(self) -> int:
        """The number of rows that it was learned from."""
        return self.study.rounds

    def used_units(self) -> UsedUnits | None:
        """The units that it was learned from; None if it was learned from rows.

        `InvalidArgument` if they are not at hand: a unit may be used once.
        """
        if self.units is not None:
            return self.units.at_hand()
        if self.settings.columns.unit is None:
            return None
        reason = "a live study learned it from units, and its file does not name them"
        remedy = "export the log of the study, and learn from it with --unit unit"
        name = "policy.settings.columns.unit"
        raise InvalidArgument(name, self.settings.columns.unit, reason, remedy)

    def knows(self, fingerprints: Iterable[str]) -> bool:
        """Whether it was learned from one of these files."""
        return not {file.sha256 for file in self.files}.isdisjoint(fingerprints)

    def knows_rows(self, log: LogStatistics, counts_over_time: Integers | None) -> bool:
        """Whether the sums of a log are those of the rows that it was learned from.

        The log may begin with the rows of the warm-up or after them.
        """
        order = [log.actions.index(key) for key in self.actions.keys]
        if UNKNOWN in order:
            return False
        sums, learned = log.sums, self.study.sums
        found, own = ([one.counts, one.rewards] for one in (sums, learned))
        own_counts = self.study.counts_over_time.counts
        skipped = self.warmup_sums
        whole = skipped is not None and sums.rows == learned.rows + skipped.rows > learned.rows
        if skipped is not None and whole:
            own = [learned.counts + skipped.counts, learned.rewards + skipped.rewards]
        same = sums.rows == own[0].sum() and all(
            np.allclose(column[order], of_action, rtol=1e-9, atol=0.0)
            for column, of_action in zip(found, own, strict=True)
        )
        if whole or counts_over_time is None or not len(own_counts):  # periods begin after it
            return same and _chance_of_equal(sums) < BY_CHANCE
        return same and np.array_equal(counts_over_time[:, order], own_counts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write policy.json, and beside it the units that it was learned from, if it has any.

        The units of a policy of another name, such as v2.json, are in v2.units.parquet. An error
        leaves no partial file.
        """
        if self.units is not None and self.units.used is not None:
            self.units.used.save(_units_file(Path(path)))
        write_atomically(Path(path), self.to_json().encode())

    def to_json(self, pause: Callable[[], object] = lambda: None) -> str:
        """The text of policy.json: equal policies, bit for bit, give equal texts.

        `pause` is called again and again: it may let other threads run.
        """
        study = self.study
        content = {
            "format": FORMAT,
            "version": VERSION,
            "kind": KIND,
            "rows": self.rows,
            "policy": [
                {"action": label, "probability": probability, "rows": count}
                for label, probability, count in zip(
                    self.actions.labels,
                    self.average.tolist(),
                    study.sums.counts.tolist(),
                    strict=True,
                )
            ],
            "settings": self.settings.as_data(),
            "provenance": {
                "files": [fields_as_data(file) for file in self.files],
                "quarantined": dict(self.refused),
                "warmup": self.warmup,
                **self._warmup_as_data(),
                **({} if self.repeated is None else {"repeated": fields_as_data(self.repeated)}),
                **({} if self.sticky is None else {"sticky": asdict(self.sticky)}),
                **({} if self.units is None else {"units": self.units.as_data()}),
            },
            "actions": list(self.actions.texts),
            "encoder": None if self.contextual is None else self.contextual.as_data(),
            "learner": as_data(study.learner, "learner"),
            "state": as_data(study.state, "state"),
            "behavior": as_data(study.behavior, "behavior"),
            "certificate": as_data(study.certificate, "certificate"),
            "curve": [list(point) for point in study.curve],
            "tally": fields_as_data(study.sums),
            "stretches": fields_as_data(study.counts_over_time),
            **({} if study.groups is None else {"context_groups": study.groups.as_data()}),
        }
        return indented(content, pause)

    def _warmup_as_data(self) -> dict[str, Any]:
        if not self.warmup or self.warmup_sums is None:
            return {}
        return {"warmup_tally": fields_as_data(self.warmup_sums)}

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Policy:
        """Read and check a policy.json; `InvalidSnapshot` if it is damaged.

        >>> Policy.load("nowhere.json")
        Traceback (most recent call last):
        understudy.errors.InvalidSnapshot: policy = 'nowhere.json': it cannot be read ...
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            reason = f"it cannot be read ({error.strerror})"
        except UnicodeDecodeError:
            reason = "it is not text"
        else:
            policy = from_text(text, str(path))
            if policy.units is None:
                return policy
            return replace(policy, units=policy.units.found_beside(_units_file(Path(path))))
        raise InvalidSnapshot("policy", str(path), reason, REMEDY)


def _units_file(path: Path) -> Path:
    """The file of the units of a policy: several policies in a folder have one each."""
    own = UNITS_FILE if path.name == POLICY_FILE else f"{path.stem}.{UNITS_FILE}"
    return path.with_name(own)


def from_text(text: str, name: str = "policy.json") -> Policy:
    """Parse and check the text that `to_json` wrote; `InvalidSnapshot` if it is damaged."""
    try:
        return _from_text(text)
    except InvalidArgument as error:
        reason = f"{error.argument}: {error.reason}"
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        reason = f"a part is missing or damaged ({type(error).__name__}: {str(error)[:80]})"
    except RecursionError:
        reason = "it is nested too deeply"
    except MemoryError:
        reason = "it is larger than the memory of this machine"
    raise InvalidSnapshot("policy", name, reason, REMEDY)


def _from_text(text: str) -> Policy:
    content = parse(text)
    if content.get("kind") != KIND:
        raise InvalidSnapshot("kind", content.get("kind"), "it is not a policy", REMEDY)
    # Only with such an escape are the texts other than they are written: to write all again takes
    # twice as long as to parse, and no other thread runs meanwhile.
    written = json.dumps(content, ensure_ascii=False) if SURROGATE.search(text) else text
    if not is_unicode(written):
        raise InvalidSnapshot("policy", text[:40], "it is not Unicode text", REMEDY)
    actions = Actions(tuple(str(label) for label in content["actions"]))
    study = _study(content)
    if not len(actions) == study.learner.spec.n_actions == len(content["policy"]):
        raise InvalidSnapshot("actions", len(actions), "the learner has another number", REMEDY)
    provenance = content["provenance"]
    encoder, repeated = content["encoder"], provenance.get("repeated")
    sticky, units = provenance.get("sticky"), provenance.get("units")
    skipped = provenance.get("warmup_tally")  # a policy of 0.5 or of a live study has none
    if skipped is not None:
        skipped = ActionStatistics.from_data(skipped, len(actions))
        if skipped.rows != provenance["warmup"]:
            raise InvalidSnapshot("warmup", skipped.rows, "its sums have another number", REMEDY)
    contextual = None if encoder is None else ContextFeatures.from_data(encoder, study.learner)
    if study.groups is not None and (
        contextual is None or not study.groups.fits(study.rounds, contextual.encoder)
    ):
        reason = "they are not those of the contexts and the rows"
        raise InvalidSnapshot("context_groups", study.rounds, reason, REMEDY)
    return Policy(
        actions=actions,
        study=study,
        settings=Settings.from_data(content["settings"]),
        average=PROBABILITIES("policy", [row["probability"] for row in content["policy"]]),
        files=tuple(
            fields_from_data(FileRead, file, "files", REMEDY) for file in provenance["files"]
        ),
        refused={str(reason): int(count) for reason, count in provenance["quarantined"].items()},
        warmup=int(provenance["warmup"]),
        warmup_sums=skipped,
        contextual=contextual,
        repeated=None if repeated is None else RepeatedRows.from_data(repeated),
        sticky=None if sticky is None else StickyColumns.from_data(sticky),
        units=None if units is None else UnitRecord.from_data(units),
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _study(content: dict[str, Any]) -> Study:
    parts = ("learner", "state", "behavior", "certificate")
    learner, state, behavior, certificate = (from_data(content[part], part) for part in parts)
    learner.validate(state)
    sums = ActionStatistics.from_data(content["tally"], learner.spec.n_actions)
    n = learner.rounds(state)
    if not isinstance(certificate, Certificate | None):
        raise InvalidSnapshot("certificate", certificate, "it is not a certificate", REMEDY)
    gains = certificate is not None and certificate.behavior is not None
    curve = tuple(_point(point, gains=gains) for point in content["curve"])
    certified = 0 if certificate is None else certificate.rounds  # rejected rows count there too
    counts_over_time = CountsOverTime.from_data(content["stretches"], learner.spec.n_actions)
    agree = (
        content["rows"] == sums.rows == n
        and (certificate is None or certified >= n)
        and counts_over_time.rows in {0, n}
        and len(curve) == np.searchsorted(POINTS, certified, side="right")
        and KINDS[content["settings"]["behavior"]] is type(behavior)
    )
    if not agree:
        raise InvalidSnapshot("rows", n, "learner, certificate and coverage disagree", REMEDY)
    sets = content["settings"]["columns"]["eligible"] is not None
    path = None if certificate is None else CertificatePath(certificate, partial=sets, points=curve)
    groups = content.get("context_groups")  # a policy without contexts, or of 0.5, has none
    if groups is not None:
        groups = ContextGroups.from_data(groups, learner.spec.n_actions)
    return Study(behavior, sums, counts_over_time, (path,), learner, state, groups)


def _point(point: list[Any], *, gains: bool) -> Point:
    lower, upper, production, gain = point
    if (gain is not None) != gains:
        raise InvalidSnapshot("curve", point, "a gain is missing, or cannot be known", REMEDY)
    values = float(lower), float(upper), float(production), None if gain is None else float(gain)
    if not all(math.isfinite(value) for value in values if value is not None):
        raise InvalidSnapshot("curve", point, "a number is not finite", REMEDY)
    return values


def _chance_of_equal(sums: ActionStatistics) -> float:
    """About the chance that other rows with the same counts have the same rewards of each action.

    A sum of rewards of 0 and 1 with the variance v takes each of its likely values with a
    probability of about 1/√(4πv), as the difference of two normal variables does.
    """
    n = np.maximum(sums.counts, 1)
    variances = np.maximum(0.0, sums.rewards * (1.0 - sums.rewards / n))
    return float(np.prod(1.0 / np.sqrt(1.0 + 4.0 * math.pi * variances)))
