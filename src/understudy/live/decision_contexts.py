"""The contexts of decisions as frames, and the search for those in which the action is sticky."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from understudy.certificates.evidence import FIRST_RULES
from understudy.live.spec import StudySpec
from understudy.live.store.records import Decision
from understudy.logs.evaluation.sticky_columns import StickyColumns, StickyDetector
from understudy.logs.schema import CONTEXT, ESTIMATED

ROWS_PER_FRAME = 512  # contexts parsed at a time: objects of Python take ten times their text
COLUMN_TYPES = {"number": pl.Float64(), "text": pl.String()}
# Decisions whose contexts are examined, from the first on: a sticky unit shows in some hundred that
# come again, and a start after a kill reads all of them, in a second at most.
MOST_EXAMINED = 50_000


def context_bytes(decision: Decision) -> bytes:
    """Return the context of a decision as the store has it."""
    return (decision.context or "{}").encode()


def context_frame(kinds: Mapping[str, str], contexts: Sequence[bytes]) -> pl.DataFrame:
    """Return contexts as columns of these kinds."""
    frames = []
    for start in range(0, max(1, len(contexts)), ROWS_PER_FRAME):  # of none, an empty frame
        rows = [json.loads(context) for context in contexts[start : start + ROWS_PER_FRAME]]
        columns = {
            CONTEXT + name: pl.Series([row[name] for row in rows], dtype=COLUMN_TYPES[kind])
            for name, kind in kinds.items()
        }
        frames.append(pl.DataFrame(columns))
    return pl.concat(frames)


def search_ends(seq: int) -> bool:
    """Return whether the search has seen all that it examines after this decision."""
    return seq >= MOST_EXAMINED


def may_be_sticky(spec: StudySpec) -> bool:
    """Return whether contexts of a study are examined: propensities are known, and no unit is."""
    declared = spec.unit_rows is not None or spec.no_unit
    known = spec.context is not None and spec.propensity_source != ESTIMATED
    return known and not declared and spec.rules != FIRST_RULES


class StickySearch:
    """The search in the first decisions of a study. States that follow each other share it."""

    def __init__(self) -> None:
        self._detector = StickyDetector()
        self.seq = 0  # of the last decision

    def after(self, spec: StudySpec, decisions: Sequence[Decision]) -> StickyColumns:
        """Examine more decisions, up to the last one of the search; return the finding so far."""
        self.seq = decisions[-1].seq
        decisions = [decision for decision in decisions if decision.seq <= MOST_EXAMINED]
        frame = context_frame(spec.context or {}, list(map(context_bytes, decisions)))
        actions = np.array([decision.action for decision in decisions], dtype=np.int64)
        if isinstance(spec.pi_b, np.ndarray):
            q = spec.pi_b[actions]
        else:
            q = np.array([decision.propensity for decision in decisions], dtype=np.float64)
        hashes = frame.select(
            pl.when(pl.col(name).is_not_null())
            .then(pl.col(name).hash())
            .otherwise(0)
            .alias(name.removeprefix(CONTEXT))
            for name in frame.columns
        )
        self._detector.add(hashes.to_dict(), actions, q)
        return self._detector.finding()
