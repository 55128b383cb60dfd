"""The certificates of a question from sums over rows in no order: goal, guardrails and segments.

Each is `certify_sums` of a reward and of some rows, with the confidence that it has in order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np

from understudy.certificates import JointCertificate, SegmentCertificates
from understudy.certificates.evidence import confidence_of_each
from understudy.certificates.guardrails import LOWER
from understudy.constraints import Array
from understudy.errors import InvalidArgument
from understudy.logs.aggregation.aggregates import collect
from understudy.logs.aggregation.engines import lazy
from understudy.logs.aggregation.sufficient_statistics import SummedCertificate, certify_sums
from understudy.logs.evaluation.answers import never_usable
from understudy.logs.evaluation.questions import Question, Segments
from understudy.logs.runs.certificate_path import CertificatePath
from understudy.logs.schema import Actions, Columns
from understudy.logs.validate import labels_of


@dataclass(frozen=True, eq=False)
class SummedQuestion:
    """A question about a fixed policy, to be answered by sums over a native frame.

    `policy` is None if a column has its probabilities; `against` has those of the baseline, None
    for production. `reading` has the other arguments of `certify_sums`.
    """

    frame: Any
    columns: Columns
    question: Question
    actions: Actions
    policy: Array | None
    against: Array | None
    confidence: float
    reading: Mapping[str, Any]

    def path(self) -> tuple[CertificatePath, dict[str, int]]:
        """The certificates, and the rejected rows by reason.

        If rows are rejected, they are also left out, in `without_rejected`.
        """
        path, reject_counts = self._path()
        if not reject_counts or self.question.guardrails:  # one metric alone may reject a row
            return path, reject_counts
        without, _ = self._path(only_valid=True)
        return dataclasses.replace(path, without_rejected=without), reject_counts

    def _path(self, *, only_valid: bool = False) -> tuple[CertificatePath, dict[str, int]]:
        metrics, segments = self.question.guardrails, self.question.segments
        alone, each = JointCertificate.confidences(self.confidence, len(metrics))
        goal = self._sums(self.frame, alone, only_valid=only_valid)
        joint, sums = None, goal.baseline  # production's are of its metrics and segments alone
        if metrics:
            guardrails = [
                self._sums(
                    self.frame,
                    each,
                    columns=dataclasses.replace(self.columns, reward=one.name, metrics=()),
                    reward_range=(one.low, one.high),
                    flipped=one.better == LOWER,
                )
                for one in metrics
            ]
            certificates = tuple(one.of_gain for one in guardrails)
            none_broken = (0,) * len(metrics)
            joint = JointCertificate(goal.of_gain, certificates, metrics, broken_at=none_broken)
            for metric, one in zip(metrics, guardrails, strict=True):
                if not one.baseline.rows and one.certificate.rounds:
                    raise never_usable(metric)
            sums = sums._replace(metrics=_means_of(guardrails))
        found = None
        if segments is not None:
            confidence = confidence_of_each(self.confidence, len(segments.values))
            parts = [
                self._sums(rows, confidence, only_valid=only_valid)
                for rows in _rows_of_segments(self.frame, segments)
            ]
            own = tuple(one.of_gain for one in parts)
            rounds = goal.certificate.rounds
            found = SegmentCertificates(segments.values, own, self.confidence, rounds)
            sums = sums._replace(segments=_means_of(parts))
        path = CertificatePath(goal.of_gain, joint=joint, segments=found, baseline=sums)
        return path, goal.reject_counts

    def _sums(self, frame: Any, confidence: float, **options: Any) -> SummedCertificate:
        return certify_sums(
            frame,
            options.pop("columns", self.columns),
            actions=self.actions,
            policy=self.policy,
            against=self.against,
            confidence=confidence,
            **{**self.reading, **options},
        )


def _means_of(parts: list[SummedCertificate]) -> Array:
    """Σ w₀R and Σ w₀ of each part."""
    return np.array([(one.baseline.rewards, one.baseline.weights) for one in parts])


def _rows_of_segments(frame: Any, segments: Segments) -> list[Any]:
    """The rows of each segment, as native frames."""
    whole = lazy(frame)
    if segments.column not in whole.collect_schema():
        reason = "the log has no such column"
        raise InvalidArgument("segment", segments.column, reason, "name one of its columns")
    column = nw.col(segments.column)
    values = collect(whole.select(column).unique())[segments.column]
    texts = labels_of(values)
    return [
        whole.filter(column.is_in(values.filter(texts == value).to_list())).to_native()
        for value in segments.values
    ]
