"""Tables of `understudy bench policies`: means over seeds, paired differences, and the targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchmarks.measurement import Evaluation, Ratio, Table
from benchmarks.policy_peers import PRODUCTION, VOWPAL

__all__ = ["DEFAULT", "BenchmarkCell", "Difference", "Score", "compare", "evaluation", "growth"]

DEFAULT = "Understudy"
WANTED_CELLS = 2 / 3  # where the default must reach the best of VW's estimators
ERRORS_BELOW_VOWPAL, ERRORS_BELOW_PRODUCTION = 1.0, 2.0  # standard errors that count as noise
FALSE_PROMOTIONS = 0.05  # the certificates' confidence is 95 %


@dataclass(frozen=True)
class Score:
    """The true values per round of a competitor on one log, and its certificate.

    `progressive` and `gain` (over production) are means over the rounds after the warm-up, None if
    the competitor learns in no rounds. `certified` is the gain in the second half, with 95 %
    confidence. `promoted_at` is the round of promotion, counted from the first of the log, by a
    certificate that begins where the settings are fixed. `false_promotion`: the true gain from
    there to the promotion was not positive.
    """

    progressive: float | None
    final: float
    gain: float | None = None
    certified: float | None = None
    promoted_at: int | None = None
    false_promotion: bool = False


Values = Callable[[Score], float | None]
# The two values of a policy, in the words of the tables.
KINDS: dict[str, Values] = {
    "while learning": lambda score: score.progressive,
    "final": lambda score: score.final,
}


@dataclass(frozen=True)
class BenchmarkCell:
    """A set of data and a logger; `scores` has one mapping by competitor per seed.

    Cells with `contexts` count for the targets. In `null` cells rewards have no causes.
    """

    name: str
    scores: Sequence[Mapping[str, Score]]
    contexts: bool = True
    null: bool = False

    def values(self, who: str, what: Values) -> list[float]:
        """The values of a competitor, one per seed; none if it has none."""
        found = (what(scores[who]) for scores in self.scores if who in scores)
        return [value for value in found if value is not None]

    def best(self, names: Iterable[str], what: Values) -> str | None:
        """The competitor with the largest mean value among those that have one."""
        means = {who: self.values(who, what) for who in names}
        known = [who for who, values in means.items() if values]
        return max(known, key=lambda who: float(np.mean(means[who])), default=None)


@dataclass(frozen=True)
class Difference:
    """A mean over seeds, and its standard error; of paired differences, or of values.

    >>> found = Difference.of([0.5, 0.25], [0.25, 0.25])
    >>> found.mean, found.error
    (0.125, 0.125)
    """

    mean: float
    error: float

    @staticmethod
    def of(first: Sequence[float], second: Sequence[float] | float = 0.0) -> Difference:
        """The mean of first − second, seed by seed."""
        differences = np.asarray(first) - np.asarray(second)
        count = len(differences)
        error = float(differences.std(ddof=1)) / math.sqrt(count) if count > 1 else math.inf
        return Difference(float(differences.mean()), error)

    def below(self, errors: float) -> bool:
        """Whether the mean is below 0 by more than so many standard errors."""
        return self.mean < -errors * self.error

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.error:.3f}"


def compare(cell: BenchmarkCell, other: str | None, what: Values) -> Difference | None:
    """The default minus a competitor, paired by seed; None without the competitor."""
    if other is None:
        return None
    return Difference.of(cell.values(DEFAULT, what), cell.values(other, what))


def evaluation(cells: Sequence[BenchmarkCell]) -> Evaluation:
    """All tables and targets of a run."""
    real = [cell for cell in cells if not cell.null]
    names = list(dict.fromkeys(who for cell in cells for scores in cell.scores for who in scores))
    one_pass = [who for who in names if any(c.values(who, KINDS["while learning"]) for c in real)]
    passes = [who for who in names if who not in one_pass]
    learners = [who for who in one_pass if who != PRODUCTION]
    tables = [
        _means(
            "Value while learning (peers have the setting that the first half chose)",
            real,
            one_pass,
            KINDS["while learning"],
        ),
        _means("Value of the final policy on the rows held out", real, one_pass, KINDS["final"]),
        _means("The same after five passes", real, passes, KINDS["final"]),
        _differences(real),
        _means(
            "Certified gain over production in the second half, 95 % confidence",
            real,
            learners,
            lambda score: score.certified,
        ),
        _promotions(real, learners),
        _false_promotions(cells, learners),
    ]
    return Evaluation([table for table in tables if len(table.columns) > 1], _targets(cells))


def _means(title: str, cells: Sequence[BenchmarkCell], names: Sequence[str], what: Values) -> Table:
    rows = [
        [cell.name, *(_mean(cell.values(who, what)) for who in names)]
        for cell in cells
        if any(cell.values(who, what) for who in names)
    ]
    return Table(title, ["", *names], rows)


def _mean(values: Sequence[float]) -> str:
    return str(Difference.of(values)) if values else "–"


def _differences(cells: Sequence[BenchmarkCell]) -> Table:
    columns, rows = ["", "beside"], []
    for kind in KINDS:
        columns += [f"− best VW, {kind}", f"− production, {kind}"]
    for cell in cells:
        best = {kind: cell.best(VOWPAL, what) for kind, what in KINDS.items()}
        row = [cell.name, " / ".join(dict.fromkeys(who or "–" for who in best.values()))]
        for kind, what in KINDS.items():
            pairs = (compare(cell, other, what) for other in (best[kind], PRODUCTION))
            row += ["–" if pair is None else _signed(pair) for pair in pairs]
        rows.append(row)
    return Table(f"{DEFAULT} minus others, paired by seed", columns, rows)


def _signed(pair: Difference) -> str:
    return f"{pair.mean:+.3f} ± {pair.error:.3f}"


def _promotions(cells: Sequence[BenchmarkCell], names: Sequence[str]) -> Table:
    """Medians over the logs in which the competitor was promoted, and how many those are."""

    def cell_text(cell: BenchmarkCell, who: str) -> str:
        rounds = cell.values(who, lambda score: score.promoted_at)
        share = f"{len(rounds)}/{len(cell.scores)}"
        return f"{np.median(rounds):,.0f} ({share})" if rounds else f"({share})"

    rows = [[cell.name, *(cell_text(cell, who) for who in names)] for cell in cells]
    return Table(
        "Round of promotion, median (promoted logs/logs); tuned peers: in the second half",
        ["", *names],
        rows,
    )


def _false_promotions(cells: Sequence[BenchmarkCell], names: Sequence[str]) -> Table:
    rows = []
    for title, null in (("rewards without effects", True), ("all other logs", False)):
        some = [cell for cell in cells if cell.null == null]
        logs = sum(len(cell.scores) for cell in some)
        if logs:
            rows.append([title, *(f"{_false(some, who)}/{logs}" for who in names)])
    return Table("False promotions/logs", ["", *names], rows)


def _false(cells: Iterable[BenchmarkCell], who: str) -> int:
    logs = (scores[who] for cell in cells for scores in cell.scores if who in scores)
    return sum(score.false_promotion for score in logs)


def _targets(cells: Sequence[BenchmarkCell]) -> list[Ratio]:
    counted = [cell for cell in cells if cell.contexts and not cell.null]
    ratios = []
    for kind, what in KINDS.items():
        found = [compare(cell, cell.best(VOWPAL, what), what) for cell in counted]
        pairs = [pair for pair in found if pair is not None]
        if pairs:
            reached = sum(not pair.below(ERRORS_BELOW_VOWPAL) for pair in pairs) / len(pairs)
            text = f"share of {len(pairs)} cells at least as good as the best VW − 1 SE, {kind}"
            ratios.append(Ratio(text, reached, at_least=WANTED_CELLS))
    for kind, what in KINDS.items():
        pairs = [pair for cell in counted if (pair := compare(cell, PRODUCTION, what))]
        below = sum(pair.below(ERRORS_BELOW_PRODUCTION) for pair in pairs)
        text = f"cells of {len(pairs)} below production by more than 2 SE, {kind}"
        ratios.append(Ratio(text, below, at_most=0))
    null = [cell for cell in cells if cell.null]
    logs = sum(len(cell.scores) for cell in null)
    if logs:
        text = f"share of {logs} logs without effects with a false promotion"
        ratios.append(Ratio(text, _false(null, DEFAULT) / logs, at_most=FALSE_PROMOTIONS))
    return ratios


def growth(sizes: Sequence[int], cells: Mapping[str, Sequence[BenchmarkCell]]) -> Evaluation:
    """Values as logs grow: `cells` holds, for each set of data, one cell per size."""
    tables, ratios = [], []
    columns = ["", *(f"{size:,} rows" for size in sizes)]
    for kind, what in KINDS.items():
        rows = [
            [f"{data}, {who}", *(_mean(cell.values(who, what)) for cell in ladder)]
            for data, ladder in cells.items()
            for who in (PRODUCTION, DEFAULT)
        ]
        tables.append(Table(f"Value, {kind}", columns, rows))
        steps = [
            Difference.of(more.values(DEFAULT, what), fewer.values(DEFAULT, what))
            for ladder in cells.values()
            for fewer, more in pairwise(ladder)
        ]
        worse = sum(step.below(ERRORS_BELOW_PRODUCTION) for step in steps)
        text = f"steps of {len(steps)} to more rows that lose more than 2 SE, {kind}"
        ratios.append(Ratio(text, worse, at_most=0))
    return Evaluation(tables, ratios)
