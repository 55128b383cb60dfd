"""Logs with metrics and segments, and a question about them."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

import understudy as us
from understudy.certificates import (
    AnyCertificate,
    BaselineRounds,
    FixedPolicy,
    JointCertificate,
    SegmentCertificates,
    largest_ratios,
)
from understudy.certificates.curves import follow_joint
from understudy.certificates.difference import certificate_against
from understudy.constraints import Array
from understudy.logs.evaluation.questions import Question
from understudy.logs.policy import from_text
from understudy.snapshots import as_data

__all__ = ["QUESTION", "as_data", "certificates_of", "from_text", "with_metrics"]

QUESTION: dict[str, Any] = {
    "against": "action:north",
    "guardrail": ["latency:0:1000:lower:50", "visits:0:1:higher:0.2"],
    "segment": "country=it,es",
}


def with_metrics(rows: pl.DataFrame, seed: int = 0) -> pl.DataFrame:
    """The rows with a column of each guardrail, some of them missing, and of segments.

    The latency is higher in the east; some rows lack their reward, after the tenth.
    """
    rng, n = np.random.default_rng([seed, 5]), len(rows)
    latency = rng.uniform(100.0, 200.0, n) + 100.0 * (rows["action"] == "east").to_numpy()
    number = pl.int_range(n)
    return rows.with_columns(
        latency=pl.Series(latency),
        visits=pl.Series((rng.random(n) < 0.5).astype(float)),
        country=pl.Series(rng.choice(["it", "es", "fr"], n)),
    ).with_columns(
        reward=pl.when(number % 50 == 40).then(None).otherwise("reward"),
        latency=pl.when(number % 30 == 7).then(None).otherwise("latency"),
    )


def certificates_of(
    rows: pl.DataFrame, log: us.Log, trace: us.Trace, behavior: Any, against: Array
) -> tuple[JointCertificate, list[Any], SegmentCertificates]:
    """The certificates of a trace for `QUESTION`, with the points of the curve, by no run.

    The baseline is the policy `against`; all rows can be used.
    """
    plain = us.Certificate(behavior, 0.95, 4)
    begun: AnyCertificate = certificate_against(plain, against)
    ratios = largest_ratios(trace, log, plain.behavior)
    own = largest_ratios(FixedPolicy(against), log, plain.behavior)
    baseline = BaselineRounds(against[log.actions], own)
    guardrails = Question.of(**QUESTION).guardrails
    metrics = np.stack([one.unit(rows[one.name]) for one in guardrails], axis=1)
    codes = np.array([{"it": 0, "es": 1}.get(value, -1) for value in rows["country"]])
    joint = JointCertificate.begin(begun, guardrails)
    joint, points = follow_joint(joint, log, trace.probability, ratios, metrics, baseline)
    segments = SegmentCertificates.begin(begun, ("it", "es"))
    segments = segments.advance(log, trace.probability, ratios, codes, baseline)
    return joint, points, segments
