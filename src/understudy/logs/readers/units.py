"""Rows by their unit of randomization, such as a user: each unit is one decision.

Where an action is drawn once for a unit and kept, the later rows of the unit are no draws of their
own. So one row stands for the unit: its first one, with its action, propensity and contexts. The
reward is the mean over all rows of the unit; or, if `most_rows` H is given, the sum over its first
H rows, divided by H, and later rows are ignored. Units are in the order of their first rows. So
late rewards of a unit are used for units that came before them, which is fair as long as units do
not interfere.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from understudy.certificates.guardrails import Guardrail
from understudy.errors import InvalidArgument, InvalidSnapshot
from understudy.logs.outputs import UNITS_FILE, ProgressCallback, no_progress
from understudy.logs.readers.files import BATCH
from understudy.logs.rules import (
    BoundedColumn,
    RejectReason,
    first_reason,
    metric_values,
    narwhals_type,
    number_rule,
    parse_numbers,
    require_labels,
    require_numbers,
    rows_by_file,
)
from understudy.logs.schema import (
    ACTION,
    METRIC,
    REWARD,
    UNIT,
    UNIT_FAULT,
    RewardScale,
    label_text,
)
from understudy.snapshots import REMEDY, fields_as_data, fields_from_data, write_atomically
from understudy.types import read_only

NO_HASHES: NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)
MISSING = -1  # the code of a missing unit or action
FEWEST = 1 << 10  # units that the first arrays have room for; they double
Frames = Iterable[tuple[str, pl.DataFrame]]  # batches of rows, with the names of their sources


@dataclass(frozen=True)
class UnitCounts:
    """The numbers of rows and units that were read from a log.

    `ignored` rows come after the first `most_rows` of their units. `left_out` units, with
    `rows_left_out`, have been used before: neither learned from nor certified.
    """

    column: str
    most_rows: int | None
    rows: int
    units: int
    ignored: int = 0
    left_out: int = 0
    rows_left_out: int = 0

    def __post_init__(self) -> None:
        numbers = dataclasses.astuple(self)[2:]
        if not (isinstance(self.column, str) and all(isinstance(n, int) for n in numbers)):
            raise InvalidArgument("units", self.column, "it needs a text and counts", REMEDY)

    def __add__(self, other: UnitCounts) -> UnitCounts:
        mine, others = (dataclasses.astuple(one)[2:] for one in (self, other))
        return UnitCounts(self.column, self.most_rows, *map(operator.add, mine, others))


@dataclass(frozen=True, eq=False)
class UsedUnits:
    """The hashes of units, sorted: 8 bytes each.

    Two of n units have the same hash with a probability of about n²/2⁶⁵; then one that is new is
    left out.
    """

    hashes: NDArray[np.uint64]

    @staticmethod
    def of(*hashes: NDArray[np.uint64]) -> UsedUnits:
        """The units with any of these hashes."""
        return UsedUnits(read_only(np.unique(np.concatenate([NO_HASHES, *hashes]))))

    def __len__(self) -> int:
        return len(self.hashes)

    def contain(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """A mask of the hashes that are among these."""
        places = np.minimum(np.searchsorted(self.hashes, hashes), max(0, len(self) - 1))
        return self.hashes[places] == hashes if len(self) else np.zeros(len(hashes), dtype=np.bool_)

    @property
    def sha256(self) -> str:
        """The fingerprint of these units, which policy.json has."""
        return hashlib.sha256(self.hashes.astype("<u8").tobytes()).hexdigest()

    def save(self, path: Path) -> None:
        """Write the hashes as a Parquet file, whole or not at all."""
        file = io.BytesIO()
        pl.DataFrame({UNIT: self.hashes}).write_parquet(file)
        write_atomically(path, file.getvalue())

    @staticmethod
    def load(path: Path) -> UsedUnits | None:
        """The units of a file that `save` wrote; None if it is missing or damaged."""
        try:
            hashes = pl.read_parquet(path, glob=False, columns=[UNIT])[UNIT]
        except (pl.exceptions.PolarsError, OSError):
            return None
        whole = hashes.dtype == pl.UInt64 and not hashes.null_count()
        return UsedUnits.of(hashes.to_numpy()) if whole else None


@dataclass(frozen=True, eq=False)
class UnitRecord:
    """The units that a policy was learned from: their counts, and their hashes if they are at hand.

    `sha256` is the fingerprint of the hashes, which are in a file beside policy.json.
    """

    counts: UnitCounts
    sha256: str
    used: UsedUnits | None = None

    @staticmethod
    def of(
        rows: UnitRows, earlier: UnitRecord | None = None, others: UsedUnits | None = None
    ) -> UnitRecord:
        """The record of a run, and of the `earlier` one that it goes on from.

        The `others` are units that its baseline was learned from.
        """
        known = (None if earlier is None else earlier.at_hand(), others, rows.used)
        used = UsedUnits.of(*(one.hashes for one in known if one is not None))
        counts = rows.counts if earlier is None else earlier.counts + rows.counts
        return UnitRecord(counts, used.sha256, used)

    def at_hand(self) -> UsedUnits:
        """The hashes, or `InvalidArgument`: a unit may be used once."""
        if self.used is None:
            reason = (
                f"the policy was learned from {self.counts.units:,} units of "
                f"{self.counts.column!r}, and the file with their hashes is not beside it, or not "
                "as it was written: without it, the same units could be used again"
            )
            remedy = f"put the {UNITS_FILE} that was written with it into the folder of the policy"
            raise InvalidArgument("policy", UNITS_FILE, reason, remedy)
        return self.used

    def found_beside(self, path: Path) -> UnitRecord:
        """The record with its hashes, if this file or units.parquet of its folder has them."""
        for file in (path, path.with_name(UNITS_FILE)):
            used = UsedUnits.load(file)
            if used is not None and used.sha256 == self.sha256:
                return replace(self, used=used)
        return self

    def as_data(self) -> dict[str, Any]:
        """The record as policy.json has it."""
        return {**fields_as_data(self.counts), "sha256": self.sha256}

    @staticmethod
    def from_data(data: Any) -> UnitRecord:
        """The record of a policy.json without the hashes, or `InvalidSnapshot`."""
        counts = {name: value for name, value in data.items() if name != "sha256"}
        record = UnitRecord(fields_from_data(UnitCounts, counts, "units"), data["sha256"])
        if not isinstance(record.sha256, str):
            raise InvalidSnapshot("units", record.sha256, "it is no fingerprint", REMEDY)
        return record


def unit_hash(text: str) -> int:
    """The hash of a unit's text: the same on every machine, and in every later version."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True, eq=False)
