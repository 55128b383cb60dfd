"""Certificates of segments: the rows of each are a log of their own, and all hold together.

A segment is declared before the log is looked at, and is known before the action: new users, a
country. With m segments, bounds on the gain spend δ/(2m) each, so that all intervals hold together,
and the decision about one segment spends δ/m. Whether the policy is worse somewhere is decided by
the mean of the segments' e-processes of a loss, which is an e-process and needs no division of δ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from understudy.certificates.difference import POINTS_SET, ROUND, parts_between_points
from understudy.certificates.evidence import CONFIDENCE, BaselineRounds
from understudy.certificates.joint import AnyCertificate
from understudy.constraints import Array, Checked
from understudy.types import Integers, Log, saved


class SegmentGain(NamedTuple):
    """The mean gain in a segment: bounds that hold for all segments together, and its decision.

    Bounds are None without rounds, or if no gain is certified.
    """

    name: str
    rounds: int
    lower: float | None
    upper: float | None
    promoted: bool
    worse: bool


@saved
@dataclass(frozen=True, eq=False)
class SegmentCertificates(Checked):
    """The certificates of segments, which partition some of the rounds.

    Each certificate has the confidence of its decisions, 1 − δ/m. `worse_at` is the first round of
    `POINTS` after which some segment was certainly worse, or 0.

    >>> import understudy as us
    >>> segments = SegmentCertificates.begin(us.Certificate([0.5, 0.5]), ("new", "old"))
    >>> log = us.Log([0, 1] * 4000, [0.0, 1.0] * 2000 + [1.0, 0.0] * 2000)
    >>> codes = np.repeat([0, 1], 4000)
    >>> after = segments.advance(log, np.array([0.1, 0.9] * 4000), 1.8, codes)
    >>> [(one.name, one.promoted, one.worse) for one in after.gains], after.worse_somewhere
    ([('new', True, False), ('old', False, True)], True)
    """

    names: tuple[str, ...]
    certificates: tuple[AnyCertificate, ...]
    confidence: float
    rounds: int = 0
    worse_at: int = 0
    CONSTRAINTS: ClassVar = {"confidence": CONFIDENCE, "rounds": ROUND, "worse_at": ROUND}

    @staticmethod
    def begin(whole: AnyCertificate, names: tuple[str, ...]) -> SegmentCertificates:
        """The certificates before round 1, of the confidence that the certificate of all has."""
        confidence = SegmentCertificates.confidence_of(whole.confidence, len(names))
        each = whole.with_confidence(confidence)
        return SegmentCertificates(names, (each,) * len(names), whole.confidence)

    @staticmethod
    def confidence_of(confidence: float, segments: int) -> float:
        """1 − δ/m, the confidence of the decision about each of m segments."""
        return 1.0 - (1.0 - confidence) / segments

    def advance(
        self,
        log: Log,
        probabilities: Array,
        ratios: Array | float,
        codes: Integers,
        baseline: BaselineRounds | None = None,
    ) -> SegmentCertificates:
        """The certificates after more rounds; arguments as of `Certificate.advance`.

        `codes` are the indices of the segments, −1 of rounds in none.
        """
        after, known = self, np.broadcast_to(ratios, len(log))
        for part in parts_between_points(self.rounds, len(log)):
            columns = log[part], probabilities[part], known[part]
            other = None if baseline is None else baseline.part(part)
            after = after._after(*columns, codes[part], other)
        return after

    def _after(
        self,
        log: Log,
        probabilities: Array,
        ratios: Array,
        codes: Integers,
        baseline: BaselineRounds | None,
    ) -> SegmentCertificates:
        certificates = list(self.certificates)
        for segment in np.unique(codes[codes >= 0]).tolist():
            rows = np.flatnonzero(codes == segment)
            certificates[segment] = certificates[segment].advance(
                log.take(rows),
                probabilities[rows],
                ratios[rows],
                None if baseline is None else baseline.take(rows),
            )
        after = replace(self, certificates=tuple(certificates), rounds=self.rounds + len(log))
        if after.rounds not in POINTS_SET or after.worse_at or not after._worse_now():
            return after
        return replace(after, worse_at=after.rounds)

    def _worse_now(self) -> bool:
        """Whether the mean of the e-processes of a loss is at least 1/δ."""
        logs = [one.log_loss_wealth for one in self.certificates]
        mean = float(np.logaddexp.reduce(logs)) - math.log(len(logs))
        return mean >= -math.log(1.0 - self.confidence)

    @property
    def contradicts(self) -> bool:
        """Whether bounds in some segment contradict each other."""
        return any(one.contradicts for one in self.certificates if one.rounds)

    @property
    def worse_somewhere(self) -> bool:
        """Whether it was ever certain that the policy loses in some segment."""
        return bool(self.worse_at or self._worse_now()) and not self.contradicts

    @property
    def gains(self) -> list[SegmentGain]:
        """The mean gain in each segment, in their order."""
        each = 1.0 - (1.0 - self.confidence) / (2 * len(self.names))
        return [
            _gain_of(name, one, one.with_confidence(each))
            for name, one in zip(self.names, self.certificates, strict=True)
        ]


def _gain_of(name: str, decided: AnyCertificate, bounded: AnyCertificate) -> SegmentGain:
    """The gain in a segment, from its certificates of both confidences."""
    n, gain, upper = bounded.rounds, bounded.gain, bounded.gain_upper
    return SegmentGain(
        name,
        n,
        None if gain is None or not n else gain / n,
        None if upper is None or not n else upper / n,
        bool(decided.promoted),
        bool(decided.worse),
    )
