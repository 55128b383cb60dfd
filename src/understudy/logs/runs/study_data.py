"""The certificates of a study in policy.json, with the question that they answer.

What was added after release 0.5, beside the certificate and its curve, is left out where a run has
none of it, so that a policy without a question has the text that it had.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from understudy.behaviors import Behavior
from understudy.certificates import (
    AnyCertificate,
    Certificate,
    DifferenceCertificate,
    JointCertificate,
    SegmentCertificates,
)
from understudy.certificates.curves import Point
from understudy.certificates.difference import certificate_against, have_same_share
from understudy.certificates.evidence import POINTS
from understudy.constraints import PROBABILITIES, Array
from understudy.errors import InvalidSnapshot
from understudy.logs.encoder import REMEDY
from understudy.logs.evaluation.questions import (
    NamedBaseline,
    QuarantinedRows,
    Question,
    Segments,
)
from understudy.logs.runs.certificate_path import CertificatePath
from understudy.logs.schema import Actions
from understudy.logs.statistics import BaselineSums
from understudy.snapshots import as_data, from_data


def question_as_data(question: Question, path: CertificatePath | None) -> dict[str, Any]:
    """The parts of policy.json about a question that its certificates do not have."""
    data: dict[str, Any] = {}
    if isinstance(question.against, NamedBaseline) and path is not None:
        assert path.against is not None  # the probabilities of the baseline
        files = list(question.against.files)
        data["baseline"] = {
            "name": question.against.name,
            "policy": path.against.tolist(),
            **({"files": files} if files else {}),
        }
    if question.quarantined is not QuarantinedRows.WORST_CASE:
        data["quarantined_rows"] = question.quarantined.value
    return data


def path_as_data(path: CertificatePath | None) -> dict[str, Any]:
    """The certificates of a path as policy.json has them."""
    if path is None:
        return {"certificate": None, "curve": []}
    certificate = path.certificate if path.joint is None else path.joint
    data = {
        "certificate": as_data(certificate, "certificate"),
        "curve": [list(point) for point in path.points],
    }
    if path.segments is not None:
        data["segments"] = as_data(path.segments, "segments")
    if path.baseline is not None:
        data["baseline_sums"] = _sums_as_data(path.baseline)
    if path.without_rejected is not None:
        data["without_rejected"] = path_as_data(path.without_rejected)
    return data


def _sums_as_data(sums: BaselineSums) -> dict[str, Any]:
    tables = {"metrics": sums.metrics, "segments": sums.segments}
    each = {name: None if one is None else one.tolist() for name, one in tables.items()}
    return {**sums._asdict(), **each}


def path_from_data(
    content: Mapping[str, Any], behavior: Behavior | None, actions: Actions, rows: int
) -> tuple[CertificatePath | None, Question]:
    """The certificates in a policy.json of so many rows, and their question, or `InvalidSnapshot`.

    >>> nothing = {"certificate": None, "curve": [], "settings": {"columns": {"eligible": None}}}
    >>> path_from_data(nothing, None, Actions(("a", "b")), 0)[1] == Question()
    True
    """
    columns, about = content["settings"]["columns"], content.get("baseline")
    against = None if about is None else PROBABILITIES("baseline", about["policy"])
    path = _path(content, against, partial=columns["eligible"] is not None)
    question = Question(
        against=None if about is None else _baseline(about, against, actions),
        guardrails=() if path is None or path.joint is None else path.joint.metrics,
        segments=None if path is None else _segments(path.segments, columns),
        quarantined=QuarantinedRows(content.get("quarantined_rows", QuarantinedRows.WORST_CASE)),
    )
    names = [list(question.names[role]) for role in ("metrics", "segments")]
    fits = names == [list(columns.get(role, [])) for role in ("metrics", "segments")]
    if path is None:
        fits &= about is None and not content["curve"]
    else:
        other = path.without_rejected
        fits &= path.certificate.rounds >= rows
        fits &= other is None or (
            other.certificate.rounds == rows and other.without_rejected is None
        )
        for one in filter(None, (path, other)):
            fits &= _fits(one, question) and _sums_fit(one, behavior, rows)
    if not fits:
        reason = "the certificates, their question and the rows disagree"
        raise InvalidSnapshot("certificate", rows, reason, REMEDY)
    return path, question


def _baseline(data: Mapping[str, Any], policy: Array | None, actions: Actions) -> NamedBaseline:
    name, files = data["name"], data.get("files", [])
    if policy is None or len(policy) != len(actions):
        raise InvalidSnapshot("baseline", data["policy"], "it has another number", REMEDY)
    if not all(isinstance(text, str) for text in (name, *files)):
        raise InvalidSnapshot("baseline", name, "a name or a fingerprint is no text", REMEDY)
    pairs = zip(actions.labels, policy.tolist(), strict=True)
    by_label = {label: probability for label, probability in pairs if probability > 0.0}
    return NamedBaseline(name, by_label, tuple(files))


def _segments(
    certificates: SegmentCertificates | None, columns: Mapping[str, Any]
) -> Segments | None:
    if certificates is None:
        return None
    return Segments(columns["segments"][0], certificates.names)


def _path(
    content: Mapping[str, Any], against: Array | None, *, partial: bool
) -> CertificatePath | None:
    """The certificates of some data, of which each by itself is checked."""
    certificate = from_data(content["certificate"], "certificate")
    if certificate is None:
        return None
    joint = certificate if isinstance(certificate, JointCertificate) else None
    goal = certificate if joint is None else joint.goal
    if not isinstance(goal, Certificate | DifferenceCertificate):
        raise InvalidSnapshot("certificate", certificate, "it is not a certificate", REMEDY)
    segments = from_data(content.get("segments"), "segments")
    if not isinstance(segments, SegmentCertificates | None):
        raise InvalidSnapshot("segments", segments, "they are no certificates", REMEDY)
    points = tuple(_point(point, gains=goal.gain is not None) for point in content["curve"])
    if len(points) != np.searchsorted(POINTS, goal.rounds, side="right"):
        raise InvalidSnapshot("curve", len(points), "it has another number of points", REMEDY)
    sums, fork = content.get("baseline_sums"), content.get("without_rejected")
    other = None if fork is None else _path(fork, against, partial=partial)
    if fork is not None and other is None:
        raise InvalidSnapshot("without_rejected", fork, "it has no certificate", REMEDY)
    return CertificatePath(
        goal,
        partial=partial,
        points=points,
        joint=joint,
        segments=segments,
        baseline=None if sums is None else _sums(sums),
        against=against,
        without_rejected=other,
    )


def _point(point: list[Any], *, gains: bool) -> Point:
    lower, upper, production, gain = point
    if (gain is not None) != gains:
        raise InvalidSnapshot("curve", point, "a gain is missing, or cannot be known", REMEDY)
    values = float(lower), float(upper), float(production), None if gain is None else float(gain)
    if not all(math.isfinite(value) for value in values if value is not None):
        raise InvalidSnapshot("curve", point, "a number is not finite", REMEDY)
    return values


def _sums(data: Mapping[str, Any]) -> BaselineSums:
    tables = {
        name: None if data[name] is None else np.array(data[name], dtype=np.float64)
        for name in ("metrics", "segments")
    }
    sums = BaselineSums(**{**data, **tables})
    found = [
        np.array(sums[:5], dtype=np.float64),
        *(one for one in tables.values() if one is not None),
    ]
    if not all(np.isfinite(one).all() and (one >= 0.0).all() for one in found):
        raise InvalidSnapshot("baseline_sums", data, "no log has such sums", REMEDY)
    return sums


# ------------------------------------------------------------------------------- do they agree?


def _fits(path: CertificatePath, question: Question) -> bool:
    """Whether the certificates of a path are those of its question, of the same rows.

    That guardrails are of the rounds of the goal, their own checks have shown.
    """
    leaves = _leaves(path)
    plain = _empty(leaves[0], against=None, baseline_ratio=None)
    plain = plain.with_confidence(path.confidence)
    begun: AnyCertificate = plain
    if path.against is not None:
        begun = certificate_against(plain, path.against, paired=not path.partial)
    expected = CertificatePath.begin(begun, question)
    kinds, wanted = ([type(one) for one in _certificates(each)] for each in (path, expected))
    declared, asked = (
        (
            each.joint and each.joint.metrics,
            each.segments and each.segments.names,
        )
        for each in (path, expected)
    )
    return (
        kinds == wanted
        and declared == asked
        and all(map(_made_alike, leaves, _leaves(expected)))
        and (path.segments is None or path.segments.rounds == path.certificate.rounds)
    )


def _certificates(path: CertificatePath) -> list[AnyCertificate]:
    guardrails = () if path.joint is None else path.joint.guardrails
    segments = () if path.segments is None else path.segments.certificates
    return [path.certificate, *guardrails, *segments]


def _leaves(path: CertificatePath) -> list[Certificate]:
    """All certificates of a path, a difference as its two."""
    return [
        leaf
        for one in _certificates(path)
        for leaf in (
            (one.target, one.baseline) if isinstance(one, DifferenceCertificate) else (one,)
        )
    ]


def _made_alike(one: Certificate, other: Certificate) -> bool:
    """Whether both were made with the same arguments; confidences may differ by rounding."""
    found, wanted = (as_data(_empty(c, confidence=0.5)) for c in (one, other))
    return bool(found == wanted and have_same_share(one.confidence, other.confidence))


def _empty(one: Certificate, **arguments: Any) -> Certificate:
    """The certificate before the first round, with other arguments."""
    return replace(one, evidence=None, **arguments)  # type: ignore[arg-type] # it is made


def _sums_fit(path: CertificatePath, behavior: Behavior | None, rows: int) -> bool:
    """Whether there are sums of a baseline exactly where they are needed, of so many rows."""
    sums, joint, segments = path.baseline, path.joint, path.segments
    if path.against is None or behavior is None or not rows:
        return sums is None
    if sums is None or sums.rows != rows:
        return False
    sizes = [
        None if joint is None else len(joint.metrics),
        None if segments is None else len(segments.names),
    ]
    shapes = [None if one is None else one.shape for one in (sums.metrics, sums.segments)]
    return shapes == [None if size is None else (size, 2) for size in sizes]
