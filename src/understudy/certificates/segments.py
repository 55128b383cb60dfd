"""Certificates of segments: the rows of each are a log of their own, and all hold together.

A segment is declared before the log is looked at, and is known before the action: new users, a
country. With m segments, bounds on the gain spend δ/(2m) each, so that all intervals hold together,
and the decision about one segment spends δ/m. Whether the policy is worse somewhere is decided by
the mean of the segments' e-processes of a loss, which is an e-process and needs no division of δ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from understudy.certificates.difference import (
    ANY_CERTIFICATE,
    ROUND,
    AnyCertificate,
    have_same_share,
    require_no_rounds,
    require_observed,
)
from understudy.certificates.evidence import (
    CONFIDENCE,
    POINTS_SET,
    BaselineRounds,
    confidence_of_each,
    parts_between_points,
)
from understudy.certificates.targets import Target
from understudy.constraints import Array, Checked, enforce, text, tuple_of
from understudy.errors import InvalidArgument
from understudy.formatting import counted, percent
from understudy.types import Feedback, Integers, Log, saved

# Of log 1/δ: a loss that one of m segments shows at δ/m is one at δ, whatever the rounding.
ROUNDING = 1e-9
NAMES = tuple_of("pass a tuple of the names of all segments", text("pass names"))


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
@dataclass(frozen=True, eq=False, repr=False)
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
    CONSTRAINTS: ClassVar = {
        "names": NAMES,
        "certificates": tuple_of("pass a tuple of certificates", ANY_CERTIFICATE),
        "confidence": CONFIDENCE,
        "rounds": ROUND,
        "worse_at": ROUND,
    }

    def __post_init__(self) -> None:
        enforce(self)
        m = len(self.names)
        if not m or len(set(self.names)) < m:
            reason = "two are the same" if m else "there is no segment"
            raise InvalidArgument("names", self.names, reason, "pass different names, one or more")
        if len(self.certificates) != m:
            reason = f"there are {m} segments"
            raise InvalidArgument("certificates", self.certificates, reason, "pass one of each")
        each = confidence_of_each(self.confidence, m)
        for one in self.certificates:
            if not have_same_share(one.confidence, each):
                reason = f"of {m} segments, each has the confidence {each:.6g}"
                remedy = "make the certificates with us.SegmentCertificates.begin"
                raise InvalidArgument("certificates", one, reason, remedy)
        if sum(one.rounds for one in self.certificates) > self.rounds:
            reason = "the segments have more rounds"
            raise InvalidArgument("rounds", self.rounds, reason, "pass the number of all rounds")
        require_observed("worse_at", self.worse_at, self.rounds)

    @staticmethod
    def begin(whole: AnyCertificate, names: Sequence[str]) -> SegmentCertificates:
        """The certificates before round 1, of the confidence that the certificate of all has."""
        require_no_rounds("whole", ANY_CERTIFICATE("whole", whole))
        found = NAMES("names", names if isinstance(names, str) else tuple(names))
        confidence = confidence_of_each(whole.confidence, max(len(found), 1))
        each = (whole.with_confidence(confidence),) * len(found)
        return SegmentCertificates(found, each, whole.confidence)

    def observe(
        self,
        log: Log | Feedback,
        target: Target,
        segments: Sequence[str] | str,
        baseline: Target | None = None,
    ) -> SegmentCertificates:
        """The certificates after more rounds, with the name of the segment of each round.

        Rounds with another name are in no segment. Other arguments are those of
        `Certificate.observe`.
        """
        first = self.certificates[0]
        shown, probabilities, ratios, other = first.rounds_of(log, target, baseline)
        found = [segments] if isinstance(segments, str) else list(segments)
        if len(found) != len(shown):
            reason = f"there are {len(found)}, and the log has {counted(len(shown), 'round')}"
            raise InvalidArgument("segments", segments, reason, "pass one name per round")
        places = {name: place for place, name in enumerate(self.names)}
        codes = np.array([places.get(name, -1) for name in found], dtype=np.int64)
        return self.advance(shown, probabilities, ratios, codes, other)

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
        return mean >= -math.log(1.0 - self.confidence) - ROUNDING

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
        """The mean gain in each segment, in their order.

        Where propensities are counted, both bounds of a segment share those of its certificate,
        which spent δ/(4m); with three quarters of δ/(2m) each, that is δ/m in all.
        """
        each = confidence_of_each(self.confidence, 2 * len(self.names))
        return [
            _gain_of(name, one, one.with_confidence(each))
            for name, one in zip(self.names, self.certificates, strict=True)
        ]

    def __repr__(self) -> str:
        n, m, confidence = self.rounds, len(self.names), f"{percent(self.confidence)} confidence"
        if not n:
            return (
                f"SegmentCertificates({counted(m, 'segment')}, {confidence}, nothing observed yet)"
            )
        better = [one.name for one in self.gains if one.promoted]
        worse = [one.name for one in self.gains if one.worse]
        return (
            f"{counted(m, 'segment')} after {counted(n, 'round')}, with {confidence}. Better in: "
            f"{', '.join(better) or 'none'}. Worse in: {', '.join(worse) or 'none'}."
        )


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