class UnitRows:
    """One row for each unit of a log, in memory, with the counts and the hashes of the units.

    `rows_by_file` counts all rows that were read.

    >>> rows = {"row": [1, 2, 3], "unit": ["ann", "bob", "ann"], "action": ["x", "y", "x"]}
    >>> log = [("log.csv", pl.DataFrame({**rows, "reward": [1.0, 0.0, 0.5]}))]
    >>> found = UnitRows.collect(log, column="user")
    >>> [frame.select("action", "reward").rows() for _, frame in found.batches()]
    [[('x', 0.75), ('y', 0.0)]]
    >>> found.counts
    UnitCounts(column='user', most_rows=None, rows=3, units=2, ignored=0, left_out=0, ...)
    """

    frames: tuple[tuple[str, pl.DataFrame], ...]
    counts: UnitCounts
    used: UsedUnits
    rows_by_file: Mapping[str, int]

    @staticmethod
    def collect(
        batches: Frames,
        *,
        column: str,
        scale: RewardScale | None = None,
        most_rows: int | None = None,
        used: UsedUnits | None = None,
        guardrails: Sequence[Guardrail] = (),
        watch: ProgressCallback = no_progress,
    ) -> UnitRows:
        """Collect the rows of all units but those that were `used` before.

        A row without a unit stands for itself, and is quarantined, as is a unit whose action
        changes, or one of whose rewards cannot be used. The metric of a guardrail is made of its
        rows as the reward is, and missing if that of any row is.
        """
        metrics = {METRIC + one.name: one for one in guardrails}
        collector = _Collector(scale or RewardScale(), most_rows, used or UsedUnits.of(), metrics)
        for file, frame in batches:
            collector.add(file, frame)
            watch("collecting units", len(frame), None)
        return collector.finish(column)

    def batches(self) -> Iterator[tuple[str, pl.DataFrame]]:
        """The rows, each with its reward, and the reason to reject it, if there is one."""
        yield from self.frames


