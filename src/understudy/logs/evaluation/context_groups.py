"""Groups of contexts: for each, the plays of production, the policy, and an interval of its gain.

The warm-up decides the groups, by contexts alone: the labels of a column, bins of its numbers, the
most frequent combinations of labels. A row's group is known before its action is drawn, so the rows
of a group are a log of their own, with an interval of their own. With w = π_t(b)/q_t(b),

    d_t = (w − 1) (R − c)      has the gain over production as its mean: a lower bound
    e_t = (w − 1) (1 − R − c)  has minus the gain, at most: an upper bound

each by the betting confidence sequence of a certificate's gain, with half of δ, and with its
centers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from understudy import kernels
from understudy.certificates import Evidence
from understudy.certificates.evidence import GAIN, GRID, LARGEST_BET, LOSS, Bets, WeightedRounds
from understudy.constraints import Array
from understudy.errors import InvalidSnapshot
from understudy.logs.encoder import REMEDY, CategoryColumn, Encoder, NumberColumn
from understudy.snapshots import as_data, fields_as_data, fields_from_data, from_data
from understudy.types import Integers, kernel_view, read_only

MOST_COLUMNS = 8  # that a report shows, in the order in which they are named: each costs time
# Counts of all groups, one for each action; their plays and shares take up to 3 MB of policy.json.
MOST_COUNTS = 1 << 16
QUARTILES = (0.25, 0.5, 0.75)  # four bins of a number: each has a quarter of the rows
MOST_COMBINATIONS = 24  # of labels: a table that can be read, beside those of the columns
CERTAIN = 0.95  # a policy that plays an action so often has all but decided
FEW = 30  # plays: a mean reward of so few has a standard error of about .09
# Those of a certificate's gain, which decide nothing.
BETS = Bets(np.empty(0), LARGEST_BET * GRID[GRID <= 1.0], delta=0.0, windows=False)

Kind = Literal["label", "other", "missing", "range", "combination"]


class GroupKey(NamedTuple):
    """The contexts of a group: columns, and the labels or the range (low, high] of a number.

    A `low` or `high` of None is no limit. "other" are all labels, or combinations, that have no
    group of their own.
    """

    columns: tuple[str, ...]
    kind: Kind
    labels: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None


class GainInterval(NamedTuple):
    """The mean gain over production in a group: an estimate, and bounds that hold together."""

    estimate: float
    lower: float
    upper: float


@dataclass(frozen=True)
class LabelGroups:
    """A group for each label of a column that has a feature of its own; other labels; no label."""

    name: str
    labels: tuple[str, ...]
    KIND: ClassVar = "labels"

    @property
    def keys(self) -> list[GroupKey]:
        own = [GroupKey((self.name,), "label", (label,)) for label in self.labels]
        return [*own, GroupKey((self.name,), "other"), GroupKey((self.name,), "missing")]

    def codes(self, column: CategoryColumn | NumberColumn, x: Array) -> Integers:
        """The group of each row, from the features of the column."""
        own = len(self.labels)
        codes = np.full(len(x), own)
        known = x[:, :own].any(axis=1)
        codes[known] = x[known, :own].argmax(axis=1)
        if column.missing:
            codes[x[:, -1] > 0] = own + 1
        return codes


@dataclass(frozen=True)
class NumberBins:
    """Bins of a number: up to each of the `edges`, above the last one, and no number.

    `standard` are the edges in units of the encoder, which decide; `edges` in units of the log.
    """

    name: str
    edges: tuple[float, ...]
    standard: tuple[float, ...]
    KIND: ClassVar = "bins"

    @staticmethod
    def fit(column: NumberColumn, x: Array) -> NumberBins:
        """Bins at the quartiles of a warm-up, fewer where these are equal."""
        standard: list[float] = []
        if column.scale > 0:
            z = x[x[:, -1] == 0, 0] if column.missing else x[:, 0]
            cuts = np.unique(np.quantile(z, QUARTILES, method="inverted_cdf"))
            standard = cuts[cuts < z.max()].tolist()  # above the last edge is a number too
        edges = tuple(column.mean + column.scale * edge for edge in standard)
        return NumberBins(column.name, edges, tuple(standard))

    @property
    def keys(self) -> list[GroupKey]:
        lows, highs = (None, *self.edges), (*self.edges, None)
        bins = [
            GroupKey((self.name,), "range", low=low, high=high)
            for low, high in zip(lows, highs, strict=True)
        ]
        return [*bins, GroupKey((self.name,), "missing")]

    def codes(self, column: CategoryColumn | NumberColumn, x: Array) -> Integers:
        """The group of each row, from the features of the column."""
        codes = np.searchsorted(self.standard, x[:, 0]) if self.standard else np.zeros(len(x), int)
        if column.missing:
            codes[x[:, -1] > 0] = len(self.standard) + 1
        return codes


@dataclass(frozen=True)
class Combinations:
    """A group for each of the most frequent combinations of labels, and one for all others."""

    columns: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    KIND: ClassVar = "combinations"

    @staticmethod
    def fit(columns: Sequence[LabelGroups], codes: Integers) -> Combinations:
        """The most frequent combinations of a warm-up, (rows, columns); ties in order of codes."""
        own = codes[(codes < [len(column.labels) for column in columns]).all(axis=1)]
        found, rows = np.unique(own, axis=0, return_counts=True)
        most = found[np.argsort(-rows, kind="stable")][:MOST_COMBINATIONS].tolist()
        return Combinations(
            tuple(column.name for column in columns),
            tuple(
                tuple(column.labels[code] for column, code in zip(columns, one, strict=True))
                for one in most
            ),
        )

    @property
    def keys(self) -> list[GroupKey]:
        own = [GroupKey(self.columns, "combination", labels) for labels in self.labels]
        return [*own, GroupKey(self.columns, "other")]

    def codes_of(self, columns: Mapping[str, tuple[LabelGroups, Integers]]) -> Integers:
        """The group of each row, from its groups in the single columns."""
        parts = [columns[name] for name in self.columns]
        place = np.zeros(len(parts[0][1]), dtype=np.int64)
        known: dict[int, int] = {}
        sizes = [len(column.keys) for column, _ in parts]
        for size, (_, codes) in zip(sizes, parts, strict=True):
            place = place * size + codes
        for group, labels in enumerate(self.labels):
            own = [part.labels.index(one) for (part, _), one in zip(parts, labels, strict=True)]
            number = 0
            for size, code in zip(sizes, own, strict=True):
                number = number * size + code
            known[number] = group
        numbers, inverse = np.unique(place, return_inverse=True)
        groups = np.array([known.get(one, len(self.labels)) for one in numbers.tolist()], dtype=int)
        return groups[inverse] if len(place) else place


Grouping = LabelGroups | NumberBins | Combinations


@dataclass(frozen=True, eq=False)
class GroupSums:
    """The rows of a group: plays of each action, and evidence of the gain.

    `evidence` is None where propensities are unknown. `policy` is the mean policy over the last
    rows of the log that are in the group, None if none is.
    """

    plays: Integers
    evidence: Evidence | None
    policy: Array | None = None

    @staticmethod
    def none(n_actions: int, *, certifies: bool) -> GroupSums:
        plays = read_only(np.zeros(n_actions, dtype=np.int64))
        return GroupSums(plays, Evidence.none(BETS) if certifies else None)

    @property
    def rows(self) -> int:
        return int(self.plays.sum())

    @property
    def is_used(self) -> bool:
        """Whether it has any row, valid or rejected."""
        return bool(self.rows or (self.evidence is not None and self.evidence.rounds))

    def after(self, actions: Integers, columns: WeightedRounds | None) -> GroupSums:
        """The sums after more rows, given with columns if propensities are known.

        The action of a rejected row is −1: it is no play, but it counts in the evidence.
        """
        played = actions[actions >= 0]
        plays = read_only(self.plays + np.bincount(played, minlength=len(self.plays)))
        evidence = self.evidence
        if evidence is not None and columns is not None:
            evidence = evidence.after(BETS, columns)
        return GroupSums(plays, evidence)

    def difference(self, confidence: float) -> GainInterval | None:
        """The mean gain over production; None without rows or propensities.

        The estimate is Σ (w − 1)(R − R̄)/n: a constant taken from all rewards changes no gain, and
        the mean reward takes most of the noise of w away.
        """
        if self.evidence is None or not self.rows:
            return None
        (n, R, _), (_, wR, w, _) = self.evidence.usable.tolist(), self.evidence.totals.tolist()
        delta = (1.0 - confidence) / 2.0
        lower, upper = (_root(self.evidence, part, delta) for part in (GAIN, LOSS))
        return GainInterval((wR - R * w / n) / n, lower, -upper + 0.0)

    def as_data(self) -> dict[str, Any]:
        """The sums as policy.json has them."""
        return {
            "plays": self.plays.tolist(),
            "policy": None if self.policy is None else self.policy.tolist(),
            "evidence": as_data(self.evidence, "evidence"),
        }

    @staticmethod
    def from_data(data: Mapping[str, Any], n_actions: int) -> GroupSums:
        """Parse the data that `as_data` made, or raise `InvalidSnapshot`."""
        plays = np.array(data["plays"], dtype=np.int64)
        policy = None if data["policy"] is None else np.array(data["policy"], dtype=np.float64)
        evidence = from_data(data["evidence"], "evidence")
        fits = (
            plays.shape == (n_actions,)
            and bool((plays >= 0).all())
            and (policy is None or (policy.shape == (n_actions,) and bool((policy >= 0).all())))
        )
        if not fits or not (evidence is None or _fits(evidence, int(plays.sum()))):
            raise InvalidSnapshot("context_groups", plays.tolist(), "no log has such sums", REMEDY)
        return GroupSums(read_only(plays), evidence, policy)


def _root(evidence: Evidence, part: int, delta: float) -> float:
    S, rounds = kernel_view(evidence.part(BETS, part)), evidence.rounds
    grid = kernel_view(BETS.gains)
    return float(kernels.certificates.root(S, grid, rounds, -math.log(delta), -1.0))


def _fits(evidence: object, rows: int) -> bool:
    return isinstance(evidence, Evidence) and evidence.fits(BETS) and evidence.usable[0] == rows


@dataclass(frozen=True, eq=False)
class ContextGroups:
    """The groups of a log's contexts, one after the other in the order of `groupings`.

    Every row is in one group of each grouping. `confidence` is that of each interval by itself,
    None where propensities are unknown and there are none.
    """

    groupings: tuple[Grouping, ...]
    sums: tuple[GroupSums, ...]
    confidence: float | None

    @staticmethod
    def fit(
        encoder: Encoder, contexts: Array, n_actions: int, confidence: float | None
    ) -> ContextGroups:
        """The groups of a warm-up, given by its encoded contexts, without a row.

        With many actions, columns and combinations that would have too many groups have none.
        """
        parts = _parts_of(encoder, contexts)
        groupings: list[Grouping] = []
        left = MOST_COUNTS // n_actions
        for column, x in list(parts.values())[:MOST_COLUMNS]:
            one: LabelGroups | NumberBins
            if isinstance(column, CategoryColumn):
                one = LabelGroups(column.name, column.categories)
            else:
                one = NumberBins.fit(column, x)
            if len(one.keys) <= left:
                groupings.append(one)
                left -= len(one.keys)
        labels = [one for one in groupings if isinstance(one, LabelGroups)]
        if len(labels) > 1:
            codes = [one.codes(*parts[one.name]) for one in labels]
            combinations = Combinations.fit(labels, np.stack(codes, axis=1))
            if len(combinations.keys) <= left:
                groupings.append(combinations)
        empty = GroupSums.none(n_actions, certifies=confidence is not None)
        count = sum(len(one.keys) for one in groupings)
        return ContextGroups(tuple(groupings), (empty,) * count, confidence)

    @cached_property
    def keys(self) -> tuple[GroupKey, ...]:
        """The contexts of every group."""
        return tuple(key for grouping in self.groupings for key in grouping.keys)

    def codes(self, encoder: Encoder, contexts: Array) -> Integers:
        """The groups of every row, (rows, groupings), from its encoded context."""
        parts, found, first = _parts_of(encoder, contexts), [], 0
        labels: dict[str, tuple[LabelGroups, Integers]] = {}
        for grouping in self.groupings:
            if isinstance(grouping, Combinations):
                codes = grouping.codes_of(labels)
            else:
                codes = grouping.codes(*parts[grouping.name])
            if isinstance(grouping, LabelGroups):
                labels[grouping.name] = grouping, codes
            found.append(first + codes)
            first += len(grouping.keys)
        return np.stack(found, axis=1) if found else np.zeros((len(contexts), 0), dtype=np.int64)

    def after(
        self, codes: Integers, actions: Integers, columns: WeightedRounds | None
    ) -> ContextGroups:
        """The groups after more rows, given with columns if propensities are known."""
        sums = list(self.sums)
        if not len(codes):
            return self
        for groups in codes.T.astype(np.int16):  # short integers are sorted faster
            order = np.argsort(groups, kind="stable")  # so that batches change no bit
            present, starts = np.unique(groups[order], return_index=True)
            stops = [*starts[1:].tolist(), len(order)]
            for group, start, stop in zip(present.tolist(), starts.tolist(), stops, strict=True):
                rows = order[start:stop]
                own = None if columns is None else columns.take(rows)
                sums[group] = sums[group].after(actions[rows], own)
        return dataclasses.replace(self, sums=tuple(sums))

    def with_policies(self, codes: Integers, known: Array, follows: float) -> ContextGroups:
        """The same with the mean policy in each group, over rows with these groups.

        `known` are the probabilities of each row less the part that does as production does,
        `follows`: there the frequencies of production in the group stand for it.
        """
        sums = []
        for group, one in enumerate(self.sums):
            rows, plays = known[(codes == group).any(axis=1)], one.rows
            policy = None
            if len(rows) and plays:
                policy = rows.mean(axis=0) + follows * one.plays / plays
            sums.append(dataclasses.replace(one, policy=policy))
        return dataclasses.replace(self, sums=tuple(sums))

    @property
    def certain_and_few(self) -> list[tuple[GroupKey, int, int]]:
        """Groups where the policy all but always plays an action that has few plays there.

        Each with the action and its plays.
        """
        return [
            (key, action, int(one.plays[action]))
            for key, one in zip(self.keys, self.sums, strict=True)
            if one.policy is not None
            for action in np.flatnonzero((one.policy >= CERTAIN) & (one.plays < FEW)).tolist()
        ]

    def fits(self, rows: int, encoder: Encoder) -> bool:
        """Whether the groups can be those of a log with so many rows, and this encoder."""
        if not _are_of(self.groupings, encoder):
            return False
        first, ends = 0, []
        for grouping in self.groupings:
            ends.append(sum(one.rows for one in self.sums[first : first + len(grouping.keys)]))
            first += len(grouping.keys)
        return first == len(self.sums) and all(end == rows for end in ends)

    def as_data(self) -> dict[str, Any]:
        """The groups as policy.json has them; a group without a row is null."""
        return {
            "confidence": self.confidence,
            "groupings": fields_as_data(self.groupings),
            "groups": [one.as_data() if one.is_used else None for one in self.sums],
        }

    @staticmethod
    def from_data(data: Mapping[str, Any], n_actions: int) -> ContextGroups:
        """Parse the data that `as_data` made, or raise `InvalidSnapshot`."""
        confidence = None if data["confidence"] is None else float(data["confidence"])
        if confidence is not None and not 0.0 < confidence < 1.0:
            raise InvalidSnapshot("context_groups.confidence", confidence, "no such", REMEDY)
        empty = GroupSums.none(n_actions, certifies=confidence is not None)
        sums = [
            empty if one is None else GroupSums.from_data(one, n_actions) for one in data["groups"]
        ]
        if any((one.evidence is None) != (confidence is None) for one in sums):
            reason = "some groups have propensities, and others none"
            raise InvalidSnapshot("context_groups", confidence, reason, REMEDY)
        return ContextGroups(
            tuple(_grouping_from_data(one) for one in data["groupings"]), tuple(sums), confidence
        )


def _are_of(groupings: Iterable[Grouping], encoder: Encoder) -> bool:
    """Whether groupings, which a file may have in any form, are those of columns of an encoder."""
    columns = {one.name: one for one in encoder.columns}
    labels: dict[str, tuple[str, ...]] = {}
    for one in groupings:
        if isinstance(one, Combinations):
            known = one.columns and all(name in labels for name in one.columns)
            fits = known and all(
                isinstance(row, tuple)
                and len(row) == len(one.columns)
                and all(text in labels[name] for name, text in zip(one.columns, row, strict=True))
                for row in one.labels
            )
        elif isinstance(one, LabelGroups):
            column = columns.get(one.name)
            fits = isinstance(column, CategoryColumn) and one.labels == column.categories
            labels[one.name] = one.labels
        else:
            numbers = (*one.edges, *one.standard)
            fits = (
                isinstance(columns.get(one.name), NumberColumn)
                and len(one.edges) == len(one.standard)
                and all(isinstance(x, float | int) and math.isfinite(x) for x in numbers)
                and sorted(one.standard) == list(one.standard)
            )
        if not fits:
            return False
    return True


def _grouping_from_data(data: object) -> Grouping:
    kinds: tuple[type[Grouping], ...] = (LabelGroups, NumberBins, Combinations)
    found = fields_from_data(kinds, data, "context_groups.groupings", REMEDY)
    tuples = {
        field.name: _as_tuples(getattr(found, field.name)) for field in dataclasses.fields(found)
    }
    return dataclasses.replace(found, **tuples)


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _parts_of(
    encoder: Encoder, contexts: Array
) -> dict[str, tuple[CategoryColumn | NumberColumn, Array]]:
    """The columns of an encoder with their features, by name."""
    return {
        column.name: (column, contexts[:, start : start + len(column.features)])
        for column, start in zip(encoder.columns, encoder.starts, strict=True)
    }