class _Collector:
    """The sums of the rewards of each unit, by its code, and the first row of each."""

    def __init__(
        self,
        scale: RewardScale,
        most_rows: int | None,
        used: UsedUnits,
        metrics: Mapping[str, Guardrail],
    ) -> None:
        self._scale, self._most, self._used, self._metrics = scale, most_rows, used, metrics
        # Polars forgets the codes of categories that no column has.
        self._units, self._labels = (
            pl.Series([], dtype=pl.Categorical(pl.Categories.random())) for _ in range(2)
        )
        self._rows = np.zeros(FEWEST, dtype=np.int64)
        self._sums = np.zeros(FEWEST)
        self._metric_sums = np.zeros((FEWEST, len(metrics)))
        self._actions = np.full(FEWEST, MISSING, dtype=np.int64)  # of the first row
        self._hashes = np.zeros(FEWEST, dtype=np.uint64)
        self._changed, self._left_out = (np.zeros(FEWEST, dtype=np.bool_) for _ in range(2))
        self._faults: dict[int, str] = {}
        self._frames: list[tuple[str, pl.DataFrame, NDArray[np.int64]]] = []
        self._count = self._ignored = 0
        self._files = Counter[str]()

    def add(self, file: str, frame: pl.DataFrame) -> None:
        """Add a batch of rows."""
        for role in (UNIT, ACTION):
            require_labels(file, role, narwhals_type(frame[role].dtype))
        require_numbers(file, REWARD, narwhals_type(frame[REWARD].dtype))
        # As labels of actions: pandas writes 7 as 7.0 if the column has a missing value.
        texts = frame.select(label_text(pl.col(UNIT), frame[UNIT].dtype)).to_series()
        labels = frame.select(label_text(pl.col(ACTION), frame[ACTION].dtype)).to_series()
        codes, actions = (
            _codes(texts, self._units.dtype),
            _codes(labels, self._labels.dtype),
        )
        first = self._begin(codes, actions, texts)
        self._files.update(rows_by_file(file, frame))
        kept = np.flatnonzero((codes != MISSING) & ~self._left_out[codes])
        self._add_rewards(frame, codes[kept], kept)
        own, own_actions = codes[kept], actions[kept]
        known = (own_actions != MISSING) & (self._actions[own] != MISSING)
        self._changed[own[known & (own_actions != self._actions[own])]] = True
        np.add.at(self._rows, codes[codes != MISSING], 1)
        stands = first | (codes == MISSING)
        left = frame.filter(stands).drop(UNIT, REWARD, *self._metrics)
        self._frames.append((file, left, codes[stands]))

    def _begin(
        self, codes: NDArray[np.int64], actions: NDArray[np.int64], texts: pl.Series
    ) -> NDArray[np.bool_]:
        """Begin the units that are new; a mask of their first rows, without those left out."""
        present, places = np.unique(codes, return_index=True)
        if present[:1] == MISSING:
            present, places = present[1:], places[1:]
        self._grow(int(present.max(initial=MISSING)) + 1)
        new = self._rows[present] == 0
        begun, at = present[new], places[new]
        self._count += len(begun)
        self._actions[begun] = actions[at]
        own = map(unit_hash, texts.gather(at).to_list())
        self._hashes[begun] = np.fromiter(own, dtype=np.uint64, count=len(at))
        self._left_out[begun] = self._used.contain(self._hashes[begun])
        first = np.zeros(len(codes), dtype=np.bool_)
        first[at[~self._left_out[begun]]] = True
        return first

    def _grow(self, size: int) -> None:
        room = len(self._rows)
        while room < size:
            room *= 2
        arrays = ("_rows", "_sums", "_metric_sums", "_actions", "_hashes", "_changed", "_left_out")
        for name in arrays:
            old = getattr(self, name)
            if len(old) < room:
                grown = np.zeros((room, *old.shape[1:]), dtype=old.dtype)
                grown[: len(old)] = old
                setattr(self, name, grown)

    def _add_rewards(
        self, frame: pl.DataFrame, codes: NDArray[np.int64], kept: NDArray[np.int64]
    ) -> None:
        """Add the rewards and metrics of rows of these units, up to the most rows of each."""
        if self._most is not None:
            counted = self._rows[codes] + _places(codes) < self._most
            self._ignored += int((~counted).sum())
            codes, kept = codes[counted], kept[counted]
        column = frame[REWARD]
        for place, (name, guardrail) in enumerate(self._metrics.items()):
            found = guardrail.usable(metric_values(frame, name)[kept])
            np.add.at(self._metric_sums[:, place], codes, found)
        text = isinstance(column.dtype, pl.String | pl.Categorical | pl.Enum)
        bounded = BoundedColumn.of(REWARD, self._scale, text=text)
        rewards = column.gather(kept).to_frame(REWARD)
        rewards = rewards.with_columns(parse_numbers(bounded, rewards[REWARD]))
        rule = number_rule(bounded)
        valid = rewards.select(rule.holds.fill_null(value=False)).to_series().to_numpy()
        values = rewards[bounded.parsed].to_numpy()
        np.add.at(self._sums, codes[valid], values[valid])
        if not valid.all():
            readable = rewards.filter(~valid).with_columns(
                pl.selectors.by_dtype(pl.Categorical, pl.Enum).cast(pl.String)
            )
            reasons = readable.select(first_reason([rule])).to_series()
            for code, reason in zip(codes[~valid].tolist(), reasons.to_list(), strict=True):
                self._faults.setdefault(code, reason)

    def finish(self, column: str) -> UnitRows:
        """The rows of all units."""
        self._faults |= dict.fromkeys(
            np.flatnonzero(self._changed).tolist(), RejectReason.UNIT_CHANGES.value
        )
        rows = np.maximum(self._rows, 1) if self._most is None else np.full(1, self._most)
        means = self._sums / rows
        means = np.clip(means, self._scale.low, self._scale.high)  # rounding may leave the range
        metrics = self._metric_sums / rows[:, np.newaxis]
        parts = [
            (file, self._with_rewards(frame, codes, means, metrics))
            for file, frame, codes in self._frames
            if len(frame)
        ]
        left_out = self._left_out[: self._count]
        counts = UnitCounts(
            column,
            self._most,
            self._files.total(),
            self._count,
            self._ignored,
            int(left_out.sum()),
            int(self._rows[: self._count][left_out].sum()),
        )
        used = UsedUnits.of(self._hashes[: self._count][~left_out])
        return UnitRows(tuple(_joined(parts)), counts, used, self._files)

    def _with_rewards(
        self,
        frame: pl.DataFrame,
        codes: NDArray[np.int64],
        means: NDArray[np.float64],
        metrics: NDArray[np.float64],
    ) -> pl.DataFrame:
        values = {
            name: np.clip(metrics[codes, place], one.low, one.high)
            for place, (name, one) in enumerate(self._metrics.items())
        }
        faults = [
            RejectReason.UNIT_MISSING.value if code == MISSING else self._faults.get(code)
            for code in codes.tolist()
        ]
        return frame.with_columns(
            pl.Series(REWARD, means[codes]),
            *(pl.Series(name, np.where(codes == MISSING, np.nan, v)) for name, v in values.items()),
            pl.Series(UNIT_FAULT, faults, dtype=pl.String),
        ).with_columns(
            pl.when(pl.col(UNIT_FAULT).is_null()).then(pl.col(REWARD)),
            pl.when(pl.col(UNIT_FAULT).ne_missing(RejectReason.UNIT_MISSING.value)).then(
                pl.col(ACTION)
            ),
        )


def _codes(texts: pl.Series, kind: pl.DataType) -> NDArray[np.int64]:
    """A number for each different text, the same in all batches; −1 where it is missing."""
    return texts.cast(kind).to_physical().cast(pl.Int64).fill_null(MISSING).to_numpy()


def _places(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many earlier rows of its batch each row's unit has.

    >>> _places(np.array([5, 7, 5, 5])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    lengths = np.diff(np.append(starts, len(ordered)))
    places = np.empty_like(codes)
    places[order] = np.arange(len(codes)) - np.repeat(starts, lengths)
    return places


def _joined(parts: list[tuple[str, pl.DataFrame]]) -> Iterator[tuple[str, pl.DataFrame]]:
    """The same rows in fewer frames: late batches of a log begin few units."""
    waiting: list[pl.DataFrame] = []
    name = ""
    for file, frame in parts:
        fits = waiting and file == name and frame.schema == waiting[0].schema
        if waiting and not (fits and sum(map(len, waiting)) < BATCH):
            yield name, pl.concat(waiting)
            waiting = []
        waiting.append(frame)
        name = file
    if waiting:
        yield name, pl.concat(waiting)
